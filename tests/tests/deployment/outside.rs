//! What is outside: the platform, servers of webhook units, and a cluster's relay that polls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_flow::ports::Clock as _;
use ebb_flow::system::SystemClock;
use ebb_protocol::listing::{ClusterListing, ObjectSummary, RelayInfo, TaskSummary, UnmanagedObject};
use ebb_protocol::pull::{PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch};
use ebb_protocol::relay::{Batch, BatchResponse, CallbackEndpoint, RelayRequest, RelayResponse, TaskId, TaskState};
use ebb_protocol::seal;
use ebb_protocol::sign::{self, MessageId, WebhookKeys};
use serde_json::{Value, json};

use crate::functions::{CLUSTER, secret};

/// More than fits into an item, a queued batch or a response.
pub(crate) fn long() -> String {
    "long ".repeat(2_000)
}

/// One for all: making one reads certificates.
pub(crate) fn http() -> reqwest::Client {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| reqwest::Client::builder().no_proxy().build().unwrap());
    CLIENT.clone()
}

/// What servers and scripts were told of traces, by the path of a request or the name of a unit.
#[derive(Clone, Default)]
pub(crate) struct SeenTraces(Arc<Mutex<BTreeMap<String, String>>>);

impl SeenTraces {
    pub(crate) fn take(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn add(&self, who: &str, told: &str) {
        self.0.lock().unwrap().insert(who.to_owned(), told.to_owned());
    }
}

/// The paths that have been asked for, and what came with the requests.
#[derive(Clone, Default)]
struct TracedServers(Arc<Mutex<BTreeSet<String>>>, SeenTraces);

impl TracedServers {
    fn first(&self, what: &str) -> bool {
        self.0.lock().unwrap().insert(what.to_owned())
    }
}

/// Starts the servers. `/ok` answers at once, `/long` at length, `/later` calls back, `/twice` once more with another
/// result, `/bad` fails and `/late-bad` fails by a callback; `/flaky` and `/second` fail at first and are long then.
/// Everything else is taken.
pub(crate) async fn start(seen: SeenTraces) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/{what}", post(answer)).with_state(TracedServers(Arc::default(), seen));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn answer(
    State(servers): State<TracedServers>,
    Path(what): Path<String>,
    headers: HeaderMap,
) -> (StatusCode, Json<Value>) {
    let text = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    servers.1.add(&what, &text("traceparent"));
    let to = CallbackEndpoint {
        url: text("ebb-callback-url"),
        token: text("ebb-callback-token"),
        installation: String::new(),
    };
    let succeeded = |id: &str| json!({"status": "succeeded", "outputs": {"id": id}});
    let failed = json!({"status": "failed", "reason": {"code": "httpStatus", "message": "no"}});
    let (status, callbacks) = match what.as_str() {
        "later" => (202, vec![succeeded(&long())]),
        "twice" => (202, vec![succeeded("first"), succeeded("second")]),
        "late-bad" => (202, vec![failed]),
        "flaky" | "second" if servers.first(&what) => (500, vec![]),
        "bad" => (500, vec![]),
        _ => (200, vec![]),
    };
    let id = if matches!(what.as_str(), "long" | "flaky" | "second") { long() } else { "x".to_owned() };
    tokio::spawn(async move {
        for body in callbacks {
            call_back(&to, &body).await;
        }
    });
    (StatusCode::from_u16(status).unwrap(), Json(json!({ "id": id })))
}

async fn call_back(to: &CallbackEndpoint, body: &Value) {
    let request = http().post(&to.url).bearer_auth(&to.token);
    let request = request.header("content-type", "application/json").body(body.to_string());
    request.send().await.unwrap();
}

/// The relay of the cluster: scripts succeed at once, but for one that is `endless`, and one of a life that is over is still there.
pub(crate) async fn relay(api: String, over: TaskId, seen: SeenTraces) {
    let mut answers = Vec::new();
    loop {
        let poll = PollRequest {
            v: 1,
            cluster: "uid".to_owned(),
            wait_ms: Some(500),
            in_progress: Vec::new(),
            replies: answers,
        };
        let body = serde_json::to_vec(&poll).unwrap();
        let id = MessageId::parse("poll-1").unwrap();
        let mut request = http().post(format!("{api}/v1/clusters/{CLUSTER}/poll"));
        for (name, value) in sign::sign(&secret(), &id, SystemClock.now(), &body) {
            request = request.header(name, value);
        }
        let answer = request.body(body).send().await.unwrap();
        let status = answer.status();
        let bytes: Bytes = answer.bytes().await.unwrap();
        let post: PollResponse = serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("{status} {bytes:?}"));
        answers = post.batches.iter().map(|batch| reply(batch, &over, &seen)).collect();
    }
}

fn reply(sealed: &SealedBatch, over: &TaskId, seen: &SeenTraces) -> QueuedReply {
    let ciphertext = STANDARD.decode(&sealed.ciphertext).unwrap();
    let batch =
        seal::open(&WebhookKeys::from(secret()), &SealedBatch::associated_data(CLUSTER, &sealed.id), &ciphertext)
            .unwrap();
    let batch: Batch = serde_json::from_slice(&batch).unwrap();
    let answers = batch.requests.into_iter().map(|request| match request {
        RelayRequest::Ensure(work) => {
            let documents = &work.body.secrets;
            let env: Vec<(String, String)> = serde_json::from_value(documents[0].document["env"].clone()).unwrap();
            let of = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            seen.add(of("EBB_UNIT").unwrap(), of("TRACEPARENT").unwrap_or_default());
            let result = json!({"status": "succeeded", "outputs": {"name": long()}, "log": "done"});
            let ends = of("EBB_UNIT") != Some("endless");
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                if ends {
                    call_back(&work.callback, &result).await;
                }
            });
            RelayResponse::State(TaskState::running(long()))
        }
        RelayRequest::Get(_) => RelayResponse::State(TaskState::running(long())),
        RelayRequest::Dequeue(_) => RelayResponse::State(TaskState::running("")),
        RelayRequest::Cancel { .. } => RelayResponse::State(TaskState::Tombstoned),
        RelayRequest::Acknowledge(_) | RelayRequest::Release { .. } | RelayRequest::Delete(_) => RelayResponse::Done,
        RelayRequest::About => RelayResponse::About(RelayInfo { version: "1".to_owned(), up_ms: 1, tasks: 0 }),
        RelayRequest::List { .. } => RelayResponse::Listing(listing(over)),
    });
    let answers = BatchResponse { v: 1, cluster: "uid".to_owned(), responses: answers.collect() };
    QueuedReply { id: sealed.id.clone(), outcome: ReplyOutcome::Response(answers) }
}

fn listing(over: &TaskId) -> ClusterListing {
    let object = ObjectSummary {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: None,
        name: "left".to_owned(),
        uid: "uid-left".to_owned(),
        labelled: true,
    };
    let stranger = UnmanagedObject { unit: over.unit.clone(), age_ms: 1, object: object.clone() };
    let listed = TaskSummary {
        task: over.clone(),
        phase: "running".to_owned(),
        instance: "l".to_owned(),
        callback: String::new(),
        installation: String::new(),
        age_ms: 7_200_000,
        objects: vec![object],
    };
    ClusterListing { tasks: vec![listed], unmanaged: vec![stranger; 20], ..ClusterListing::default() }
}
