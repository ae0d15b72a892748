//! The four functions, each with its own memory, clients and address, over one table, bucket and queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use ebb_api::{ApiRole, ApiTokens, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_engine::Millis;
use ebb_flow::background::BackgroundTasks;
use ebb_flow::ports::{MessageQueue, QueueMessage};
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use ebb_flow::{DeploymentSettings, Env};
use ebb_local::embedded::EmbeddedTable;
use ebb_protocol::sign::{WebhookKeys, WebhookSecret};
use ebb_relay_client::{ClusterRegistry, ClusterRelay, PollEndpoint};
use ebb_store::suite::s3_bucket;
use ebb_store::{DynamoTable, S3Bucket, Store};
use ebb_tests::fakes::{self, CountingQueue};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::record::{PolicyRights, Recorder};

/// The functions by the names of their resources.
pub(crate) const FUNCTIONS: [&str; 4] = ["Receive", "Complete", "Sweep", "Api"];

const NAME: &str = "ebb";
pub(crate) const TOKEN: &str = "operator";
/// The cluster whose relay polls, and one whose relay is not there.
pub(crate) const CLUSTER: &str = "inside";
pub(crate) const SILENT: &str = "silent";
/// The functions that are asked by HTTP, and whose rights each has. The second `receive` knows no more of what the first
/// one has in memory than another instance does.
const ASKED: [(&str, &str); 4] =
    [("Receive", "Receive"), ("Second", "Receive"), ("Complete", "Complete"), ("Api", "Api")];

/// The secret of everything here.
pub(crate) fn secret() -> WebhookSecret {
    WebhookSecret::from_bytes(&[7; 32]).unwrap()
}

/// The functions, running.
pub(crate) struct DeployedFunctions {
    /// Where `receive` answers, twice, and `complete` and `api`.
    pub(crate) urls: BTreeMap<&'static str, String>,
    recorders: BTreeMap<&'static str, Recorder>,
    _folder: tempfile::TempDir,
}

/// The queue as one function uses it.
struct RecordedQueue(Recorder, Arc<CountingQueue>);

#[async_trait]
impl MessageQueue for RecordedQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        self.0.needs("sqs:SendMessage", "WakeupQueue");
        self.1.send(message, delay).await;
    }

    async fn check(&self) -> Result<(), String> {
        self.send(QueueMessage::Mark, Duration::ZERO).await;
        Ok(())
    }
}

/// What all functions are made of.
struct SharedParts {
    dynamo: aws_sdk_dynamodb::Client,
    bucket: S3Bucket,
    clusters: Arc<ClusterRegistry>,
    queue: Arc<CountingQueue>,
    callbacks: String,
    platform: String,
}

impl SharedParts {
    fn make(&self, recorder: &Recorder) -> (ServerState, Arc<Store>) {
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let dynamo = self.dynamo.config().to_builder().interceptor(recorder.clone()).build();
        let bucket = self.bucket.client().config().to_builder().interceptor(recorder.clone()).build();
        let dynamo = DynamoTable::new(aws_sdk_dynamodb::Client::from_conf(dynamo), NAME);
        let bucket = S3Bucket::new(aws_sdk_s3::Client::from_conf(bucket), self.bucket.name());
        let store = Arc::new(Store::new(dynamo, Arc::new(bucket)));
        let client = Arc::new(HttpClient::new(Policy::with_loopback()).unwrap());
        let grace = Duration::from_secs(1);
        let (clusters, queue) = (self.clusters.clone(), store.clone());
        let relay = ClusterRelay::new(clusters.clone(), client.clone(), queue, clock.clone(), random.clone(), grace);
        let queue = Arc::new(RecordedQueue(recorder.clone(), self.queue.clone()));
        let env = fakes::env(store.clone(), client, queue, settings(&self.callbacks, &self.platform));
        let env = Env { relay: Arc::new(relay), ..env };
        let access = Arc::new(ApiTokens::new([(TOKEN, ApiRole::Operator)]));
        let post = Arc::new(PollEndpoint::new(clusters, store.clone(), clock));
        (ServerState { env: Arc::new(env), store: store.clone(), tokens: access, poll_endpoint: post }, store)
    }
}

impl DeployedFunctions {
    /// Starts them. Notifications go to `platform`.
    pub(crate) async fn start(platform: &str, telemetry: Telemetry) -> Self {
        let telemetry = Arc::new(telemetry);
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dynamo = EmbeddedTable::memory().unwrap();
        ebb_store::table::create(&dynamo, NAME).await.unwrap();
        let bucket = s3_bucket(folder.path()).await;
        let secret = secret();
        let clusters = json!({
            CLUSTER: {"secret": *secret.reveal(), "uid": "uid", "entrypointImage": "entrypoint"},
            SILENT: {"url": "http://127.0.0.1:1", "secret": *secret.reveal(), "uid": "uid", "entrypointImage": "entrypoint"},
        });
        let mut listeners = BTreeMap::new();
        for (name, _) in ASKED {
            listeners.insert(name, TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let urls: BTreeMap<_, _> = listeners.iter().map(|(name, listener)| (*name, url(listener))).collect();
        let (queue, _, messages) = fakes::channel();
        let parts = SharedParts {
            dynamo,
            bucket,
            clusters: Arc::new(ClusterRegistry::parse(&clusters.to_string()).unwrap()),
            queue: Arc::new(queue),
            callbacks: format!("{}/v1/callbacks", urls["Complete"]),
            platform: platform.to_owned(),
        };
        let recorders: BTreeMap<_, _> = FUNCTIONS.map(|name| (name, Recorder::default())).into();
        let background = Arc::new(BackgroundTasks::default());
        for (name, of) in ASKED {
            let (server, _) = parts.make(&recorders[of]);
            let router: Router = match of {
                "Receive" => ebb_api::receive(server),
                "Complete" => ebb_api::complete(server),
                _ => ebb_api::api(server),
            };
            let router = ebb_api::instrument_router(Arc::clone(&telemetry), router, &background, |_| came());
            let listener = listeners.remove(name).unwrap();
            tokio::spawn(async move { axum::serve(listener, router).await });
        }
        let (server, store) = parts.make(&recorders["Sweep"]);
        tokio::spawn(sweep(server.env, store, telemetry, messages));
        Self { urls, recorders, _folder: folder }
    }

    /// What each function has needed so far.
    pub(crate) fn needed(&self) -> BTreeMap<&'static str, PolicyRights> {
        self.recorders.iter().map(|(name, recorder)| (*name, recorder.rights())).collect()
    }
}

/// What Lambda would say of an invocation.
fn came() -> InvocationOrigin {
    InvocationOrigin { request_id: "r-1".to_owned(), received: None }
}

/// The schedule, in a hurry, and the queue.
async fn sweep(
    env: Arc<Env>,
    store: Arc<Store>,
    telemetry: Arc<Telemetry>,
    mut messages: mpsc::UnboundedReceiver<QueueMessage>,
) {
    loop {
        let next = tokio::time::timeout(Duration::from_millis(100), messages.recv());
        match next.await {
            Ok(None) => return,
            Ok(Some(message)) => {
                let (env, telemetry) = (Arc::clone(&env), Arc::clone(&telemetry));
                // A hint that fails is a hint that was lost.
                tokio::spawn(async move {
                    let work = Box::pin(ebb_flow::sweep::receive_message(&env, &message));
                    telemetry.invoke(FunctionKind::Sweep, came(), work).await
                });
            }
            Err(_) => {
                ebb_flow::sweep::mark_schedule(&env).await.unwrap();
                let work = Box::pin(ebb_flow::sweep::sweep(&env, store.as_ref()));
                telemetry.invoke(FunctionKind::Sweep, came(), work).await.unwrap();
                ebb_flow::sweep::outages::record_outages(&env, store.as_ref()).await.unwrap();
                ebb_flow::sweep::retention::remove_expired(&env, store.as_ref(), env.now()).await.unwrap();
                let (env, store) = (Arc::clone(&env), Arc::clone(&store));
                tokio::spawn(async move { ebb_flow::sweep::orphans::scan(&env, store.as_ref()).await });
            }
        }
    }
}

fn settings(callbacks: &str, platform: &str) -> DeploymentSettings {
    DeploymentSettings {
        callback_url: callbacks.to_owned(),
        platform_keys: secret().into(),
        webhook_keys: WebhookKeys::from(secret()),
        // A queued batch expires then.
        max_in_flight: Millis(5_000),
        grace: Duration::from_secs(1),
        response_timeout: Duration::from_secs(5),
        // Instances that are gone are removed while others go on.
        retention: Some(Millis(2_000)),
        max_dispatches: 2,
        dispatch_budget: Duration::from_secs(3),
        ..fakes::settings("urn:tests", Some(platform.to_owned()), Millis(1_000)).unwrap()
    }
}
