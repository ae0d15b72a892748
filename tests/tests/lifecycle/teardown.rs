//! Teardowns: retries, decisions of operators, and what setups that have not ended may leave.

use ebb_protocol::time::{parse_rfc3339, rfc3339};

use crate::harness::*;
use crate::request_table;

const TABLE: &str = "lifecycle/teardown.yaml";

pub(crate) async fn a_stuck_teardown_is_retried() {
    let harness = Harness::new().await;
    request_table::play(&harness, TABLE, "a_stuck_teardown_is_retried", &[]).await;
    // No request is in flight, so the retry starts at once.
    let retried = Instant::now();
    harness.receiver.call("POST /drop", 3).await;
    let sending = harness.stack().env().settings.response_window().0;
    assert!(retried.elapsed() < Duration::from_millis(sending), "{:?}", retried.elapsed());
    request_table::play(&harness, TABLE, "a_retried_teardown_is_stuck_again", &[]).await;
    // A receiver that crashed before its response needs the key to find the created resource. One that caches responses by
    // key must not treat the undo as a repetition of the creation.
    let (make, undo) = (harness.receiver.call("POST /make", 1).await, harness.receiver.call("POST /drop", 1).await);
    let (key, undoes) = ("idempotency-key", "ebb-undoes-idempotency-key");
    assert!(!make.header(key).is_empty() && undo.header(key) != make.header(key));
    assert_eq!((undo.header(undoes), make.header(undoes)), (make.header(key), ""));
}

/// The reader of a teardown that waits learns when it can be overridden.
pub(crate) async fn a_teardown_says_when_it_is_stuck() {
    let harness = Harness::new().await;
    let options = "undoes: make, timeout: 10m, retry: {attempts: 3, backoff: 1m},";
    let rest = SIMPLE.replace("undoes: make,", options);
    assert_ne!(rest, SIMPLE);
    harness.receiver.always("POST /drop", 202);
    harness.run("a", "slow", &rest, TargetPhase::Ready).await;
    harness.delete("a").await;
    let unit = until("the accepted request", async || {
        find(&harness.target("a").await?, "postStop", "drop").filter(|unit| unit.accepted.is_some())
    })
    .await;
    let deadline = parse_rfc3339(&unit.deadline.unwrap()).unwrap();
    // Two waits of at most 1 and 2 minutes, and two attempts.
    let stuck = rfc3339(deadline.plus(Millis(23 * 60_000)));
    let why = harness.why("a").await;
    let expected = format!("attempt 1 of 3, stuck at {stuck} unless an attempt succeeds before");
    assert!(why.summary.contains(&expected), "{expected}: {why:?}");
    let refused = harness.post("/v1/targets/sandbox/a/force-delete", json!({"reason": "x"})).await;
    let refused = refused.is_problem(409, "not-stuck");
    assert!(refused.detail.contains("`ebb why` says when it is stuck"), "{refused:?}");
}

pub(crate) async fn the_usual_evidence_costs_no_record() {
    let harness = Harness::new().await;
    harness.receiver.always("DELETE /thing", 204);
    harness.run("a", "strange", include_str!("documents/strange.yaml"), TargetPhase::Ready).await;
    harness.tear_down("a").await;
    assert_eq!(harness.state("a", Hook::PostStop).await.records, []);
}

/// The first undo seals all units. The undo of `make` begins later, so it reads also a success above the limit of late
/// successes, and its condition is evaluated for each. After it has begun, further ones are rejected.
pub(crate) async fn an_undo_that_has_not_begun_covers_every_late_success() {
    let rest = include_str!("documents/late-successes.yaml");
    let harness = Harness::new().await;
    let first = harness.accepted("makes", rest).await;
    let too_slow = json!({"status": "failed", "reason": {"code": "timeout", "message": "too slow"}});
    harness.callback(first.token(), &too_slow).await.is(204);
    let second = harness.receiver.call("POST /make", 2).await;
    harness.receiver.always("POST /undo-a", 202);
    harness.succeed(&second, "two").await;
    harness.phase("a", TargetPhase::Ready).await;
    harness.delete("a").await;
    let undo_a = harness.receiver.call("POST /undo-a", 1).await;
    let mut expected: BTreeSet<String> = (0..limits::DISTINCT_RESULTS).map(|number| format!("id-{number}")).collect();
    for id in &expected {
        harness.callback(first.token(), &succeeded(id)).await.is_problem(409, "late-result");
    }
    harness.succeed(&second, "above").await;
    let head = harness.state("a", Hook::PreStart).await.head.unwrap();
    assert_eq!(Vec::from_iter(head.sealed), [0, 1].map(Unit));
    assert_eq!(harness.receiver.count("POST /undo"), 0);
    harness.callback(undo_a.token(), &done()).await.is(204);
    harness.phase("a", TargetPhase::Gone).await;
    expected.retain(|id| !["id-0", "id-3"].contains(&id.as_str()));
    assert_eq!(undone(&harness), &expected | &ids(["two", "above"]));
    let after = harness.callback(second.token(), &succeeded("after")).await;
    assert!(after.is_problem(409, "too-many-results").detail.contains("not undone"), "{after:?}");
}
