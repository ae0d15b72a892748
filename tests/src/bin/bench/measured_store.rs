//! A table and a bucket whose requests are counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use ebb_engine::Timestamp;
use ebb_local::embedded::EmbeddedTable;
use ebb_store::suite::s3_bucket;
use ebb_store::{Meter, S3Bucket, Store};
use tempfile::TempDir;

/// Requests to the bucket, by operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Arc<Mutex<BTreeMap<String, u64>>>);

impl RequestCounts {
    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Intercept for RequestCounts {
    fn name(&self) -> &'static str {
        "Requests"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        settings: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let name = settings.load::<Metadata>().map_or_else(String::new, |metadata| metadata.name().to_string());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
        Ok(())
    }
}

/// One table and one bucket.
pub(crate) struct MeasuredStore {
    pub(crate) table: Arc<EmbeddedTable>,
    /// Its requests to the table are not counted.
    pub(crate) unmetered: Arc<Store>,
    pub(crate) store: Arc<Store>,
    pub(crate) meter: Arc<Meter>,
    /// The requests to the bucket.
    pub(crate) requests: RequestCounts,
    /// The folder of the bucket.
    _folder: TempDir,
}

impl MeasuredStore {
    /// Creates an empty table and an empty bucket.
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let (requests, meter) = (RequestCounts::default(), Arc::new(Meter::new()));
        let (table, folder) = (Arc::new(EmbeddedTable::temporary()?), tempfile::tempdir()?);
        let bucket = s3_bucket(folder.path()).await;
        let client = bucket.client().config().to_builder().interceptor(requests.clone()).build();
        let bucket = S3Bucket::new(aws_sdk_s3::Client::from_conf(client), bucket.name());
        let unmetered = Store::new(table.clone(), Arc::new(bucket));
        let store = Arc::new(unmetered.clone().metered(meter.clone()));
        Ok(Self { table, unmetered: Arc::new(unmetered), store, meter, requests, _folder: folder })
    }

    /// Publishes a plugin. Its requests to the table are not counted.
    pub(crate) async fn publish(&self, plugin: &str, now: Timestamp) -> anyhow::Result<()> {
        let published = ebb_api::queries::plugins::publish(self.unmetered.as_ref(), plugin, now, |_| Ok(())).await;
        published.map(drop).map_err(|error| anyhow::anyhow!("the plugin is not published: {error:?}"))
    }
}
