//! The cases of the model: graphs with budgets of faults. `cases.yaml` and `rules.yaml` have them.

use super::*;

#[derive(Clone, Debug)]
pub struct ModelCase {
    pub name: String,
    pub graph: ModelGraph,
    pub budget: FaultBudget,
    /// Maximum number of unusual steps of a path (see `order.rs`). `u32::MAX` has no limit.
    pub unusual: u32,
}

pub(super) const WHOLE: u32 = u32::MAX;

/// A case in a file, for some actions. The head of `cases.yaml` describes the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseEntry {
    name: String,
    reads: Vec<Vec<usize>>,
    #[serde(default = "all_actions")]
    runs: Vec<UnitAction>,
    #[serde(default)]
    large: Vec<UnitAction>,
    #[serde(default)]
    faults: FaultBudget,
    #[serde(default)]
    with: ModelGraph,
    unusual: Option<u32>,
}

fn all_actions() -> Vec<UnitAction> {
    vec![UnitAction::Pod, UnitAction::Once, UnitAction::Later]
}

impl CaseEntry {
    /// Returns the case of each action, with `true` if it takes a minute or more.
    pub(super) fn cases(&self) -> impl Iterator<Item = (bool, ModelCase)> {
        self.runs.iter().map(move |runs| {
            let units = match runs {
                UnitAction::Pod => "pods",
                UnitAction::Later => "webhooks that call back",
                _ => "webhooks that answer at once",
            };
            let reads = self.reads.iter().map(|reads| (*runs, reads.clone()));
            let graph = ModelGraph { units: reads.collect(), ..self.with.clone() };
            let (name, unusual) = (format!("{}, {units}", self.name), self.unusual.unwrap_or(WHOLE));
            (self.large.contains(runs), ModelCase { name, graph, budget: self.faults, unusual })
        })
    }
}

/// Returns all cases, each with `true` if it takes a minute or more: small graphs with all orders, and larger ones with few
/// unusual steps.
///
/// # Errors
/// If `cases.yaml` has another format.
pub fn cases() -> Result<Vec<(bool, ModelCase)>, serde_saphyr::Error> {
    let entries: Vec<CaseEntry> = serde_saphyr::from_str(include_str!("cases.yaml"))?;
    Ok(entries.iter().flat_map(CaseEntry::cases).collect())
}
