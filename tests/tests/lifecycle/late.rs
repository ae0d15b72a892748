//! Successes of attempts that were given up. Every reported resource is undone.

use ebb_flow::advance::reopen::{ReopenCause, reopen_seen};
use ebb_flow::loaded_run::{AttemptRef, Run};
use ebb_flow::run::attempt_end::{AttemptEnd, AttemptSuccess};
use ebb_flow::run::dispatch_outcome::DispatchReason;
use ebb_flow::run::inputs::InvocationCache;
use ebb_flow::run::{dispatch, records};
use ebb_protocol::record::AttemptResult;

use crate::harness::*;

/// Starts a sandbox `a`. The first attempt of `make` has failed and the second is accepted.
async fn two_attempts(document: &str) -> (Harness, ReceivedCall, ReceivedCall) {
    let harness = Harness::new().await;
    let first = harness.accepted("makes", document).await;
    let too_slow = json!({"status": "failed", "reason": {"code": "timeout", "message": "too slow"}});
    harness.callback(first.token(), &too_slow).await.is(204);
    let second = harness.receiver.call("POST /make", 2).await;
    (harness, first, second)
}

fn two_attempts_document() -> String {
    MAKE.replace("timeout: 5m", "timeout: 5m\n    retry: {attempts: 2, backoff: 10ms}")
}

/// Starts a sandbox `a` and reports these results for its setup.
async fn with_results(document: &str, results: &[&str]) -> (Harness, ReceivedCall) {
    let harness = Harness::new().await;
    let call = harness.accepted("makes", document).await;
    for id in results {
        harness.callback(call.token(), &succeeded(id)).await;
    }
    harness.phase("a", TargetState::Ready).await;
    (harness, call)
}

/// Reports a late success.
async fn late(harness: &Harness, call: &ReceivedCall, id: &str) {
    harness.callback(call.token(), &succeeded(id)).await.is_problem(409, "late-result");
}

pub(crate) async fn a_success_after_the_teardown_is_undone() {
    let harness = Harness::new().await;
    let call = harness.accepted("makes", MAKE).await;
    harness.tear_down("a").await;
    // The resource may exist, so the undo ran without its id.
    assert_eq!(undone(&harness), ids(["unknown"]));
    late(&harness, &call, "x").await;
    until("the undo of x", async || undone(&harness).contains("x").then_some(())).await;
    let target = harness.phase("a", TargetState::Gone).await;
    assert_eq!(states(&target, "preStart", ["make"]), [UnitState::Cancelled]);
    assert!(harness.remaining("a").await.is_empty());
    harness.notified("a", &["gone", "gone"]).await;
}

/// The condition of an undo is false for the first and the third of four results. The other two are undone.
pub(crate) async fn the_condition_of_an_undo_is_evaluated_for_each_result() {
    let condition = "undoes: make\n    when: ${!(units.make.outputs.?id.orValue('') in ['w', 'y'])}";
    let document = MAKE.replace("undoes: make", condition);
    let (harness, _) = with_results(&document, &["w", "x", "y", "z"]).await;
    harness.tear_down("a").await;
    assert_eq!(undone(&harness), ids(["x", "z"]));
    assert_eq!(harness.receiver.count("POST /undo"), 2);
}

/// An attempt of an undo is dispatched again after its result was recorded.
pub(crate) async fn a_repeated_attempt_undoes_the_same_result() {
    let (harness, _) = with_results(MAKE, &["x", "y", "z"]).await;
    harness.receiver.always("POST /undo", 202);
    harness.delete("a").await;
    for number in 1..3 {
        let call = harness.receiver.call("POST /undo", number).await;
        harness.callback(call.token(), &done()).await.is(204);
    }
    let last = harness.receiver.call("POST /undo", 3).await;
    let state = harness.state("a", Hook::PostStop).await;
    let (unit, attempt, _) = state.records[1];
    send_again(&harness, AttemptRef { unit, number: attempt, epoch: state.heads[0].head.epoch }).await;
    let again = harness.receiver.call("POST /undo", 4).await;
    let second = &harness.receiver.calls("POST /undo")[1];
    assert_eq!((again.header("webhook-id"), &again.body), (second.header("webhook-id"), &second.body));
    harness.callback(again.token(), &done()).await;
    harness.callback(last.token(), &done()).await.is(204);
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["x", "y", "z"]));
}

/// A late result starts a new pass of the undo at the first result. An attempt of the previous pass is dispatched again
/// and does not count.
pub(crate) async fn a_new_pass_undoes_every_result() {
    let (harness, make) = with_results(MAKE, &["x"]).await;
    harness.receiver.always("POST /undo", 202);
    harness.delete("a").await;
    let first = harness.receiver.call("POST /undo", 1).await;
    let head = harness.state("a", Hook::PostStop).await.heads.remove(0).head;
    let number = head.attempts.get(&0).copied().unwrap_or(Attempt::FIRST);
    let before = AttemptRef { unit: Unit(0), number, epoch: head.epoch };
    harness.callback(first.token(), &done()).await.is(204);
    harness.phase("a", TargetState::Gone).await;
    harness.succeed(&make, "y").await;
    let second = harness.receiver.call("POST /undo", 2).await;
    assert_eq!(second.body["id"], "x");
    harness.succeed(&make, "z").await;
    send_again(&harness, before).await;
    // The request of the new pass may arrive first.
    let third = harness.receiver.call("POST /undo", 3).await;
    let fourth = harness.receiver.call("POST /undo", 4).await;
    let is_again = third.header("webhook-id") == first.header("webhook-id");
    let (again, next) = if is_again { (third, fourth) } else { (fourth, third) };
    assert_eq!((again.header("webhook-id"), &again.body), (first.header("webhook-id"), &first.body));
    harness.callback(again.token(), &done()).await;
    harness.callback(second.token(), &done()).await;
    assert_eq!(next.body["id"], "x");
    harness.callback(next.token(), &done()).await.is(204);
    for (number, id) in [(5, "y"), (6, "z")] {
        let call = harness.receiver.call("POST /undo", number).await;
        assert_eq!(call.body["id"], id);
        harness.callback(call.token(), &done()).await.is(204);
    }
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.count("POST /undo"), 6);
}

/// The undo advances to the next result while a late success is being written. The late success has the earliest time,
/// so it is the first result, which the next attempt of the undo would leave out.
pub(crate) async fn a_late_success_is_undone_while_the_undo_advances() {
    let (harness, _first, second) = two_attempts(&two_attempts_document()).await;
    harness.receiver.always("POST /undo", 202);
    for id in ["y", "z"] {
        harness.callback(second.token(), &succeeded(id)).await;
    }
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    let undo = harness.receiver.call("POST /undo", 1).await;
    let env = harness.stack().env();
    let run = Run::load(env, &run_id("a", Hook::PostStop)).await.unwrap().unwrap();
    // The late success is recorded after the run of the undo was read and before the undo advances.
    let view = run.read_view(env).await.unwrap();
    let outputs = serde_json::from_value(json!({"id": {"json": "x"}})).unwrap();
    let success = AttemptEnd::Succeeded(AttemptSuccess { outputs, ..AttemptSuccess::default() });
    let setup = Run::load(env, &run_id("a", Hook::PreStart)).await.unwrap().unwrap();
    let (result, _) = records::build_result(env, &setup, Unit(0), Attempt::FIRST, &success, None).await.unwrap();
    // The result is older than the run, because its write took long.
    let result = AttemptResult { at: setup.facts.started.0, ..result };
    env.store.put_result(&setup.id, Unit(0), Attempt::FIRST, &result).await.unwrap();
    harness.callback(undo.token(), &done()).await.is(204);
    let next = harness.receiver.call("POST /undo", 2).await;
    reopen_seen(env, &run, &view, &[Unit(0)], ReopenCause::LateSuccess).await.unwrap();
    harness.callback(next.token(), &done()).await;
    for number in 3.. {
        let call = harness.receiver.call("POST /undo", number).await;
        harness.callback(call.token(), &done()).await;
        if call.body["id"] == "z" {
            break;
        }
    }
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), ids(["x", "y", "z"]));
}

/// Dispatches an attempt of the undo of the sandbox `a` again.
async fn send_again(harness: &Harness, attempt: AttemptRef) {
    let env = harness.stack().env();
    let run = Run::load(env, &run_id("a", Hook::PostStop)).await.unwrap().unwrap();
    dispatch::send(env, &run, attempt, &InvocationCache::default(), DispatchReason::Result).await.unwrap();
}

/// Reports as many late successes as reopen an undo. Returns their ids.
async fn late_flood(harness: &Harness, call: &ReceivedCall) -> BTreeSet<String> {
    let ids: BTreeSet<String> = (0..limits::DISTINCT_RESULTS).map(|number| format!("id-{number}")).collect();
    for id in &ids {
        late(harness, call, id).await;
    }
    ids
}

/// The first undo seals all units. The undo of `make` begins later, so it reads also a success above the limit of late
/// successes. After it has begun, further ones are rejected.
pub(crate) async fn an_undo_that_has_not_begun_covers_every_late_success() {
    let rest = r#"
preStart:
  a: {webhook: {url: "RECEIVER/a"}}
  make: {timeout: 5m, retry: {attempts: 2, backoff: 10ms}, webhook: {url: "RECEIVER/make"}, outputs: {id: {value: "${response.body.id}"}}}
postStop:
  undo-a: {undoes: a, webhook: {url: "RECEIVER/undo-a"}}
  undo: {undoes: make, after: [undo-a], webhook: {url: "RECEIVER/undo", body: {id: "${units.make.outputs.?id.orValue('unknown')}"}}}
"#;
    let (harness, first, second) = two_attempts(rest).await;
    harness.receiver.always("POST /undo-a", 202);
    harness.succeed(&second, "two").await;
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    let undo_a = harness.receiver.call("POST /undo-a", 1).await;
    let flood = late_flood(&harness, &first).await;
    harness.succeed(&second, "above").await;
    // The undo is not reopened before it has begun.
    let heads = harness.state("a", Hook::PostStop).await.heads;
    assert!(heads[0].head.attempts.is_empty(), "{heads:?}");
    assert_eq!(harness.receiver.count("POST /undo"), 0);
    harness.callback(undo_a.token(), &done()).await.is(204);
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(undone(&harness), &flood | &ids(["two", "above"]));
    let after = harness.callback(second.token(), &succeeded("after")).await;
    assert!(after.is_problem(409, "too-many-results").detail.contains("not undone"), "{after:?}");
}

/// An update removes the resource, and its undo has begun and ended. The teardown undoes the late successes, so it reads
/// also one above their limit.
pub(crate) async fn the_teardown_covers_every_late_success_after_the_undo_of_an_update() {
    let (harness, first, second) = two_attempts(&two_attempts_document()).await;
    harness.succeed(&second, "two").await;
    harness.phase("a", TargetState::Ready).await;
    let removed = LifecycleData { generation: 2, ..ebb_tests::platform::sandbox("a", "a-uid", "resources: {}\n") };
    harness.lifecycle(LifecycleType::Updated, &removed).await.is(202);
    until("the undo of the update", async || undone(&harness).contains("two").then_some(())).await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.remaining("a").await, []);
    let flood = late_flood(&harness, &first).await;
    harness.succeed(&second, "above").await;
    assert_eq!(undone(&harness), ids(["two"]), "the target lives");
    assert_eq!(harness.remaining("a").await[0], ("r~1/make".to_owned(), Certainty::Exists));
    harness.tear_down("a").await;
    assert_eq!(undone(&harness), &flood | &ids(["two", "above"]));
    assert_eq!(harness.remaining("a").await, []);
}
