//! Successes of attempts that were given up. Every reported resource is undone. The model and the simulation try the
//! orders of such successes and the undo.

use crate::harness::*;

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
    let harness = Harness::new().await;
    let call = harness.accepted("makes", &document).await;
    for id in ["w", "x", "y", "z"] {
        harness.callback(call.token(), &succeeded(id)).await;
    }
    harness.phase("a", TargetState::Ready).await;
    harness.tear_down("a").await;
    assert_eq!(undone(&harness), ids(["x", "z"]));
    assert_eq!(harness.receiver.count("POST /undo"), 2);
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
    let harness = Harness::new().await;
    let first = harness.accepted("makes", rest).await;
    let too_slow = json!({"status": "failed", "reason": {"code": "timeout", "message": "too slow"}});
    harness.callback(first.token(), &too_slow).await.is(204);
    let second = harness.receiver.call("POST /make", 2).await;
    harness.receiver.always("POST /undo-a", 202);
    harness.succeed(&second, "two").await;
    harness.phase("a", TargetState::Ready).await;
    harness.delete("a").await;
    let undo_a = harness.receiver.call("POST /undo-a", 1).await;
    let flood: BTreeSet<String> = (0..limits::DISTINCT_RESULTS).map(|number| format!("id-{number}")).collect();
    for id in &flood {
        late(&harness, &first, id).await;
    }
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
