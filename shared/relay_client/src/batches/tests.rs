use ebb_egress::{CallError, CallResult, HttpRequest, HttpResponse};
use ebb_protocol::relay::{Batch, BatchResponse, RelayResponse, TaskId, TaskState, VERSION};
use serde_json::json;

use super::*;
use crate::ClusterRegistry;
use crate::relay::tests::{FixedClock, SequentialRandom};
use ebb_store::MemoryTable;

const UID: &str = "uid";
const MAX_RESPONSE: usize = 1000;

/// A relay that returns a running task with the unit's name as its log. It refuses units with `bad` in their name.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FakeBatchRelay {
    batches: Mutex<Vec<usize>>,
    /// The relay responds with 413 to larger batches.
    max_requests: Option<usize>,
    /// The number of responses that fit into the response of a batch.
    max_responses: Option<usize>,
    /// The number of batches that get a response.
    max_batches: Option<usize>,
}

fn response(request: &RelayRequest) -> RelayResponse {
    let name = match request {
        RelayRequest::Get(task) | RelayRequest::Dequeue(task) | RelayRequest::Cancel { task, .. } => &task.unit,
        RelayRequest::Ensure(ensure) => &ensure.task.unit,
        _ => return RelayResponse::Done,
    };
    match name.contains("bad") {
        true => RelayResponse::Refused(name.clone()),
        false => RelayResponse::State(TaskState::running(name.clone())),
    }
}

impl FakeBatchRelay {
    fn respond(&self, request: &HttpRequest) -> CallResult<HttpResponse> {
        let batch: Batch = serde_json::from_slice(&request.body).unwrap();
        let number = {
            let mut batches = self.batches.lock().unwrap();
            batches.push(batch.requests.len());
            batches.len()
        };
        if self.max_batches.is_some_and(|max| number > max) {
            return Err(CallError::Timeout(request.timeout));
        }
        let status = if self.max_requests.is_some_and(|max| batch.requests.len() > max) { 413 } else { 200 };
        let fits = |index: usize| self.max_responses.is_none_or(|max| index < max);
        let responses = batch.requests.iter().enumerate();
        let responses = responses
            .map(|(index, request)| if fits(index) { response(request) } else { RelayResponse::TooLarge })
            .collect();
        let body = serde_json::to_vec(&BatchResponse { v: VERSION, cluster: UID.to_owned(), responses }).unwrap();
        if body.len() > MAX_RESPONSE && batch.requests.len() > 1 {
            return Err(CallError::TooLarge(MAX_RESPONSE));
        }
        Ok(HttpResponse::new(status, body))
    }
}

struct BatchFixture {
    relay: Arc<FakeBatchRelay>,
    sender: Arc<BatchSender>,
    batches: OpenBatches,
}

impl BatchFixture {
    fn new(relay: FakeBatchRelay) -> Self {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let cluster = json!({"url": "http://r", "secret": secret, "uid": UID, "entrypointImage": "r"});
        let clusters = json!({"default": cluster.clone(), "eu": cluster}).to_string();
        let relay = Arc::new(relay);
        let receiver = Arc::clone(&relay);
        let sender = BatchSender {
            clusters: Arc::new(ClusterRegistry::parse(&clusters).unwrap()),
            queue: Arc::new(MemoryTable::store()),
            clock: Arc::new(FixedClock),
            random: Arc::new(SequentialRandom::default()),
            call: Arc::new(move |request: HttpRequest| receiver.respond(&request)),
        };
        Self { relay, sender: Arc::new(sender), batches: OpenBatches::default() }
    }

    async fn request(&self, cluster: Option<&str>, request: RelayRequest) -> RelayReply {
        self.batches.request(&self.sender, self.sender.clusters.named(cluster).unwrap(), request).await
    }

    /// Sends all requests at the same time. Returns the replies, and the sorted sizes of the batches.
    async fn send_all(&self, requests: impl IntoIterator<Item = RelayRequest>) -> (Vec<RelayReply>, Vec<usize>) {
        let replies = futures::future::join_all(requests.into_iter().map(|request| self.request(None, request))).await;
        let mut batches = std::mem::take(&mut *self.relay.batches.lock().unwrap());
        batches.sort_unstable();
        (replies, batches)
    }
}

fn name(unit: impl std::fmt::Display) -> TaskId {
    TaskId { unit: format!("u{unit}"), attempt: 1 }
}

fn running(unit: impl std::fmt::Display) -> RelayReply {
    Ok((RelayResponse::State(TaskState::running(format!("u{unit}"))), UID.to_owned()))
}

fn start(unit: usize, attempt: u32, bytes: usize) -> RelayRequest {
    let task = json!({
        "v": VERSION, "task": TaskId { attempt, ..name(unit) }, "validForMs": 1, "timeoutMs": 2,
        "callback": {"url": "u", "token": "t"}, "body": {"instance": "x".repeat(bytes), "until": {"ready": []}},
    });
    serde_json::from_value(json!({"ensure": task})).unwrap()
}

#[tokio::test]
async fn simultaneous_requests_share_a_batch() {
    let fixture = BatchFixture::new(FakeBatchRelay::default());
    let (replies, batches) = fixture.send_all((0..20).map(|unit| RelayRequest::Dequeue(name(unit)))).await;
    assert_eq!(replies, (0..20).map(running).collect::<Vec<_>>());
    assert_eq!(batches, [20]);
    // Consecutive requests have separate batches.
    for unit in 0..2 {
        assert_eq!(fixture.send_all([RelayRequest::Get(name(unit))]).await, (vec![running(unit)], vec![1]));
    }
    // A batch has a maximum number of requests and of bytes. All its requests have the same class.
    let (replies, batches) =
        fixture.send_all((0..BATCH + 5).map(|unit| RelayRequest::Release { instance: unit.to_string() })).await;
    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(batches, [5, BATCH]);
    let (replies, batches) = fixture.send_all((0..5).map(|unit| start(unit, 1, MAX_BYTES / 3))).await;
    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(batches, [1, 2, 2]);
    let cancel = RelayRequest::Cancel { task: name(2), grace_ms: 1 };
    let (_, batches) = fixture.send_all([start(0, 1, 1), start(1, 2, 1), cancel, start(3, 1, 1)]).await;
    assert_eq!(batches, [1, 1, 2]);
    let other = fixture.request(Some("eu"), RelayRequest::Dequeue(name(7)));
    let (first, other) = tokio::join!(fixture.request(None, RelayRequest::Dequeue(name(8))), other);
    assert_eq!((first, other), (running(8), running(7)));
    assert_eq!(*fixture.relay.batches.lock().unwrap(), [1, 1]);
}

/// A batch that is too large is sent in halves. Of the requests whose responses do not fit, six are sent one by one, because
/// each response may have 5 MiB. The relay has responded to the batch, so a part without a response is not an outage.
///
/// A row has the limits of the relay, the units, the replies to them, and the sorted sizes of the batches.
#[tokio::test]
async fn each_request_gets_its_own_reply() {
    let rows: Vec<(FakeBatchRelay, String, Vec<String>, Vec<usize>)> =
        serde_json::from_str(include_str!("../../tests/limited_batches.json")).unwrap();
    for (relay, units, expected, sizes) in rows {
        // The client reads no response to two of these units.
        let units = units.replace("LONG", &"x".repeat(MAX_RESPONSE / 2));
        let units: Vec<&str> = units.split(' ').collect();
        let requests = units.iter().map(|unit| RelayRequest::Get(name(unit)));
        let (replies, batches) = BatchFixture::new(relay).send_all(requests).await;
        let shown = |(reply, unit): (&RelayReply, &&str)| match reply {
            Err(RelayError::Refused(why)) => why.split(':').next().unwrap().to_owned(),
            Err(RelayError::Busy(_)) => "busy".to_owned(),
            Err(RelayError::Unreachable(_)) => "unreachable".to_owned(),
            Ok(_) if *reply == running(unit) => "running".to_owned(),
            Ok(other) => format!("{other:?}"),
        };
        let shown: Vec<String> = replies.iter().zip(&units).map(shown).collect();
        assert_eq!((shown, batches), (expected, sizes), "{units:?}");
    }
}

#[tokio::test]
async fn a_dropped_caller_does_not_stop_the_others() {
    let fixture = BatchFixture::new(FakeBatchRelay::default());
    let mut first = Box::pin(fixture.request(None, RelayRequest::Dequeue(name(1))));
    let mut second = Box::pin(fixture.request(None, RelayRequest::Dequeue(name(2))));
    assert!(futures::poll!(first.as_mut()).is_pending() && futures::poll!(second.as_mut()).is_pending());
    drop(first);
    assert_eq!(second.await, running(2));
    assert_eq!(std::mem::take(&mut *fixture.relay.batches.lock().unwrap()), [2]);
    let mut only = Box::pin(fixture.request(None, RelayRequest::Dequeue(name(3))));
    assert!(futures::poll!(only.as_mut()).is_pending());
    drop(only);
    assert_eq!(fixture.send_all([RelayRequest::Dequeue(name(4))]).await, (vec![running(4)], vec![1]));
}
