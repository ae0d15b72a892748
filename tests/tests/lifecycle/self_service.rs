//! Targets that a person or program creates, updates and deletes with an API token.

use ebb_protocol::api::TargetReceipt;
use ebb_protocol::lifecycle::LifecycleResult;

use crate::harness::*;
use crate::request_table;

const TABLE: &str = "lifecycle/self_service.yaml";

/// Sends a request with an idempotency key.
async fn keyed(harness: &Harness, key: &str, body: &Value) -> ApiReply {
    let request = harness.http.post(harness.url("/v1/targets")).bearer_auth(harness.stack().token());
    ApiReply::to(request.header("idempotency-key", key).json(body)).await
}

async fn delete(harness: &Harness, path: &str) -> ApiReply {
    harness.request(Method::DELETE, &format!("/v1/targets/sandbox/{path}"), None).await
}

/// A document, or an idempotency key, is sent again. A deletion is repeated.
pub(crate) async fn a_repeated_request_begins_no_second_instance() {
    let harness = Harness::simple().await;
    let begun: TargetReceipt = keyed(&harness, "build-7", &simple_request("a", "")).await.is(202).json();
    assert_eq!((begun.target.as_str(), begun.generation, begun.result), ("sandbox/a", 1, LifecycleResult::Starting));
    assert_eq!(begun.url, harness.url("/v1/targets/sandbox/a"));
    let ready = harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(Some(&ready.info.uid), begun.uid.as_ref());
    let again: TargetReceipt = keyed(&harness, "build-7", &simple_request("a", "")).await.is(202).json();
    assert_eq!((&again.uid, again.generation), (&begun.uid, 1));
    let again: TargetReceipt = harness.post("/v1/targets", simple_request("a", "")).await.is(202).json();
    assert_eq!((&again.uid, again.generation, again.result), (&begun.uid, 1, LifecycleResult::Unchanged));
    for _ in 0..2 {
        let gone: TargetReceipt = delete(&harness, "a").await.is(202).json();
        assert_eq!((&gone.uid, gone.result), (&begun.uid, LifecycleResult::Stopping));
        harness.phase("a", TargetPhase::Gone).await;
    }
    delete(&harness, "none").await.is_problem(404, "not-found");
    keyed(&harness, "build-7", &simple_request("a", "")).await.is_problem(409, "stale");
    let other: TargetReceipt = keyed(&harness, "build-8", &simple_request("a", "")).await.is(202).json();
    assert_ne!(other.uid, begun.uid);
    keyed(&harness, &"k".repeat(129), &simple_request("b", "")).await.is_problem(400, "invalid-header");
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!((harness.receiver.count("POST /make"), harness.receiver.count("POST /drop")), (2, 1));
}

pub(crate) async fn concurrent_requests_begin_one_instance() {
    let harness = Harness::simple().await;
    let requests = (0..4).map(|_| harness.post("/v1/targets", simple_request("a", "")));
    let replies = futures::future::join_all(requests).await;
    let uids = BTreeSet::from_iter(replies.iter().map(|reply| reply.is(202).json::<TargetReceipt>().uid));
    let ready = harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(uids, BTreeSet::from([Some(ready.info.uid)]));
    assert_eq!((ready.waiting_uid, harness.receiver.count("POST /make")), (None, 1));
}

pub(crate) async fn a_named_instance_waits_for_the_former_one() {
    request_table::play(&Harness::simple().await, TABLE, "a_named_instance_waits_for_the_former_one", &[]).await;
}

pub(crate) async fn a_dry_run_writes_nothing() {
    request_table::play(&Harness::simple().await, TABLE, "a_dry_run_writes_nothing", &[]).await;
}

pub(crate) async fn an_update_of_another_generation_is_refused() {
    request_table::play(&Harness::simple().await, TABLE, "an_update_of_another_generation_is_refused", &[]).await;
}
