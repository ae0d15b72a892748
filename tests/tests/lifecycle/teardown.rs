//! Teardowns: retries, decisions of operators, and what setups that have not ended may leave.

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

pub(crate) async fn the_usual_evidence_costs_no_record() {
    let harness = Harness::new().await;
    harness.receiver.always("DELETE /thing", 204);
    harness.run("a", "strange", include_str!("documents/strange.yaml"), TargetPhase::Ready).await;
    harness.tear_down("a").await;
    assert_eq!(harness.state("a", Hook::PostStop).await.records, []);
}
