//! A table and a bucket whose requests are counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use ebb_store::suite::s3_bucket;
use ebb_store::{DynamoTable, Meter, S3Bucket, Store};

pub(crate) const TABLE: &str = "ebb";

/// Requests to the table and the bucket, by operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Arc<Mutex<BTreeMap<String, u64>>>);

impl RequestCounts {
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
    pub(crate) dynamo: aws_sdk_dynamodb::Client,
    /// The requests of this store are in `requests`, and not in `meter`.
    pub(crate) unmetered: Arc<Store>,
    pub(crate) store: Arc<Store>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) requests: RequestCounts,
}

impl MeasuredStore {
    /// Opens the table, and the bucket in `folder`, and creates them if they do not exist.
    pub(crate) async fn open(dynamo: aws_sdk_dynamodb::Client, folder: &Path) -> anyhow::Result<Self> {
        let (requests, meter) = (RequestCounts::default(), Arc::new(Meter::new()));
        ebb_store::table::create(&dynamo, TABLE).await?;
        let objects = folder.join("bucket");
        std::fs::create_dir_all(&objects)?;
        let bucket = s3_bucket(&objects).await;
        let table = dynamo.config().to_builder().interceptor(requests.clone()).build();
        let client = bucket.client().config().to_builder().interceptor(requests.clone()).build();
        let bucket = S3Bucket::new(aws_sdk_s3::Client::from_conf(client), bucket.name());
        let table = DynamoTable::new(aws_sdk_dynamodb::Client::from_conf(table), TABLE);
        let unmetered = Store::new(table, Arc::new(bucket));
        let store = Arc::new(unmetered.clone().metered(meter.clone()));
        Ok(Self { dynamo, unmetered: Arc::new(unmetered), store, meter, requests })
    }
}
