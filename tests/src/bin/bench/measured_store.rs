//! A table and a bucket whose requests are counted.

use std::sync::Arc;

use ebb_engine::Timestamp;
use ebb_local::embedded::EmbeddedTable;
use ebb_store::suite::Meter;
use ebb_store::{MemoryTable, Store};

/// One table and one bucket.
pub(crate) struct MeasuredStore {
    pub(crate) table: Arc<EmbeddedTable>,
    /// Its requests are not counted.
    pub(crate) unmetered: Arc<Store>,
    pub(crate) store: Arc<Store>,
    pub(crate) meter: Arc<Meter>,
}

impl MeasuredStore {
    /// Creates an empty table and an empty bucket.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (table, meter) = (Arc::new(EmbeddedTable::temporary()?), Arc::<Meter>::default());
        let unmetered = Store::new(table.clone(), Arc::new(MemoryTable::default()));
        let store = Arc::new(unmetered.observed(meter.clone()));
        Ok(Self { table, unmetered: Arc::new(unmetered), store, meter })
    }

    /// Publishes a plugin. Its requests are not counted.
    pub(crate) async fn publish(&self, plugin: &str, now: Timestamp) -> anyhow::Result<()> {
        let published = ebb_api::queries::plugins::publish(self.unmetered.as_ref(), plugin, now, |_| Ok(())).await;
        published.map(drop).map_err(|error| anyhow::anyhow!("the plugin is not published: {error:?}"))
    }
}
