//! A table and a bucket whose requests are counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_engine::Timestamp;
use ebb_local::embedded::EmbeddedTable;
use ebb_store::{Bucket, MemoryTable, Meter, OpenObject, Store, StoreResult};
use ebb_tests::simulation::lock;

/// A bucket in memory. Each operation is one request to S3.
#[derive(Debug, Default)]
pub(crate) struct CountedBucket {
    objects: MemoryTable,
    requests: Mutex<BTreeMap<&'static str, u64>>,
}

impl CountedBucket {
    fn count(&self, operation: &'static str) {
        *lock(&self.requests).entry(operation).or_default() += 1;
    }

    /// Returns the requests since the last call, by operation.
    pub(crate) fn take(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *lock(&self.requests))
    }
}

#[async_trait]
impl Bucket for CountedBucket {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        self.count("PutObject");
        self.objects.put_object(key, bytes).await
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        self.count("GetObject");
        self.objects.open_object(key).await
    }

    async fn remove(&self, key: &str) -> StoreResult<()> {
        self.count("DeleteObject");
        self.objects.remove(key).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>> {
        self.count("ListObjectsV2");
        self.objects.list(prefix).await
    }
}

/// One table and one bucket.
pub(crate) struct MeasuredStore {
    pub(crate) table: Arc<EmbeddedTable>,
    pub(crate) bucket: Arc<CountedBucket>,
    /// Its requests to the table are not counted.
    pub(crate) unmetered: Arc<Store>,
    pub(crate) store: Arc<Store>,
    pub(crate) meter: Arc<Meter>,
}

impl MeasuredStore {
    /// Creates an empty table and an empty bucket.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (table, bucket) = (Arc::new(EmbeddedTable::temporary()?), Arc::<CountedBucket>::default());
        let (unmetered, meter) = (Store::new(table.clone(), bucket.clone()), Arc::new(Meter::new()));
        let store = Arc::new(unmetered.clone().metered(meter.clone()));
        Ok(Self { table, bucket, unmetered: Arc::new(unmetered), store, meter })
    }

    /// Publishes a plugin. Its requests to the table are not counted.
    pub(crate) async fn publish(&self, plugin: &str, now: Timestamp) -> anyhow::Result<()> {
        let published = ebb_api::queries::plugins::publish(self.unmetered.as_ref(), plugin, now, |_| Ok(())).await;
        published.map(drop).map_err(|error| anyhow::anyhow!("the plugin is not published: {error:?}"))
    }
}
