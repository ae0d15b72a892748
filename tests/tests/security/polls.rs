//! `POST /v1/clusters/NAME/poll`: invalid signatures, and invalid replies of relays.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_flow::ports::RelayError;
use ebb_protocol::listing::RelayInfo;
use ebb_protocol::pull::{
    MAX_CONCURRENT_BATCHES, POLL_BODY, PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch,
};
use ebb_protocol::relay::{
    Batch, BatchResponse, CallbackEndpoint, EnsureTask, ObjectTask, RelayRequest, RelayResponse, TaskBody, TaskId,
};
use ebb_protocol::seal;
use ebb_protocol::sign::WebhookKeys;
use ebb_store::QueuedBatch;
use ebb_tests::platform::SignedRequest;

use crate::harness::*;

const INSIDE: [u8; 32] = [1; 32];
const OTHER: [u8; 32] = [2; 32];
const PINNED: &str = "uid-of-inside";

fn secret(of: [u8; 32]) -> WebhookSecret {
    WebhookSecret::from_bytes(&of).unwrap()
}

/// Starts a stack with two pull clusters, and a push cluster that does not respond.
async fn harness() -> Harness {
    let reveal = |of: [u8; 32]| secret(of).reveal().to_string();
    Harness::with_clusters(&json!({
        "inside": {"secret": reveal(INSIDE), "uid": PINNED, "entrypointImage": "r"},
        "other": {"secret": reveal(OTHER), "uid": PINNED, "entrypointImage": "r"},
        "push": {"url": "http://127.0.0.1:1", "secret": reveal(INSIDE), "uid": PINNED, "entrypointImage": "r"},
    }))
    .await
}

fn poll(wait_ms: Option<u64>, held: &[&str], replies: Vec<QueuedReply>) -> PollRequest {
    let held = held.iter().map(|&id| id.to_owned()).collect();
    PollRequest { v: 1, cluster: PINNED.to_owned(), wait_ms, in_progress: held, replies }
}

fn empty() -> PollRequest {
    poll(Some(0), &[], vec![])
}

fn done(id: &str, tasks: u64) -> QueuedReply {
    let about = RelayInfo { version: "1".to_owned(), up_ms: 2, tasks, policy: None };
    let response = BatchResponse { v: 1, cluster: PINNED.to_owned(), responses: vec![RelayResponse::About(about)] };
    QueuedReply { id: id.to_owned(), outcome: ReplyOutcome::Response(response) }
}

fn signed(of: [u8; 32], at: Timestamp, body: Vec<u8>) -> SignedRequest {
    SignedRequest::new(&secret(of), "poll-1", at, body)
}

async fn send(harness: &Harness, cluster: &str, poll: &SignedRequest) -> ApiReply {
    let url = harness.url(&format!("/v1/clusters/{cluster}/poll"));
    ApiReply::of(poll.post(&harness.http, &url).send().await.unwrap()).await
}

/// Polls as the relay of the cluster, and returns the batches of the response.
async fn poll_batches(harness: &Harness, cluster: &str, of: [u8; 32], poll: &PollRequest) -> Vec<SealedBatch> {
    let response = send(harness, cluster, &signed(of, now(), serde_json::to_vec(poll).unwrap())).await;
    response.is(200).json::<PollResponse>().batches
}

/// Returns the next batch of the cluster `inside`.
async fn next_batch(harness: &Harness) -> SealedBatch {
    until("a batch", async || poll_batches(harness, "inside", INSIDE, &empty()).await.pop()).await
}

fn opened(batch: &SealedBatch) -> Option<Batch> {
    let sealed = STANDARD.decode(&batch.ciphertext).unwrap();
    let batch =
        seal::open(&WebhookKeys::from(secret(INSIDE)), &SealedBatch::associated_data("inside", &batch.id), &sealed)?;
    serde_json::from_slice(&batch).ok()
}

pub(crate) async fn invalid_polls() {
    let harness = harness().await;
    let relay = harness.stack().env().relay.clone();
    let pending = tokio::spawn(async move { relay.about("inside").await });
    let queued = next_batch(&harness).await;
    let body = serde_json::to_vec(&empty()).unwrap();
    let at = |seconds: i64| Timestamp(now().0.saturating_add_signed(seconds * 1000));
    let altered = |change: &dyn Fn(&mut SignedRequest)| {
        let mut request = signed(INSIDE, now(), body.clone());
        change(&mut request);
        request
    };
    for (what, cluster, request) in [
        ("unsigned", "inside", altered(&|it| it.headers.clear())),
        ("another secret", "inside", signed([9; 32], now(), body.clone())),
        ("another cluster's secret", "inside", signed(OTHER, now(), body.clone())),
        ("as another cluster", "other", signed(INSIDE, now(), body.clone())),
        ("as no cluster", "unknown", signed(INSIDE, now(), body.clone())),
        ("another body", "inside", altered(&|it| it.body.push(b' '))),
        ("replayed later", "inside", signed(INSIDE, at(-302), body.clone())),
        ("in the future", "inside", signed(INSIDE, at(302), body.clone())),
    ] {
        let problem = send(&harness, cluster, &request).await.is_problem(401, "invalid-signature");
        assert!(!problem.detail.contains(&*queued.id), "{what}: {problem:?}");
    }
    let right = |poll: &PollRequest| signed(INSIDE, now(), serde_json::to_vec(poll).unwrap());
    let many = vec!["a".to_owned(); MAX_CONCURRENT_BATCHES + 1];
    for (cluster, request, status, code) in [
        ("push", right(&empty()), 409, "wrong-transport"),
        ("inside", right(&PollRequest { cluster: "copy".to_owned(), ..empty() }), 409, "wrong-cluster"),
        ("inside", right(&PollRequest { v: 2, ..empty() }), 400, "invalid-poll"),
        ("inside", right(&PollRequest { in_progress: many, ..empty() }), 400, "invalid-poll"),
        ("inside", signed(INSIDE, now(), b"{".to_vec()), 400, "invalid-poll"),
        ("inside", signed(INSIDE, now(), vec![b' '; POLL_BODY + 1]), 413, "too-large"),
    ] {
        send(&harness, cluster, &request).await.is_problem(status, code);
    }
    // The batch is still queued for its relay.
    assert_eq!(poll_batches(&harness, "other", OTHER, &empty()).await, []);
    assert_eq!(opened(&queued).unwrap().requests, [RelayRequest::About]);
    assert_eq!(opened(&queued).unwrap().cluster, PINNED);
    poll_batches(&harness, "inside", INSIDE, &poll(None, &[], vec![done(&queued.id, 7)])).await;
    assert_eq!(pending.await.unwrap().unwrap().0.tasks, 7);
}

pub(crate) async fn replies_to_batches() {
    let harness = harness().await;
    let relay = harness.stack().env().relay.clone();
    let pending = tokio::spawn(async move { relay.about("inside").await });
    let queued = next_batch(&harness).await;
    let store = harness.stack().store();
    // Replies to the batch of another cluster, and to unknown batches.
    let foreign = poll(None, &[], vec![done(&queued.id, 1)]);
    assert_eq!(poll_batches(&harness, "other", OTHER, &foreign).await, []);
    let long = "a".repeat(5_000);
    for id in ["0-0", "", "../../plans/x", "a#b", "\u{0}", "A", &long] {
        assert_eq!(poll_batches(&harness, "inside", INSIDE, &poll(None, &[], vec![done(id, 1)])).await, [], "{id:?}");
    }
    assert_eq!(store.read_reply("inside", &queued.id).await.unwrap(), None);
    // A batch without a reply is returned again, unless the poll lists it as in progress. A repetition of the same poll
    // returns the same batch.
    let again = signed(INSIDE, now(), serde_json::to_vec(&empty()).unwrap());
    for _ in 0..2 {
        let polled: PollResponse = send(&harness, "inside", &again).await.is(200).json();
        assert_eq!(polled.batches.len(), 1, "{polled:?}");
        assert_eq!((&polled.batches[0].id, &polled.batches[0].ciphertext), (&queued.id, &queued.ciphertext));
        assert!(polled.batches[0].age_ms + polled.batches[0].expires_in_ms == 5_000, "{polled:?}");
    }
    assert_eq!(poll_batches(&harness, "inside", INSIDE, &poll(Some(0), &[&queued.id], vec![])).await, []);
    // The first reply counts.
    let first = signed(INSIDE, now(), serde_json::to_vec(&poll(None, &[], vec![done(&queued.id, 1)])).unwrap());
    send(&harness, "inside", &first).await.is(200);
    poll_batches(&harness, "inside", INSIDE, &poll(None, &[], vec![done(&queued.id, 2)])).await;
    assert_eq!(pending.await.unwrap().unwrap().0.tasks, 1);
    send(&harness, "inside", &first).await.is(200);
    assert_eq!(store.read_reply("inside", &queued.id).await.unwrap(), None);
}

/// The answer of a plugin can have secrets, so a reader of the table learns nothing from a stored response.
pub(crate) async fn stored_replies_are_encrypted() {
    let harness = harness().await;
    let store = harness.stack().store();
    let (id, at) = ("0123456789ab-0123456789abcdef", now());
    let expires = Timestamp(at.0 + 60_000);
    let batch = QueuedBatch { id: id.to_owned(), posted: at, expires, body: vec![1], once: false };
    store.enqueue_batch("inside", &batch).await.unwrap();
    let outcome = ReplyOutcome::Status { status: 500, message: "canary-4711-reply".to_owned() };
    let replies = vec![QueuedReply { id: id.to_owned(), outcome }];
    poll_batches(&harness, "inside", INSIDE, &poll(None, &[], replies)).await;
    let stored = store.read_reply("inside", id).await.unwrap().unwrap();
    assert!(!super::secrets::contains(&stored, b"canary"), "{}", String::from_utf8_lossy(&stored));
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

/// A batch that no relay fetches expires. The table has it encrypted.
pub(crate) async fn unfetched_batches_expire() {
    let harness = harness().await;
    let relay = harness.stack().env().relay.clone();
    let (begun, queued_since) = (Instant::now(), now());
    let work = ObjectTask { instance: "l".to_owned(), ..ObjectTask::default() };
    let request = EnsureTask {
        v: 1,
        task: TaskId { unit: "l-1-pre-start-0".to_owned(), attempt: 1 },
        // Shorter than the time in which the batch can be fetched.
        valid_for_ms: 2_000,
        timeout_ms: 60_000,
        names: ebb_protocol::relay::TaskNames::default(),
        callback: CallbackEndpoint {
            url: "http://127.0.0.1/".to_owned(),
            token: "canary-token".to_owned(),
            installation: String::new(),
            takes_objects: false,
        },
        body: TaskBody::Objects(work),
    };
    let pending = {
        let (relay, request) = (relay.clone(), request.clone());
        tokio::spawn(async move { relay.ensure(Some("inside").into(), request).await })
    };
    let queued = next_batch(&harness).await;
    let Some(RelayRequest::Ensure(sent)) = opened(&queued).unwrap().requests.pop() else { panic!("{queued:?}") };
    assert_eq!((&*sent.callback.token, sent.valid_for_ms), ("canary-token", 2_000));
    let store = harness.stack().store();
    let kept = store.pending_batches("inside", now(), &[], 9, usize::MAX).await.unwrap();
    assert!(kept.iter().all(|batch| !super::secrets::contains(&batch.body, b"canary")));
    until("the batch to expire", async || {
        poll_batches(&harness, "inside", INSIDE, &empty()).await.is_empty().then_some(())
    })
    .await;
    assert!(begun.elapsed() >= Duration::from_secs(2));
    let error = relay.about("inside").await.unwrap_err();
    assert!(matches!(&error, RelayError::Unreachable(why) if why.contains("within 5 s")), "{error}");
    pending.abort();
    // The second batch was removed after its timeout. The first one remains, because its invocation was aborted, and
    // has expired.
    let before = Timestamp(queued_since.0 + 1_000);
    let left = store.pending_batches("inside", before, &[], 9, usize::MAX).await.unwrap();
    assert_eq!(left.iter().map(|batch| &batch.id).collect::<Vec<_>>(), [&queued.id]);
    assert_eq!(store.pending_batches("inside", now(), &[], 9, usize::MAX).await.unwrap(), []);
    let large = EnsureTask {
        body: TaskBody::Objects(ObjectTask { apply: vec![json!("x".repeat(5 << 20))], ..ObjectTask::default() }),
        ..request
    };
    let refused = relay.ensure(Some("inside").into(), large).await.unwrap_err();
    assert!(matches!(&refused, RelayError::Refused(why) if why.contains("takes 4194304 at once")), "{refused}");
}
