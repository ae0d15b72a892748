//! A table and a bucket for one test, and values for them.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::primitives::SdkBody;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use ebb_protocol::engine::AttemptRef;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::runtime::Runtime;

use super::meter::Meter;
use super::proxy::FaultProxy;

// Imports of most tests.
pub(super) use super::proxy::ProxyFault;
pub(super) use super::samples::{AT, full_cluster, full_result, full_target, rejections, sample};
pub(super) use crate::dynamo::{BATCH_INLINE, item_at, number, text};
pub(super) use crate::*;
pub(super) use ebb_protocol::engine::{
    Attempt, Epoch, Hook, LateMark, Millis, Patch, PatchChange, RunEvent, TargetPhase, Timestamp, Unit, accept,
};
pub(super) use ebb_protocol::id::{EventRef, RunId, TargetKey, digest};
pub(super) use ebb_protocol::limits;
pub(super) use ebb_protocol::record::{AttemptOutcome, AttemptResult, OutputStorage};
pub(super) use ebb_protocol::value::{Outputs, UnitValue};
pub(super) use futures::future::join_all;
pub(super) use serde_json::json;
pub(super) use std::sync::Arc;
pub(super) use std::time::Duration;

pub(super) const A1: Attempt = Attempt::FIRST;
static TABLES: AtomicU32 = AtomicU32::new(0);
static CLIENTS: AtomicU32 = AtomicU32::new(0);

pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(super) fn tombstone(instance: &str) -> Tombstone {
    let ended = Timestamp(1_800_000_000_000);
    Tombstone { instance: instance.to_owned(), ended, needed: Some(ended) }
}

#[derive(Clone, Debug)]
pub struct TableUnderTest {
    /// The prefix of the names of its tests.
    pub name: &'static str,
    pub place: TablePlace,
}

#[derive(Clone, Debug)]
pub enum TablePlace {
    /// The URL of a service without a slash at the end. Requests are signed with arbitrary keys.
    Endpoint(String),
    /// This process. The function returns a new table.
    Process(fn() -> Arc<dyn ItemTable>),
}

/// The table of a test as a service.
pub(super) struct SdkAccess {
    pub(super) client: aws_sdk_dynamodb::Client,
    pub(super) endpoint: String,
    pub(super) name: String,
}

pub(super) struct StoreFixture {
    pub(super) store: Store,
    /// The table without the meter.
    pub(super) table: Arc<dyn ItemTable>,
    pub(super) meter: Arc<Meter>,
    sdk: Option<SdkAccess>,
    folder: tempfile::TempDir,
}

impl StoreFixture {
    pub(super) async fn new(table_under_test: &TableUnderTest) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (table, sdk): (Arc<dyn ItemTable>, _) = match &table_under_test.place {
            TablePlace::Process(open) => (open(), None),
            TablePlace::Endpoint(endpoint) => {
                let name = format!("ebb-{}-{}", std::process::id(), TABLES.fetch_add(1, Ordering::Relaxed));
                let client = aws_sdk_dynamodb::Client::from_conf(config(endpoint).build());
                create_table(&client, &name).await.unwrap();
                create_table(&client, &name).await.unwrap();
                let table = SdkTable::new(client.clone(), &name);
                (Arc::new(table), Some(SdkAccess { client, endpoint: endpoint.clone(), name }))
            }
        };
        let meter = Arc::<Meter>::default();
        let store = Store::new(table.clone(), Arc::new(s3_bucket(folder.path()).await));
        Self { store: store.observed(meter.clone()), table, meter, sdk, folder }
    }

    /// Returns the service. Only tests of [`super::service_trials`] have one.
    pub(super) fn sdk(&self) -> &SdkAccess {
        self.sdk.as_ref().unwrap()
    }

    pub(super) fn proxy(&self) -> (FaultProxy, Store) {
        let proxy = FaultProxy::default();
        let config = config(&self.sdk().endpoint).http_client(proxy.http_client()).build();
        let table = SdkTable::new(aws_sdk_dynamodb::Client::from_conf(config), &self.sdk().name);
        let store = Store::new(Arc::new(table), self.store.bucket.clone());
        (proxy, store.observed(self.meter.clone()))
    }

    pub(super) async fn run(&self, name: &str) -> RunId {
        assert!(self.store.move_target(&begin(name)).await.unwrap());
        new_run(name).id
    }

    pub(super) async fn accept(&self, run: &RunId, event: RunEvent) -> PatchResult {
        self.store.patch_run(run, &accept(event)).await.unwrap()
    }

    pub(super) async fn put(&self, target: TargetHead) {
        self.transit(target, None).await;
    }

    /// Writes a target, if its version is `seen`.
    pub(super) async fn transit(&self, target: TargetHead, seen: Option<u64>) {
        assert!(self.store.move_target(&TargetTransition::new(target, seen)).await.unwrap());
    }

    /// Returns the names of all objects of plans, without their instances.
    pub(super) fn objects_of_plans(&self) -> Vec<String> {
        let Ok(instances) = std::fs::read_dir(self.folder.path().join("ebb/plans")) else { return Vec::new() };
        let folders = instances.map(|instance| std::fs::read_dir(instance.unwrap().path()).unwrap());
        let names = folders.flatten().map(|object| object.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    pub(super) async fn item(&self, partition: &str, sort: &str) -> Option<Item> {
        self.table.get(ItemKey::new(partition, sort)).await.unwrap().value
    }
}

/// Passes the requests of an SDK to a server in this process.
#[derive(Debug)]
struct S3Connector(S3Service);

impl HttpConnector for S3Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let service = self.0.clone();
        HttpConnectorFuture::new(async move {
            let mut request = request.try_into_http1x().unwrap().map(s3s::Body::http_body);
            request.headers_mut().insert("host", "s3.test".parse().unwrap());
            let response = service.call(request).await.unwrap().map(SdkBody::from_body_1_x);
            Ok(HttpResponse::try_from(response).unwrap())
        })
    }
}

/// Creates the bucket `ebb` of an S3 server in this process, which stores it in the empty `folder`.
async fn s3_bucket(folder: &Path) -> S3Bucket {
    let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).unwrap());
    service.set_auth(SimpleAuth::from_single("test", "test"));
    let service = service.build();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(aws_sdk_s3::config::Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url("http://s3.test")
        .force_path_style(true)
        .http_client(http_client_fn(move |_, _| SharedHttpConnector::new(S3Connector(service.clone()))))
        .build();
    let client = aws_sdk_s3::Client::from_conf(config);
    client.create_bucket().bucket("ebb").send().await.unwrap();
    S3Bucket::new(client, "ebb")
}

/// Returns the configuration of a client with all retries and short pauses.
fn config(endpoint: &str) -> aws_sdk_dynamodb::config::Builder {
    let name = format!("suite-{}", CLIENTS.fetch_add(1, Ordering::Relaxed));
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .retry_config(RetryConfig::standard().with_initial_backoff(Duration::from_millis(2)))
        // The SDK limits the retries of all clients of a partition together.
        .retry_partition(RetryPartition::new(name))
        .endpoint_url(endpoint)
}

pub(super) fn written(patched: PatchResult) -> RunHead {
    match patched {
        PatchResult::Written(head) => head,
        PatchResult::ConditionFailed(image) => panic!("refused: {image:?}"),
    }
}

pub(super) fn first_attempt(unit: u32) -> AttemptRef {
    AttemptRef { unit: Unit(unit), number: Attempt::FIRST, epoch: Epoch::FIRST }
}

pub(super) fn success(unit: u32) -> RunEvent {
    RunEvent::Succeeded(first_attempt(unit))
}

pub(super) fn new_run(name: &str) -> NewRun {
    let id = RunId::new(&ebb_protocol::id::instance_key("sandbox", name, "u1"), 1, Hook::PreStart);
    let (kind, name, uid, plan) = ("sandbox".into(), name.into(), "u1".into(), digest(b"plan"));
    let (routing_key, started, by) = (Some("rk".into()), Timestamp(1_800_000_000_000), Some("token ci".into()));
    let facts = RunFacts { kind, name, uid, generation: 1, plan, routing_key, started, by };
    NewRun { id, facts, due: Timestamp(1_800_000_060_000) }
}

pub(super) fn target(kind: &str, name: &str) -> TargetHead {
    let (kind, name, due) = (kind.to_owned(), name.to_owned(), Some(Timestamp(1_800_000_060_000)));
    TargetHead { kind, name, due, version: 1, ..sample("starting") }
}

pub(super) fn begin(name: &str) -> TargetTransition {
    TargetTransition { run: Some(new_run(name)), ..TargetTransition::new(target("sandbox", name), None) }
}

pub(super) fn result(outcome: AttemptOutcome, digest: &str) -> AttemptResult {
    let (at, digest) = (Timestamp(1_800_000_001_000), ebb_protocol::id::digest(digest.as_bytes()));
    AttemptResult { outcome, at, digest, ..AttemptResult::default() }
}

/// Returns a success with an output of this size.
pub(super) fn outputs(bytes: usize, digest: &str) -> AttemptResult {
    let outputs = Outputs::from([("x".to_owned(), UnitValue::Json("y".repeat(bytes).into()))]);
    AttemptResult { outputs: OutputStorage::Inline(outputs), ..result(AttemptOutcome::Succeeded, digest) }
}
