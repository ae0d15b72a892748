//! Queued batches and their replies as the table of a stack has them. The YAML table has the polls.

use ebb_flow::ports::RelayError;
use ebb_protocol::pull::{PollRequest, PollResponse, QueuedReply, ReplyOutcome, SealedBatch};
use ebb_protocol::relay::{Batch, CallbackEndpoint, EnsureTask, ObjectTask, RelayRequest, TaskBody, TaskId};
use ebb_protocol::sign::WebhookKeys;
use ebb_store::QueuedBatch;

use super::secrets::contains;
use crate::harness::*;

pub(super) const PINNED: &str = "uid-of-inside";

pub(super) fn secret(of: u8) -> WebhookSecret {
    WebhookSecret::from_bytes(&[of; 32]).unwrap()
}

/// Polls as the relay of a cluster with a secret.
pub(super) async fn poll(
    harness: &Harness,
    cluster: &str,
    of: u8,
    in_progress: &[&str],
    replies: Vec<QueuedReply>,
) -> ApiReply {
    let in_progress = in_progress.iter().map(|&id| id.to_owned()).collect();
    let poll = PollRequest { v: 1, cluster: PINNED.to_owned(), wait_ms: Some(0), in_progress, replies };
    let signed = SignedRequest::new(&secret(of), "poll-1", now(), serde_json::to_vec(&poll).unwrap());
    ApiReply::to(signed.post(&harness.http, &harness.url(&format!("/v1/clusters/{cluster}/poll")))).await
}

/// Returns the next batch of the cluster `inside`, except those in progress.
async fn next_batch(harness: &Harness, in_progress: &[&str]) -> SealedBatch {
    until("a batch", async || {
        let reply = poll(harness, "inside", 1, in_progress, vec![]).await;
        reply.is(200).json::<PollResponse>().batches.pop()
    })
    .await
}

/// A batch waits some seconds for its relay. The table has it and its reply encrypted.
pub(crate) async fn queued_batches_are_encrypted() {
    let inside = json!({"secret": *secret(1).reveal(), "uid": PINNED, "entrypointImage": "r"});
    let harness = Harness::with_clusters(&json!({ "inside": inside })).await;
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
    let queued = next_batch(&harness, &[]).await;
    let opened = queued.open(&WebhookKeys::from(secret(1)), "inside").unwrap();
    let Some(RelayRequest::Ensure(sent)) = serde_json::from_slice::<Batch>(&opened).unwrap().requests.pop() else {
        panic!("{queued:?}")
    };
    assert_eq!((&*sent.callback.token, sent.valid_for_ms), ("canary-token", 2_000));
    let store = harness.stack().store();
    let kept = store.pending_batches("inside", now(), &[], 9, usize::MAX).await.unwrap();
    assert!(kept.iter().all(|batch| !contains(&batch.body, b"canary")));
    pending.abort();
    let pending = tokio::spawn(async move { relay.about("inside").await });
    let asked = next_batch(&harness, &[&queued.id]).await;
    assert_eq!(asked.age_ms + asked.expires_in_ms, 8_000, "{asked:?}");
    let error = pending.await.unwrap().unwrap_err();
    assert!(matches!(&error, RelayError::Unreachable(why) if why.contains("within 8 s")), "{error}");
    // The answer of a plugin can have secrets.
    let (id, at) = ("0123456789ab-0123456789abcdef".to_owned(), now());
    let expires = Timestamp(at.0 + 60_000);
    let batch = QueuedBatch { id: id.clone(), posted: at, expires, body: vec![1], once: false };
    store.enqueue_batch("inside", &batch).await.unwrap();
    let outcome = ReplyOutcome::Status { status: 500, message: "canary-4711-reply".to_owned() };
    poll(&harness, "inside", 1, &[], vec![QueuedReply { id: id.clone(), outcome }]).await.is(200);
    let stored = store.read_reply("inside", &id).await.unwrap().unwrap();
    assert!(!contains(&stored, b"canary"), "{}", String::from_utf8_lossy(&stored));
}
