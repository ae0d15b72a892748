//! Targets that a person or program creates, updates and deletes with an API token.

use ebb_protocol::api::TargetReceipt;
use ebb_protocol::lifecycle::LifecycleResult;

use crate::harness::*;

/// Sends a request with an idempotency key.
async fn keyed(harness: &Harness, key: &str, body: &Value) -> ApiReply {
    let request = harness.http.post(harness.url("/v1/targets")).bearer_auth(harness.stack().token());
    ApiReply::of(request.header("idempotency-key", key).json(body).send().await.unwrap()).await
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
    let harness = Harness::simple().await;
    let named = |uid: &str| {
        let mut body = simple_request("a", "");
        body["uid"] = uid.into();
        body
    };
    harness.post("/v1/targets", named("1")).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    let second: TargetReceipt = harness.post("/v1/targets", named("2")).await.is(202).json();
    assert_eq!(second.result, LifecycleResult::Waiting);
    // A deletion of a stopping instance is not one of the instance that waits for its name.
    harness.receiver.always("POST /drop", 500);
    for _ in 0..2 {
        delete(&harness, "a?uid=1").await.is(202);
        let stopping = harness.target("a").await.unwrap();
        assert_eq!((stopping.info.phase, stopping.waiting_uid.as_deref()), (TargetPhase::Stopping, Some("2")));
    }
    harness.post("/v1/targets/sandbox/a/retry", json!({"uid": "2"})).await.is_problem(409, "outdated");
    harness.receiver.always("POST /drop", 200);
    harness.instance_is_ready("a", "2").await;
    harness.post("/v1/targets", named("1")).await.is_problem(409, "stale");
    for uid in ["a/b", "", " "] {
        harness.post("/v1/targets", named(uid)).await.is_problem(422, "invalid-field");
    }
    delete(&harness, "a?uid=a/b").await.is_problem(422, "invalid-field");
    assert_eq!(harness.phase("a", TargetPhase::Ready).await.info.uid, "2");
}

pub(crate) async fn a_dry_run_writes_nothing() {
    let harness = Harness::simple().await;
    let preview = async |body: Value| harness.post("/v1/targets?dryRun=true", body).await;
    let first: TargetReceipt = preview(simple_request("a", "")).await.is(200).json();
    assert_eq!((first.uid, first.result), (None, LifecycleResult::Starting));
    assert_eq!(first.plan.unwrap().hooks[0].units[0].key, "r/make");
    assert!(harness.target("a").await.is_none());
    let mut wrong = simple_request("a", "");
    wrong["document"] = wrong["document"].as_str().unwrap().replace("simple", "smiple").into();
    let problem = preview(wrong).await.is_problem(422, "invalid-document");
    assert_eq!(problem.errors[0].code, "unknown-plugin");
    harness.post("/v1/targets", simple_request("a", "")).await.is(202);
    let ready = harness.phase("a", TargetPhase::Ready).await;
    let mut other = simple_request("a", "");
    other["uid"] = "other".into();
    for (body, result) in [(simple_request("a", ""), LifecycleResult::Unchanged), (other, LifecycleResult::Waiting)] {
        assert_eq!(preview(body).await.is(200).json::<TargetReceipt>().result, result);
    }
    let after = harness.target("a").await.unwrap();
    assert_eq!((after.waiting_uid, after.info.since), (None, ready.info.since));
    preview(json!({"kind": "A", "name": "a", "document": ""})).await.is_problem(422, "invalid-field");
    harness.post("/v1/targets?dryRun=yes", simple_request("a", "")).await.is_problem(400, "invalid-query");
}

/// Without the condition, the second request would undo the change of the first one.
pub(crate) async fn an_update_of_another_generation_is_refused() {
    let harness = Harness::simple().await;
    let seen = |generation: u64, ttl: &str| {
        let mut body = simple_request("a", "");
        let document = body["document"].as_str().unwrap().replacen("resources:", &format!("ttl: {ttl}\nresources:"), 1);
        body["document"] = document.into();
        body["generation"] = generation.into();
        body
    };
    harness.post("/v1/targets", seen(1, "1h")).await.is_problem(409, "outdated");
    assert!(harness.target("a").await.is_none());
    harness.post("/v1/targets", simple_request("a", "")).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    let first: TargetReceipt = harness.post("/v1/targets", seen(1, "1h")).await.is(202).json();
    assert_eq!((first.generation, first.result), (2, LifecycleResult::Updated));
    for path in ["/v1/targets", "/v1/targets?dryRun=true"] {
        harness.post(path, seen(1, "2h")).await.is_problem(409, "outdated");
    }
    let kept = harness.target("a").await.unwrap().info;
    assert_eq!(kept.generation, 2);
    let second: TargetReceipt = harness.post("/v1/targets", seen(2, "2h")).await.is(202).json();
    assert_eq!((second.generation, second.result), (3, LifecycleResult::Updated));
}
