//! The list prices, from their file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// All of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    pub(crate) region: String,
    currency: String,
    /// The day on which they were read.
    pub(crate) read: String,
    #[serde(rename = "note")]
    _note: String,
    prices: BTreeMap<String, Price>,
}

/// One price.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    usd: f64,
    /// For so many units.
    per: f64,
    unit: String,
    /// AWS's own page.
    source: String,
    /// Where it was read, if anywhere.
    seen: String,
    /// Whether it was not read on a copy of the source, and has to be compared with it.
    check: bool,
}

impl List {
    /// # Errors
    /// The file cannot be read, or is no list of prices in dollars, each with a source.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let context = || file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(context)?;
        let list: Self = serde_json::from_str(&text).with_context(context)?;
        ensure!(list.currency == "USD", "{}: prices are in USD", context());
        for (name, price) in &list.prices {
            let known =
                price.source.starts_with("https://aws.amazon.com/") && price.usd > 0.0 && price.per >= 1.0;
            ensure!(known, "{}: {name} has no price with a source", context());
            ensure!(
                price.check || !price.seen.is_empty(),
                "{}: {name} was read nowhere, which needs `check`",
                context()
            );
        }
        Ok(list)
    }

    /// Dollars for `amount` units of what is called so.
    ///
    /// # Errors
    /// There is no such price.
    pub(crate) fn cost(&self, name: &str, amount: f64) -> anyhow::Result<f64> {
        let price = self.prices.get(name).with_context(|| format!("there is no price of {name}"))?;
        Ok(price.usd * amount / price.per)
    }

    /// What is counted for a price.
    ///
    /// # Errors
    /// There is no such price.
    pub(crate) fn unit(&self, name: &str) -> anyhow::Result<&str> {
        Ok(&self.prices.get(name).with_context(|| format!("there is no price of {name}"))?.unit)
    }

    /// How many there are, how many of them are to be compared with their source, and how many of these were read nowhere.
    pub(crate) fn doubts(&self) -> (usize, usize, usize) {
        let unseen = self.prices.values().filter(|price| price.seen.is_empty());
        (self.prices.len(), self.prices.values().filter(|price| price.check).count(), unseen.count())
    }
}
