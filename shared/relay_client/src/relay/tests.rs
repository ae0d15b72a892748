use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use ebb_egress::{HttpClient, Policy};
use ebb_engine::Timestamp;
use ebb_protocol::relay::{Batch, ObjectTask, TaskBody};
use ebb_protocol::sign::{WebhookKeys, WebhookSecret, verify};
use ebb_store::MemoryTable;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NOW: Timestamp = Timestamp(1_700_000_000_000);

pub(crate) struct FixedClock;
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW
    }
}
#[derive(Default)]
pub(crate) struct SequentialRandom(AtomicU64);
impl RandomSource for SequentialRandom {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Records batches with a valid signature and returns a fixed response.
#[derive(Default)]
struct RecordingServer {
    batches: Mutex<Vec<Batch>>,
    response: Mutex<(u16, String)>,
}

async fn serve(server: Arc<RecordingServer>) -> String {
    let receive = move |headers: HeaderMap, body: Bytes| async move {
        let keys = WebhookKeys::new(WebhookSecret::parse(SECRET).unwrap(), Vec::new()).unwrap();
        if let Err(error) = verify(&keys, &headers, &body, NOW) {
            return (StatusCode::UNAUTHORIZED, error.to_string());
        }
        server.batches.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        let (status, text) = server.response.lock().unwrap().clone();
        (StatusCode::from_u16(status).unwrap(), text)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/v1/batch", axum::routing::post(receive));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

fn relay(url: &str, secret: &str, uid: &str) -> ClusterRelay {
    let cluster = json!({"url": url, "secret": secret, "uid": uid, "entrypointImage": "r"});
    let clusters = ClusterRegistry::parse(&json!({"default": cluster}).to_string()).unwrap();
    let call = Arc::new(HttpClient::new(Policy::with_loopback()).unwrap());
    let (clock, random) = (Arc::new(FixedClock), Arc::new(SequentialRandom::default()));
    ClusterRelay::new(Arc::new(clusters), call, Arc::new(MemoryTable::store()), clock, random, Duration::from_secs(30))
}

/// The beginnings of the texts of errors.
const REFUSED: &str = "the relay rejects the task: ";
const BUSY: &str = "the relay is busy: ";

fn task() -> TaskId {
    TaskId { unit: "instance-1-pre-start-0".to_owned(), attempt: 1 }
}

fn request() -> (EnsureTask, ObjectTask) {
    let request: EnsureTask = serde_json::from_str(include_str!("../../tests/objects.json")).unwrap();
    let TaskBody::Objects(objects) = request.body.clone() else { panic!("{request:?}") };
    (request, objects)
}

#[tokio::test]
async fn every_request_is_signed_and_gets_its_response() {
    let server = Arc::new(RecordingServer::default());
    let relay = relay(&serve(Arc::clone(&server)).await, SECRET, "uid");
    let respond = |response: Value| {
        let text = json!({"v": 1, "cluster": "uid", "responses": [response]}).to_string();
        *server.response.lock().unwrap() = (200, text);
    };
    let (request, objects) = request();
    respond(json!({"state": {"running": {"log": "l"}}}));
    let running = TaskState::running("l".to_owned());
    assert_eq!(relay.ensure(UnitCluster::default(), request).await, Ok(running.clone()));
    assert_eq!(relay.get(UnitCluster::default(), &task()).await, Ok(running));
    respond(json!({"state": "tombstoned"}));
    assert_eq!(relay.cancel(UnitCluster::default(), &task(), Duration::from_secs(3)).await, Ok(TaskState::Tombstoned));
    respond(json!("done"));
    assert_eq!(relay.acknowledge(UnitCluster::default(), &task()).await, Ok(()));
    assert_eq!(relay.release(UnitCluster::default(), "instance").await, Ok(()));
    assert_eq!(relay.delete("default", &task()).await, Ok(()));
    respond(json!({"about": {"version": "1", "upMs": 2, "tasks": 3}}));
    let about = RelayInfo { version: "1".to_owned(), up_ms: 2, tasks: 3, policy: None, api_server: None };
    assert_eq!(relay.about("default").await, Ok((about, "uid".to_owned())));
    respond(json!({"listing": {"nextToken": "2"}}));
    let listing = ClusterListing { next_token: Some("2".to_owned()), ..ClusterListing::default() };
    assert_eq!(relay.list("default", Some("1".to_owned())).await, Ok(listing));
    let call =
        json!({"service": "files", "method": "POST", "path": "/", "headers": [], "body": "{}", "validForMs": 9_000});
    let call: ServiceRequest = serde_json::from_value(call).unwrap();
    respond(json!({"service": {"status": 200, "body": "[]"}}));
    let response = ServiceResponse { status: 200, headers: Vec::new(), body: "[]".to_owned() };
    assert_eq!(relay.call(UnitCluster::default(), call).await, Ok(response));
    let batches = std::mem::take(&mut *server.batches.lock().unwrap());
    assert!(batches.iter().all(|batch| batch.v == 1 && batch.cluster == "uid"));
    let requests: Vec<RelayRequest> = batches.into_iter().flat_map(|batch| batch.requests).collect();
    let RelayRequest::Ensure(sent) = &requests[0] else { panic!("{requests:?}") };
    assert_eq!((&sent.body, &sent.task, &*sent.callback.token), (&objects, &task(), "t"));
    let rest: Vec<RelayRequest> = serde_json::from_str(include_str!("../../tests/sent_requests.json")).unwrap();
    assert_eq!(requests[1..], rest);
}

#[tokio::test]
async fn errors_are_final_or_retryable() {
    let server = Arc::new(RecordingServer::default());
    let url = serve(Arc::clone(&server)).await;
    let connected = relay(&url, SECRET, "uid");
    let responses = |list: Value| json!({"v": 1, "cluster": "uid", "responses": list}).to_string();
    // The status and the body of a response, and the beginning and a part of the error.
    let rows: Vec<(u16, Value, String, String)> =
        serde_json::from_str(include_str!("../../tests/relay_errors.json")).unwrap();
    for (status, body, kind, expected) in rows {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        *server.response.lock().unwrap() = (status, text);
        let error = connected.ensure(UnitCluster::default(), request().0).await.unwrap_err();
        let is_of = |text: String, kind: &str| text.starts_with(kind) && text.contains(&expected);
        assert!(is_of(error.to_string(), &kind), "{status} {error}");
        // The task may still run, so a refusal is retryable.
        let error = connected.cancel(UnitCluster::default(), &task(), Duration::ZERO).await.unwrap_err();
        let retryable = if kind == REFUSED { BUSY } else { kind.as_str() };
        assert!(is_of(error.to_string(), retryable), "{status} {error}");
    }
    // A usable response takes precedence over errors. The refusal of a start is a usable response.
    let observation = || connected.take_observations().pop();
    assert!(matches!(observation(), Some((name, None)) if name == "default"));
    assert_eq!(
        (observation(), connected.resolve_cluster(None), connected.resolve_cluster(Some("eu"))),
        (None, Some("default".to_owned()), Some("eu".to_owned()))
    );
    *server.response.lock().unwrap() = (200, responses(json!([{"refused": "no"}])));
    connected.cancel(UnitCluster::default(), &task(), Duration::ZERO).await.unwrap_err();
    let silent = |it| matches!(it, Some((_, Some(ClusterFault { reason, .. }))) if reason == "no");
    assert!(silent(observation()));
    let wrong_secret = relay(&url, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "uid");
    let unreachable = relay("http://127.0.0.1:1", SECRET, "uid");
    // The number of the client, the name and the UID of the cluster, whether the error is final, and a part of it.
    type Row = (usize, Option<String>, Option<String>, bool, String);
    let rows: Vec<Row> = serde_json::from_str(include_str!("../../tests/lookup_errors.json")).unwrap();
    for (number, name, uid, is_final, expected) in rows {
        let cluster = UnitCluster { name: name.as_deref(), uid: uid.as_deref() };
        let error = [&wrong_secret, &unreachable, &connected][number].get(cluster, &task()).await.unwrap_err();
        assert_eq!(matches!(error, RelayError::Refused(_)), is_final, "{error}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}
