//! The environment of one function, over a table and a bucket in a folder, with every request counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use ebb_egress::{CallError, HttpCall, HttpRequest, HttpResponse};
use ebb_engine::Millis;
use ebb_flow::ports::QueueMessage;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::{Env, InstanceCache};
use ebb_local::embedded::EmbeddedTable;
use ebb_store::suite::s3_bucket;
use ebb_store::{DynamoTable, S3Bucket, Store};
use ebb_tests::fakes::{self, NoCluster, QueueTraffic};
use tokio::sync::mpsc::UnboundedReceiver;

pub(crate) const TABLE: &str = "ebb";
/// Bytes of outputs of each unit; they are in the bucket.
const OUTPUT: usize = 4 << 10;
/// No sweep looks while something is measured.
const NEVER: Millis = Millis(86_400_000);

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
        let name = settings.load::<Metadata>().map_or_else(String::new, |what| what.name().to_string());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
        Ok(())
    }
}

/// Answers each request with outputs at once.
struct InstantServer;

#[async_trait]
impl HttpCall for InstantServer {
    async fn call(&self, _: HttpRequest) -> Result<HttpResponse, CallError> {
        let body = serde_json::json!({ "text": "x".repeat(OUTPUT) }).to_string().into_bytes();
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Ok(HttpResponse { status: 200, headers, body })
    }
}

pub(crate) struct LargeHarness {
    pub(crate) env: Arc<Env>,
    pub(crate) store: Arc<Store>,
    pub(crate) dynamo: aws_sdk_dynamodb::Client,
    pub(crate) traffic: Arc<QueueTraffic>,
    pub(crate) messages: UnboundedReceiver<QueueMessage>,
    pub(crate) requests: RequestCounts,
}

impl LargeHarness {
    /// Opens the table and the bucket in `folder`, and creates them if they do not exist.
    pub(crate) async fn open(folder: &Path) -> anyhow::Result<Self> {
        let requests = RequestCounts::default();
        let dynamo = EmbeddedTable::open(&folder.join("table"))?;
        ebb_store::table::create(&dynamo, TABLE).await?;
        let objects = folder.join("bucket");
        std::fs::create_dir_all(&objects)?;
        let bucket = s3_bucket(&objects).await;
        let counted = dynamo.config().to_builder().interceptor(requests.clone()).build();
        let counted = aws_sdk_dynamodb::Client::from_conf(counted);
        let client = bucket.client().config().to_builder().interceptor(requests.clone()).build();
        let bucket = S3Bucket::new(aws_sdk_s3::Client::from_conf(client), bucket.name());
        let store = Arc::new(Store::new(DynamoTable::new(counted, TABLE), Arc::new(bucket)));
        let (queue, traffic, messages) = fakes::channel();
        let env = Arc::new(Env {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            relay: Arc::new(NoCluster),
            egress: Arc::new(InstantServer),
            platform: Arc::new(InstantServer),
            queue: Arc::new(queue),
            settings: fakes::settings("http://functions.test", Some("http://platform.test".to_owned()), NEVER)?,
            cache: InstanceCache::default(),
        });
        Ok(Self { env, store, dynamo, traffic, messages, requests })
    }
}
