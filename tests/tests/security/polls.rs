//! `POST /v1/clusters/NAME/poll`: invalid signatures, and invalid replies of relays.

use ebb_flow::ports::RelayError;
use ebb_protocol::listing::{RelayInfo, ReportedPolicy};
use ebb_protocol::pull::{
    MAX_CONCURRENT_BATCHES, POLL_BODY, PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch,
};
use ebb_protocol::relay::{
    Batch, BatchResponse, CallbackEndpoint, EnsureTask, ObjectTask, RelayRequest, RelayResponse, TaskBody, TaskId,
};
use ebb_protocol::sign::WebhookKeys;
use ebb_store::QueuedBatch;
use ebb_tests::platform::SignedRequest;

use super::secrets::contains;
use crate::harness::*;

const INSIDE: u8 = 1;
const OTHER: u8 = 2;
pub(super) const PINNED: &str = "uid-of-inside";

pub(super) fn secret(of: u8) -> WebhookSecret {
    WebhookSecret::from_bytes(&[of; 32]).unwrap()
}

/// Starts a stack with two pull clusters, and a push cluster that does not respond.
async fn harness() -> Harness {
    let reveal = |of: u8| secret(of).reveal().to_string();
    Harness::with_clusters(&json!({
        "inside": {"secret": reveal(INSIDE), "uid": PINNED, "entrypointImage": "r"},
        "other": {"secret": reveal(OTHER), "uid": PINNED, "entrypointImage": "r"},
        "push": {"url": "http://127.0.0.1:1", "secret": reveal(INSIDE), "uid": PINNED, "entrypointImage": "r"},
    }))
    .await
}

pub(super) fn poll(wait_ms: Option<u64>, held: &[&str], replies: Vec<QueuedReply>) -> PollRequest {
    let held = held.iter().map(|&id| id.to_owned()).collect();
    PollRequest { v: 1, cluster: PINNED.to_owned(), wait_ms, in_progress: held, replies }
}

fn empty() -> PollRequest {
    poll(Some(0), &[], vec![])
}

/// Returns the reply to a question about the relay.
pub(super) fn about(id: &str, tasks: u64, policy: Option<ReportedPolicy>) -> QueuedReply {
    let about = RelayInfo { version: "1".to_owned(), up_ms: 2, tasks, policy };
    let response = BatchResponse { v: 1, cluster: PINNED.to_owned(), responses: vec![RelayResponse::About(about)] };
    QueuedReply { id: id.to_owned(), outcome: ReplyOutcome::Response(response) }
}

pub(super) fn signed(of: u8, at: Timestamp, body: Vec<u8>) -> SignedRequest {
    SignedRequest::new(&secret(of), "poll-1", at, body)
}

pub(super) async fn send(harness: &Harness, cluster: &str, poll: &SignedRequest) -> ApiReply {
    let url = harness.url(&format!("/v1/clusters/{cluster}/poll"));
    ApiReply::to(poll.post(&harness.http, &url)).await
}

/// Polls as the relay of the cluster, and returns the batches of the response.
async fn poll_batches(harness: &Harness, cluster: &str, of: u8, poll: &PollRequest) -> Vec<SealedBatch> {
    let response = send(harness, cluster, &signed(of, now(), serde_json::to_vec(poll).unwrap())).await;
    response.is(200).json::<PollResponse>().batches
}

/// Returns the next batch of the cluster `inside`.
async fn next_batch(harness: &Harness) -> SealedBatch {
    until("a batch", async || poll_batches(harness, "inside", INSIDE, &empty()).await.pop()).await
}

fn opened(batch: &SealedBatch) -> Batch {
    let batch = batch.open(&WebhookKeys::from(secret(INSIDE)), "inside").unwrap();
    serde_json::from_slice(&batch).unwrap()
}

pub(crate) async fn invalid_polls() {
    let harness = harness().await;
    let relay = harness.stack().env().relay.clone();
    let pending = tokio::spawn(async move { relay.about("inside").await });
    let queued = next_batch(&harness).await;
    let body = |poll: &PollRequest| serde_json::to_vec(poll).unwrap();
    let right = |poll: &PollRequest| signed(INSIDE, now(), body(poll));
    let at = |seconds: i64| signed(INSIDE, Timestamp(now().0.saturating_add_signed(seconds * 1000)), body(&empty()));
    let unsigned = SignedRequest { headers: vec![], ..right(&empty()) };
    let altered = SignedRequest { body: [body(&empty()), b" ".to_vec()].concat(), ..right(&empty()) };
    let many = vec!["a".to_owned(); MAX_CONCURRENT_BATCHES + 1];
    for (cluster, request, status, code) in [
        ("inside", unsigned, 401, "invalid-signature"),
        ("inside", altered, 401, "invalid-signature"),
        ("inside", signed(9, now(), body(&empty())), 401, "invalid-signature"),
        ("inside", signed(OTHER, now(), body(&empty())), 401, "invalid-signature"),
        ("other", right(&empty()), 401, "invalid-signature"),
        ("unknown", right(&empty()), 401, "invalid-signature"),
        // Replayed later, and of the future.
        ("inside", at(-302), 401, "invalid-signature"),
        ("inside", at(302), 401, "invalid-signature"),
        ("push", right(&empty()), 409, "wrong-transport"),
        ("inside", right(&PollRequest { cluster: "copy".to_owned(), ..empty() }), 409, "wrong-cluster"),
        ("inside", right(&PollRequest { v: 2, ..empty() }), 400, "invalid-poll"),
        ("inside", right(&PollRequest { in_progress: many, ..empty() }), 400, "invalid-poll"),
        ("inside", signed(INSIDE, now(), b"{".to_vec()), 400, "invalid-poll"),
        ("inside", signed(INSIDE, now(), vec![b' '; POLL_BODY + 1]), 413, "too-large"),
    ] {
        let problem = send(&harness, cluster, &request).await.is_problem(status, code);
        assert!(!problem.detail.contains(&*queued.id), "{problem:?}");
    }
    // The batch is still queued for its relay.
    assert_eq!(poll_batches(&harness, "other", OTHER, &empty()).await, []);
    assert_eq!((opened(&queued).requests, opened(&queued).cluster.as_str()), (vec![RelayRequest::About], PINNED));
    poll_batches(&harness, "inside", INSIDE, &poll(None, &[], vec![about(&queued.id, 7, None)])).await;
    assert_eq!(pending.await.unwrap().unwrap().0.tasks, 7);
}

/// The first reply to a batch of the own cluster counts. The table has it encrypted.
pub(crate) async fn replies_to_batches() {
    let harness = harness().await;
    let relay = harness.stack().env().relay.clone();
    let pending = tokio::spawn(async move { relay.about("inside").await });
    let queued = next_batch(&harness).await;
    let store = harness.stack().store();
    // Replies to the batch of another cluster, and to unknown batches.
    let foreign = poll(None, &[], vec![about(&queued.id, 1, None)]);
    assert_eq!(poll_batches(&harness, "other", OTHER, &foreign).await, []);
    let long = "a".repeat(5_000);
    for id in ["0-0", "", "../../plans/x", "a#b", "\u{0}", &long] {
        assert_eq!(
            poll_batches(&harness, "inside", INSIDE, &poll(None, &[], vec![about(id, 1, None)])).await,
            [],
            "{id:?}"
        );
    }
    assert_eq!(store.read_reply("inside", &queued.id).await.unwrap(), None);
    // A batch without a reply is returned again, unless the poll lists it as in progress. A repetition of the same poll
    // returns the same batch.
    let again = signed(INSIDE, now(), serde_json::to_vec(&empty()).unwrap());
    for _ in 0..2 {
        let polled: PollResponse = send(&harness, "inside", &again).await.is(200).json();
        let [batch] = &polled.batches[..] else { panic!("{polled:?}") };
        assert_eq!((&batch.id, &batch.ciphertext), (&queued.id, &queued.ciphertext));
        assert_eq!(batch.age_ms + batch.expires_in_ms, 5_000, "{polled:?}");
    }
    assert_eq!(poll_batches(&harness, "inside", INSIDE, &poll(Some(0), &[&queued.id], vec![])).await, []);
    for tasks in [1, 2] {
        poll_batches(&harness, "inside", INSIDE, &poll(None, &[], vec![about(&queued.id, tasks, None)])).await;
    }
    assert_eq!(pending.await.unwrap().unwrap().0.tasks, 1);
    // The answer of a plugin can have secrets.
    let (id, at) = ("0123456789ab-0123456789abcdef", now());
    let expires = Timestamp(at.0 + 60_000);
    let batch = QueuedBatch { id: id.to_owned(), posted: at, expires, body: vec![1], once: false };
    store.enqueue_batch("inside", &batch).await.unwrap();
    let outcome = ReplyOutcome::Status { status: 500, message: "canary-4711-reply".to_owned() };
    let replies = vec![QueuedReply { id: id.to_owned(), outcome }];
    poll_batches(&harness, "inside", INSIDE, &poll(None, &[], replies)).await;
    let stored = store.read_reply("inside", id).await.unwrap().unwrap();
    assert!(!contains(&stored, b"canary"), "{}", String::from_utf8_lossy(&stored));
}

pub(crate) async fn invalid_replies() {
    let harness = harness().await;
    for (outcome, expected) in [
        (json!({"status": {"status": 409, "message": ""}}), "the relay that polls as inside runs in another cluster"),
        (json!({"status": {"status": 401, "message": "no\u{7}"}}), "it responded 401: no\u{fffd}"),
        (json!({"response": {"v": 1, "cluster": "copy", "responses": ["done"]}}), "another cluster (copy)"),
        (json!({"response": {"v": 1, "cluster": PINNED, "responses": []}}), "0 responses to 1 request"),
        (json!({"response": {"v": 1, "cluster": PINNED, "responses": ["done"]}}), "does not match the request"),
    ] {
        let relay = harness.stack().env().relay.clone();
        let pending = tokio::spawn(async move { relay.about("inside").await });
        let id = next_batch(&harness).await.id;
        let reply = QueuedReply { id, outcome: serde_json::from_value(outcome).unwrap() };
        poll_batches(&harness, "inside", INSIDE, &poll(None, &[], vec![reply])).await;
        let error = pending.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A batch waits some seconds for its relay. The table has it encrypted.
pub(crate) async fn queued_batches_are_encrypted() {
    let harness = harness().await;
    let relay = harness.stack().env().relay.clone();
    let callback = CallbackEndpoint {
        url: "http://127.0.0.1/".to_owned(),
        token: "canary-token".to_owned(),
        installation: String::new(),
    };
    let request = |object: Value| EnsureTask {
        v: 1,
        task: TaskId { unit: "l-1-pre-start-0".to_owned(), attempt: 1 },
        // Shorter than the time in which the batch can be fetched.
        valid_for_ms: 2_000,
        timeout_ms: 60_000,
        names: ebb_protocol::relay::TaskNames::default(),
        callback: callback.clone(),
        body: TaskBody::Objects(ObjectTask { instance: "l".to_owned(), apply: vec![object], ..ObjectTask::default() }),
    };
    let large = relay.ensure(Some("inside").into(), request("x".repeat(5 << 20).into())).await.unwrap_err();
    assert!(matches!(&large, RelayError::Refused(why) if why.contains("takes 4194304 at once")), "{large}");
    let (sent, of_task) = (request(json!({})), relay.clone());
    let pending = tokio::spawn(async move { of_task.ensure(Some("inside").into(), sent).await });
    let queued = next_batch(&harness).await;
    let Some(RelayRequest::Ensure(sent)) = opened(&queued).requests.pop() else { panic!("{queued:?}") };
    assert_eq!((&*sent.callback.token, sent.valid_for_ms), ("canary-token", 2_000));
    let store = harness.stack().store();
    let kept = store.pending_batches("inside", now(), &[], 9, usize::MAX).await.unwrap();
    assert!(kept.iter().all(|batch| !contains(&batch.body, b"canary")));
    pending.abort();
    let error = relay.about("inside").await.unwrap_err();
    assert!(matches!(&error, RelayError::Unreachable(why) if why.contains("within 5 s")), "{error}");
}
