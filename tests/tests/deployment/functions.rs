//! The four functions, each with its own cache, clients and URL, on one table, bucket and queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use ebb_api::{ApiRole, ApiTokens, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_flow::background::BackgroundTasks;
use ebb_flow::ports::{MessageQueue, QueueMessage};
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use ebb_flow::{DeploymentSettings, Env};
use ebb_local::stack::LocalQueue;
use ebb_protocol::named_secrets::NamedSecrets;
use ebb_protocol::pull::IDLE_POLL_MS;
use ebb_protocol::{Millis, WebhookKeys, WebhookSecret};
use ebb_relay_client::{ClusterRegistry, ClusterRelay, PollEndpoint};
use ebb_store::{MemoryTable, Store};
use ebb_tests::fakes;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::record::Recorder;

/// The names of the resources of the functions.
pub(crate) const FUNCTIONS: [&str; 4] = ["Receive", "Complete", "Sweep", "Api"];

pub(crate) const TOKEN: &str = "operator-of-the-tests";
/// A cluster whose relay polls, and one whose relay does not respond.
pub(crate) const CLUSTER: &str = "inside";
pub(crate) const UNREACHABLE: &str = "silent";
/// The functions with an HTTP server, each with the function whose rights it has. The second `receive` has its own
/// cache, like another instance.
const HTTP_FUNCTIONS: [(&str, &str); 4] =
    [("Receive", "Receive"), ("Second", "Receive"), ("Complete", "Complete"), ("Api", "Api")];

pub(crate) fn secret() -> WebhookSecret {
    WebhookSecret::from_bytes(&[7; 32]).unwrap()
}

pub(crate) struct DeployedFunctions {
    pub(crate) urls: BTreeMap<&'static str, String>,
    /// The table, without a recorder.
    pub(crate) table: Store,
    pub(crate) recorders: BTreeMap<&'static str, Recorder>,
}

struct RecordedQueue(Recorder, Arc<LocalQueue>);

#[async_trait]
impl MessageQueue for RecordedQueue {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        self.0.needs("sqs:SendMessage", "WakeupQueue");
        self.1.send(message, delay).await;
    }
}

struct SharedParts {
    content: Store,
    clusters: String,
    queue: Arc<LocalQueue>,
    callbacks: String,
    platform: String,
}

impl SharedParts {
    fn make(&self, recorder: &Recorder) -> (ServerState, Arc<Store>) {
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let store = Arc::new(self.content.observed(Arc::new(recorder.clone())));
        let client = Arc::new(HttpClient::new(Policy::with_loopback()).unwrap());
        let grace = Duration::from_secs(1);
        let settings = settings(&self.callbacks, &self.platform);
        let clusters = ClusterRegistry::parse(&self.clusters).unwrap();
        let clusters = Arc::new(clusters.with_registered(store.clone(), settings.unit_keys.clone()));
        let batches = store.clone();
        let relay = ClusterRelay::new(clusters.clone(), client.clone(), batches, clock.clone(), random.clone(), grace);
        let queue = Arc::new(RecordedQueue(recorder.clone(), self.queue.clone()));
        let env = fakes::env(store.clone(), client, queue, settings);
        let env = Env { relay: Arc::new(relay), ..env };
        let tokens = Arc::new(ApiTokens::new([(TOKEN, ApiRole::Operator)]));
        let poll_endpoint = Arc::new(PollEndpoint::new(clusters, store.clone(), clock, Some(IDLE_POLL_MS)));
        (ServerState { env: Arc::new(env), tokens, poll_endpoint }, store)
    }
}

impl DeployedFunctions {
    /// Starts the functions. They send notifications to `platform`.
    pub(crate) async fn start(platform: &str, telemetry: Telemetry) -> Self {
        let telemetry = Arc::new(telemetry);
        let table = MemoryTable::store();
        let secret = secret();
        let clusters = json!({
            CLUSTER: {"secret": *secret.reveal(), "uid": "uid", "entrypointImage": "entrypoint"},
            UNREACHABLE: {"url": "http://127.0.0.1:1", "secret": *secret.reveal(), "uid": "uid", "entrypointImage": "entrypoint"},
        });
        let mut listeners = BTreeMap::new();
        for (name, _) in HTTP_FUNCTIONS {
            listeners.insert(name, TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let urls: BTreeMap<_, _> = listeners.iter().map(|(name, listener)| (*name, url(listener))).collect();
        let (queue, messages) = mpsc::unbounded_channel();
        let parts = SharedParts {
            content: table.clone(),
            clusters: clusters.to_string(),
            queue: Arc::new(LocalQueue(queue)),
            callbacks: format!("{}/v1/callbacks", urls["Complete"]),
            platform: platform.to_owned(),
        };
        let recorders: BTreeMap<_, _> = FUNCTIONS.map(|name| (name, Recorder::default())).into();
        let background = Arc::new(BackgroundTasks::default());
        for (name, of) in HTTP_FUNCTIONS {
            let (server, _) = parts.make(&recorders[of]);
            let router: Router = match of {
                "Receive" => ebb_api::receive(server),
                "Complete" => ebb_api::complete(server),
                _ => ebb_api::api(server),
            };
            let router = ebb_api::instrument_router(Arc::clone(&telemetry), router, &background, |_| origin());
            let listener = listeners.remove(name).unwrap();
            tokio::spawn(async move { axum::serve(listener, router).await });
        }
        let (server, store) = parts.make(&recorders["Sweep"]);
        let (mut removal, _) = parts.make(&recorders["Sweep"]);
        // The notice of a removal is short, too.
        let settings = &mut Arc::get_mut(&mut removal.env).unwrap().settings;
        settings.max_in_flight = Millis(500);
        (settings.response_timeout, settings.dispatch_budget) = (Duration::ZERO, Duration::ZERO);
        tokio::spawn(sweep(server.env, removal.env, store, telemetry, messages));
        Self { urls, table, recorders }
    }
}

fn origin() -> InvocationOrigin {
    InvocationOrigin { request_id: "r-1".to_owned(), received: None }
}

/// Runs `sweep` on messages of the queue and on a fast schedule. `removal` removes expired instances.
async fn sweep(
    env: Arc<Env>,
    removal: Arc<Env>,
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
                // A failed wake-up counts as lost.
                tokio::spawn(async move {
                    let work = Box::pin(ebb_flow::sweep::receive_message(&env, &message));
                    telemetry.invoke(FunctionKind::Sweep, origin(), work).await
                });
            }
            Err(_) => {
                ebb_flow::sweep::mark_schedule(&env).await.unwrap();
                let work = Box::pin(ebb_flow::sweep::sweep(&env, store.as_ref(), std::future::pending()));
                telemetry.invoke(FunctionKind::Sweep, origin(), work).await.unwrap();
                ebb_flow::sweep::outages::record_outages(&env).await.unwrap();
                ebb_flow::instance::retention::remove_expired(&removal, env.now()).await.unwrap();
                let env = Arc::clone(&env);
                tokio::spawn(async move { ebb_flow::sweep::orphans::scan(&env).await });
            }
        }
    }
}

fn settings(callbacks: &str, platform: &str) -> DeploymentSettings {
    DeploymentSettings {
        callback_url: callbacks.to_owned(),
        platform_keys: secret().into(),
        secrets: Arc::new(NamedSecrets::parse(json!({ "SENDER": TOKEN }).to_string().as_bytes()).unwrap()),
        webhook_keys: WebhookKeys::from(secret()),
        // A queued batch expires then.
        max_in_flight: Millis(5_000),
        grace: Duration::from_secs(1),
        response_timeout: Duration::from_secs(5),
        // Short, so that gone instances are removed during the run.
        retention: Some(Millis(2_000)),
        max_dispatches: 2,
        dispatch_budget: Duration::from_secs(3),
        ..fakes::settings("urn:tests", Some(platform.to_owned()), Millis(1_000))
    }
}
