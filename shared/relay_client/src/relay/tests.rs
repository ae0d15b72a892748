use std::sync::{Mutex, atomic::AtomicU64, atomic::Ordering};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use ebb_egress::{HttpClient, Policy};
use ebb_engine::Timestamp;
use ebb_protocol::relay::{Batch, CallbackEndpoint, ObjectTask, TaskBody};
use ebb_protocol::sign::{WebhookKeys, WebhookSecret, verify};
use ebb_store::{QueuedBatch, StoreResult};
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

/// Nobody here polls.
pub(crate) struct NoBatches;
#[async_trait]
impl BatchQueue for NoBatches {
    async fn enqueue_batch(&self, _: &str, _: &QueuedBatch) -> StoreResult<()> {
        unreachable!()
    }
    async fn pending_batches(
        &self,
        _: &str,
        _: Timestamp,
        _: &[String],
        _: usize,
        _: usize,
    ) -> StoreResult<Vec<QueuedBatch>> {
        unreachable!()
    }
    async fn put_reply(&self, _: &str, _: &str, _: &[u8]) -> StoreResult<bool> {
        unreachable!()
    }
    async fn read_reply(&self, _: &str, _: &str) -> StoreResult<Option<Vec<u8>>> {
        unreachable!()
    }
    async fn take_batch(&self, _: &str, _: &str) -> StoreResult<Option<Vec<u8>>> {
        unreachable!()
    }
}

/// What a server got, after its signature was checked, and what it answers.
#[derive(Default)]
struct RecordingServer {
    batches: Mutex<Vec<Batch>>,
    answer: Mutex<(u16, String)>,
}

async fn serve(seen: Arc<RecordingServer>) -> String {
    let take = move |headers: HeaderMap, body: Bytes| async move {
        let keys = WebhookKeys::new(WebhookSecret::parse(SECRET).unwrap(), Vec::new()).unwrap();
        if let Err(error) = verify(&keys, &headers, &body, NOW) {
            return (StatusCode::UNAUTHORIZED, error.to_string());
        }
        seen.batches.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        let (status, text) = seen.answer.lock().unwrap().clone();
        (StatusCode::from_u16(status).unwrap(), text)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/v1/batch", axum::routing::post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

fn relay(url: &str, secret: &str, uid: &str) -> ClusterRelay {
    let cluster = json!({"url": url, "secret": secret, "uid": uid, "entrypointImage": "r"});
    let clusters = ClusterRegistry::parse(&json!({"default": cluster}).to_string()).unwrap();
    let call = Arc::new(HttpClient::new(Policy::with_loopback()).unwrap());
    let (clock, random) = (Arc::new(FixedClock), Arc::new(SequentialRandom::default()));
    ClusterRelay::new(Arc::new(clusters), call, Arc::new(NoBatches), clock, random, Duration::from_secs(30))
}

const REFUSED: &str = "refused";
const BUSY: &str = "busy";
const UNREACHABLE: &str = "unreachable";

fn kind_of(error: &RelayError) -> &'static str {
    match error {
        RelayError::Refused(_) => REFUSED,
        RelayError::Busy(_) => BUSY,
        RelayError::Unreachable(_) => UNREACHABLE,
    }
}

fn task() -> TaskId {
    TaskId { unit: "life-1-pre-start-0".to_owned(), attempt: 1 }
}

fn request() -> (EnsureTask, ObjectTask) {
    let objects = ObjectTask { instance: "life".to_owned(), ..ObjectTask::default() };
    let request = EnsureTask {
        v: 1,
        task: task(),
        valid_for_ms: 1,
        timeout_ms: 2,
        callback: CallbackEndpoint { url: "u".to_owned(), token: "t".to_owned(), installation: String::new() },
        body: TaskBody::Objects(objects.clone()),
    };
    (request, objects)
}

#[tokio::test]
async fn every_verb_is_signed_and_answered() {
    let seen = Arc::new(RecordingServer::default());
    let relay = relay(&serve(Arc::clone(&seen)).await, SECRET, "uid");
    let answers = |status: u16, answer: Value| {
        let text = json!({"v": 1, "cluster": "uid", "responses": [answer]}).to_string();
        *seen.answer.lock().unwrap() = (status, text);
    };
    let (request, objects) = request();
    answers(200, json!({"state": {"running": {"log": "l"}}}));
    let running = TaskState::running("l".to_owned());
    assert_eq!(relay.ensure(None, request).await, Ok(running.clone()));
    assert_eq!(relay.get(None, &task()).await, Ok(running));
    answers(200, json!({"state": "tombstoned"}));
    assert_eq!(relay.cancel(None, &task(), Duration::from_secs(3)).await, Ok(TaskState::Tombstoned));
    answers(200, json!("done"));
    assert_eq!(relay.acknowledge(None, &task()).await, Ok(()));
    assert_eq!(relay.release(None, "life").await, Ok(()));
    assert_eq!(relay.delete("default", &task()).await, Ok(()));
    answers(200, json!({"about": {"version": "1", "upMs": 2, "tasks": 3}}));
    let about = RelayInfo { version: "1".to_owned(), up_ms: 2, tasks: 3 };
    assert_eq!(relay.about("default").await, Ok((about, "uid".to_owned())));
    answers(200, json!({"listing": {"nextToken": "2"}}));
    let listing = ClusterListing { next_token: Some("2".to_owned()), ..ClusterListing::default() };
    assert_eq!(relay.list("default", Some("1".to_owned())).await, Ok(listing));
    let batches = std::mem::take(&mut *seen.batches.lock().unwrap());
    assert!(batches.iter().all(|batch| batch.v == 1 && batch.cluster == "uid"));
    let verbs: Vec<Verb> = batches.into_iter().flat_map(|batch| batch.requests).collect();
    assert!(matches!(&verbs[0], Verb::Ensure(sent) if sent.body == objects && sent.task == task()));
    let rest = [
        Verb::Get(task()),
        Verb::Cancel { task: task(), grace_ms: 3_000 },
        Verb::Acknowledge(task()),
        Verb::Release { instance: "life".to_owned() },
        Verb::Delete(task()),
        Verb::About,
        Verb::List { after: Some("1".to_owned()) },
    ];
    assert_eq!(verbs[1..], rest);
}

#[tokio::test]
async fn what_is_final_and_what_is_asked_again() {
    let seen = Arc::new(RecordingServer::default());
    let url = serve(Arc::clone(&seen)).await;
    let right = relay(&url, SECRET, "uid");
    let answers = |list: Value| json!({"v": 1, "cluster": "uid", "responses": list}).to_string();
    let of_other = json!({"v": 1, "cluster": "copy", "responses": ["done"]}).to_string();
    for (status, text, kind, expected) in [
        (200, answers(json!([{"refused": "the kind Node is not allowed"}])), REFUSED, "the kind Node is not allowed"),
        (200, answers(json!([{"unavailable": "etcd is down"}])), BUSY, "etcd is down"),
        (200, answers(json!(["tooLarge"])), BUSY, "its answer is too large"),
        (200, answers(json!([])), UNREACHABLE, "0 answers to one request"),
        (200, answers(json!(["done"])), UNREACHABLE, "no answer to what was asked"),
        (200, "<html>".to_owned(), UNREACHABLE, "cannot be read"),
        (200, of_other, REFUSED, "another cluster (copy) than uid, which is pinned"),
        (409, String::new(), REFUSED, "another cluster than uid, which is pinned"),
        (413, "too large".to_owned(), REFUSED, "413: too large"),
        (429, "no room".to_owned(), BUSY, "429: no room"),
        (503, "no backend".to_owned(), UNREACHABLE, "503: no backend"),
        (507, "too large".to_owned(), BUSY, "507: too large"),
    ] {
        *seen.answer.lock().unwrap() = (status, text);
        let error = right.ensure(None, request().0).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{status} {error}");
        assert_eq!(kind_of(&error), kind, "{status} {error}");
        // What may run is not settled by that.
        let error = right.cancel(None, &task(), Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{status} {error}");
        assert_eq!(kind_of(&error), if kind == REFUSED { BUSY } else { kind }, "{status} {error}");
    }
    // An answer outweighs what gave none, and a refusal is one to whoever asks for a start.
    let noted = || right.take_observations().pop();
    assert!(matches!(noted(), Some((name, RelayObservation::Responded)) if name == "default"));
    assert_eq!(
        (noted(), right.resolve_cluster(None), right.resolve_cluster(Some("eu"))),
        (None, Some("default".to_owned()), None)
    );
    *seen.answer.lock().unwrap() = (200, answers(json!([{"refused": "no"}])));
    right.cancel(None, &task(), Duration::ZERO).await.unwrap_err();
    assert_eq!(noted(), Some(("default".to_owned(), RelayObservation::NoResponse("no".to_owned()))));
    let stranger = relay(&url, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "uid");
    let gone = relay("http://127.0.0.1:1", SECRET, "uid");
    for (relay, cluster, is_final, expected) in [
        (&stranger, None, false, "401: no v1 signature"),
        (&gone, None, false, "the relay does not answer"),
        (&right, Some("eu"), true, "no relay is connected for cluster \"eu\""),
    ] {
        let error = relay.get(cluster, &task()).await.unwrap_err();
        assert_eq!(matches!(error, RelayError::Refused(_)), is_final, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
