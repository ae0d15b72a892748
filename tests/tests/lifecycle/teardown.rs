//! Teardowns: retries, decisions of operators, and what setups that have not ended may leave.

use ebb_protocol::api::TargetDiagnosis;
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

/// `make` has one attempt and times out. The receiver may process its request for 4 seconds.
const SLOW: &str = include_str!("documents/slow-make.yaml");

/// After a timeout of a gateway, the backend may still act. The undo is repeated when it cannot act any more. A
/// response of the backend is final. Without `maxProcessingTime`, the time for which the backend may act is assumed, so
/// a resource stays possible unless its unit or its undo has succeeded with a response of the backend.
pub(crate) async fn the_undo_is_repeated_after_a_gateway_timeout() {
    let assumed = SLOW.replace("timeout: 1s", "timeout: 2s").replace(", maxProcessingTime: 4s", "");
    let twice = assumed.replace("attempts: 1", "attempts: 2, backoff: 10ms");
    let rows: [(&str, &[u16], u16, usize, bool); 6] = [
        (SLOW, &[504], 404, 2, false),
        (SLOW, &[400], 404, 1, false),
        (&assumed, &[504], 404, 2, true),
        (&assumed, &[504], 204, 1, false),
        (&assumed, &[400], 404, 1, false),
        (&twice, &[504, 200], 404, 2, false),
    ];
    for (document, made, undone, deletions, remains) in rows {
        let harness = Harness::new().await;
        harness.receiver.replies("POST /make", made);
        harness.receiver.always("DELETE /thing", undone);
        let phase = if made.contains(&200) { TargetPhase::Ready } else { TargetPhase::Failed };
        harness.run("a", "slow", document, phase).await;
        harness.delete("a").await;
        if document == SLOW && deletions > 1 {
            let waits =
                |why: &TargetDiagnosis| why.summary.contains("the receiver may act on an earlier one until then");
            until("the reason", async || Some(harness.why("a").await).filter(waits)).await;
            assert_eq!(harness.remaining("a").await, [("r/make".to_owned(), Certainty::Possible)]);
            let refused =
                harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is_problem(409, "nothing-failed");
            assert!(refused.detail.contains("the receiver may act on an earlier request until"), "{refused:?}");
        }
        let target = harness.phase("a", TargetPhase::Gone).await;
        assert_eq!(harness.receiver.count("DELETE /thing"), deletions, "{made:?} {undone}: {target:?}");
        let why = harness.why("a").await;
        let remaining: Vec<_> = why.remaining.iter().map(|it| (it.unit.as_str(), it.certainty)).collect();
        let expected = remains.then_some(("r/make", Certainty::Possible));
        assert_eq!(remaining, expected.into_iter().collect::<Vec<_>>(), "{made:?} {undone}");
        assert_eq!(why.notes.iter().any(|note| note.contains("set `maxProcessingTime`")), remains, "{why:?}");
    }
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
