//! The attempts of a unit before its last one, in answers.

use ebb_protocol::api::RunDetail;
use ebb_protocol::callback::ReasonCode;

use crate::harness::*;

/// A script that succeeds at its third attempt.
const RETRIED: &str = r##"
runners: {sh: {image: "busybox:1"}}
preStart:
  make:
    retry: {attempts: 3, backoff: 10ms}
    pod: {script: "#!/bin/sh\necho try $EBB_ATTEMPT\n[ $EBB_ATTEMPT = 3 ] || exit $EBB_ATTEMPT"}
  other: {pod: {script: "#!/bin/sh\ntrue"}}
"##;

pub(crate) async fn earlier_attempts_have_times_and_reasons() {
    let harness = Harness::new().await;
    let target = harness.run("a", "retried", RETRIED, TargetState::Ready).await;
    let unit = find(&target, "preStart", "make").unwrap();
    assert_eq!((unit.state, unit.attempt), (UnitState::Succeeded, 3));
    let [first, second] = unit.earlier_attempts.as_slice() else { panic!("{unit:?}") };
    for (attempt, number) in [(first, 1), (second, 2)] {
        assert_eq!((attempt.attempt, attempt.attempt_in_series, attempt.state), (number, number, UnitState::Failed));
        let reason = attempt.reason.as_ref().unwrap();
        assert_eq!(reason.code, ReasonCode::Exit);
        assert!(reason.message.contains(&number.to_string()), "{reason:?}");
        assert!(attempt.started.is_some() && attempt.started <= attempt.ended && attempt.log, "{attempt:?}");
    }
    assert!(first.ended <= second.ended && second.ended <= unit.ended, "{unit:?}");
    // A unit with one attempt has no earlier ones.
    assert_eq!(find(&target, "preStart", "other").unwrap().earlier_attempts, []);
    let run: RunDetail = harness.get(&format!("/v1/runs/{}", run_id("a", Hook::PreStart))).await.is(200).json();
    assert!(run.units.contains(&unit), "{run:?}");
}

pub(crate) async fn the_progress_and_the_last_heartbeat_are_shown() {
    let harness = Harness::new().await;
    let call = harness.accepted("beats", MAKE).await;
    let silent = harness.unit("a", "preStart", "make", UnitState::Running).await;
    assert_eq!((silent.progress, silent.heartbeat), (None, None));
    harness.callback(call.token(), &json!({"status": "heartbeat", "progress": "3 of 7"})).await.is(204);
    let unit = harness.unit("a", "preStart", "make", UnitState::Running).await;
    assert_eq!(unit.progress.as_deref(), Some("3 of 7"));
    assert!(unit.heartbeat.is_some() && unit.heartbeat >= unit.accepted, "{unit:?}");
    let open = harness.target("a").await.unwrap().first_wait.unwrap();
    assert!(open.units == ["r/make"] && open.since.is_some(), "{open:?}");
}
