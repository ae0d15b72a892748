//! Tables of decisions. The tests of the relay program have the effects of the API server, the kubelet and a second relay.

use std::time::Duration;

use ebb_kube::contract::built_in;
use kube::core::Status;
use serde_json::json;

use super::*;
use crate::task::record::ObjectRef;
use crate::test_api::rows;
use ReasonCode::{Failed, ImagePull, NotStartable, Timeout, Unschedulable};

const NOW: u64 = 1_000_000;

/// Returns a record with a deadline half a second after [`NOW`].
fn record(attempt: u32, phase: TaskPhase, keep: bool) -> TaskRecord {
    let objects = json!({"instance": "i", "until": {"ended": {"container": "main"}}, "keep": keep});
    let (received_ms, not_after_ms, deadline_ms) = (NOW - 500, NOW, NOW + 500);
    let objects = serde_json::from_value(objects).unwrap();
    let spec = TaskSpec { objects, received_ms, not_after_ms, deadline_ms, ..TaskSpec::example() };
    TaskRecord::new(TaskId { unit: "unit".to_owned(), attempt }, phase, Some(spec))
}

fn code_of(result: &Callback) -> String {
    result.reason.as_ref().map_or("Succeeded".to_owned(), |reason| format!("{:?}", reason.code))
}

#[test]
fn an_attempt_starts_after_the_lower_ones_and_never_after_a_higher_one() {
    let name = TaskId { unit: "unit".to_owned(), attempt: 2 };
    let rows = rows::<(Vec<(u32, TaskPhase)>, Option<Vec<u32>>)>(
        "an_attempt_starts_after_the_lower_ones_and_never_after_a_higher_one",
    );
    for (others, expected) in rows {
        let records = others.iter().map(|(attempt, phase)| record(*attempt, phase.clone(), false)).collect();
        let found = open_lower_attempts(&name, records);
        let found = found.map(|lower| lower.iter().map(|name| name.attempt).collect::<Vec<_>>());
        assert_eq!(found, expected, "{others:?}");
    }
}

#[test]
fn a_request_renews_a_pending_callback() {
    for (phase, keep, after, is_new) in rows::<(TaskPhase, bool, String, bool)>("a_request_renews_a_pending_callback") {
        let before = phase.label();
        let mut record = record(1, phase, keep);
        let mut callback = record.spec.as_ref().unwrap().callback.clone();
        assert_eq!(record.clone().renew(&callback), after != before, "{before}");
        callback.token = "new".to_owned();
        assert_eq!((record.renew(&callback), record.phase.label()), (is_new, &*after), "{before}");
        assert_eq!(record.spec.unwrap().callback == callback, is_new, "{before}");
    }
}

#[test]
fn a_termination_ends_without_objects_or_when_it_is_stuck() {
    type Row = (Option<Callback>, bool, bool, bool, String);
    for (result, has_result, remaining, is_stuck, expected) in
        rows::<Row>("a_termination_ends_without_objects_or_when_it_is_stuck")
    {
        let case = format!("{result:?} {has_result} {remaining} {is_stuck}");
        let now = if is_stuck { STUCK_MS + 1_001 } else { STUCK_MS };
        let phase = TaskPhase::Terminating { grace_ms: 1_000, since_ms: 0, has_result, unconfirmed: None };
        let found = match terminated(&phase, result, remaining.then(|| "ConfigMap n/a: finalizer".to_owned()), now) {
            Termination::Pending => "pending".to_owned(),
            Termination::Cancelled => "cancelled".to_owned(),
            Termination::Ended(result) => format!("ended {}", code_of(&result)),
        };
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn a_slot_is_free_when_no_container_can_run() {
    let failure = |code: u16| kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code)));
    for (pods, expected) in rows::<(Result<Vec<Value>, u16>, Option<bool>)>("a_slot_is_free_when_no_container_can_run")
    {
        let text = format!("{pods:?}");
        assert_eq!(is_slot_free(pods.map_err(failure), NOW).ok(), expected, "{text}");
    }
}

#[test]
fn a_task_waits_for_objects_until_its_deadline() {
    let mut spec = record(1, TaskPhase::Running, false).spec.unwrap();
    let waits = [task_waits::wait("Deployment n/a", "m"), task_waits::wait("Deployment n/b", "other")];
    assert_eq!(objects(&spec, &[], NOW + 500), ObjectsStep::Collect);
    assert_eq!(objects(&spec, &waits, NOW), ObjectsStep::Wait(NOW + 500));
    let ObjectsStep::Fail(result) = objects(&spec, &waits, NOW + 500) else { panic!() };
    let reason = result.reason.unwrap();
    assert_eq!((reason.code, &*reason.message), (Timeout, "it took longer than its timeout: Deployment n/a: m"));
    spec.deadline_ms += 5_000;
    assert_eq!(objects(&spec, &waits, NOW), ObjectsStep::Wait(NOW + 3_000));
    spec.objects.remove = vec!["other".to_owned()];
    assert_eq!(objects(&spec, &waits, NOW), ObjectsStep::Wait(NOW + 1_000));
    // A task that has waited for long checks less often, and so does one that waits for a person.
    spec.deadline_ms = u64::MAX;
    let by_person = [TaskWait { resolves: WaitResolution::Person, ..waits[0].clone() }];
    for (waited_ms, pause_ms) in [(500, 3_000), (80_000, 10_000), (600_000, 30_000)] {
        spec.received_ms = NOW - waited_ms;
        assert_eq!(objects(&spec, &by_person, NOW), ObjectsStep::Wait(NOW + pause_ms), "{waited_ms}");
        assert_eq!(objects(&spec, &waits, NOW), ObjectsStep::Wait(NOW + 1_000));
    }
}

#[test]
fn a_task_that_tolerates_no_blocker_fails_before_its_deadline() {
    let mut spec = record(1, TaskPhase::Running, false).spec.unwrap();
    let object_ref = ObjectRef { kind: "Deployment".to_owned(), ..ObjectRef::secret("n", "b") };
    spec.applied = vec![AppliedObject { object_ref, uid: "u".to_owned(), document: false }];
    let mut settings = RelaySettings::new("relay", "units", "");
    settings.scheduling_timeout = Some(Duration::from_secs(120));
    type Row = (ReasonCode, WaitResolution, Option<u64>, bool);
    for (code, resolves, since_ms, fails) in rows::<Row>("a_task_that_tolerates_no_blocker_fails_before_its_deadline") {
        let blocked = TaskWait { code, resolves, since_ms, ..task_waits::wait("Deployment n/b", "m") };
        let mut waits = [task_waits::wait("Deployment n/a", "other"), blocked];
        for (fail_fast, expected) in [(true, fails), (false, false)] {
            spec.objects.fail_fast = fail_fast;
            waits[1].fails_in_ms = fails_in_ms(&spec, &waits[1], &settings);
            let found = match objects(&spec, &waits, NOW) {
                ObjectsStep::Fail(result) => result.reason.map(|reason| (reason.code, reason.message)),
                _ => None,
            };
            // The objects exist, so the code must not say that nothing was made.
            let code = if code == NotStartable { Failed } else { code };
            let expected = expected.then(|| (code, "Deployment n/b: m".to_owned()));
            assert_eq!(found, expected, "{code:?} {resolves:?} {since_ms:?} {fail_fast}");
        }
    }
    spec.objects.fail_fast = true;
    let mut wait =
        TaskWait { code: ImagePull, resolves: WaitResolution::Person, ..task_waits::wait("Deployment n/b", "m") };
    wait.since_ms = Some(12_000);
    assert_eq!(fails_in_ms(&spec, &wait, &settings), Some(48_000));
    wait.code = Unschedulable;
    assert_eq!(fails_in_ms(&spec, &wait, &settings), Some(108_000));
    settings.scheduling_timeout = None;
    assert_eq!(fails_in_ms(&spec, &wait, &settings), None);
}

#[test]
fn readiness_rules_and_lost_objects() {
    let object_ref = ObjectRef { kind: "ConfigMap".to_owned(), ..ObjectRef::secret("n", "a") };
    let applied = AppliedObject { object_ref, uid: "u".to_owned(), document: false };
    let made = |(uid, ready): (String, String)| {
        let metadata = json!({"name": "a", "uid": uid});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ready": ready}})
    };
    type Row = (Option<(String, String)>, Option<ReadyRules>, Result<bool, (ReasonCode, String)>);
    for (object, rules, expected) in rows::<Row>("readiness_rules_and_lost_objects") {
        let object = object.map(made);
        let wait = judge(built_in(), &applied, object.as_ref(), rules.as_ref());
        assert_eq!(wait.as_ref().is_some_and(task_waits::is_failure), expected.is_err(), "{object:?}: {wait:?}");
        match expected {
            Ok(ready) => {
                assert_eq!(wait.is_none(), ready, "{object:?}");
                let text = wait.map(|wait| wait.message);
                assert!(text.is_none_or(|it| it == "its `ready` is not true yet: `object.data.ready == 'yes'`"));
            }
            Err((code, text)) => {
                let wait = wait.unwrap();
                assert!(wait.code == code && wait.to_string().contains(&text), "{object:?}: {wait:?}");
            }
        }
    }
}

/// The pod, its state, the report, an early failure, objects to remove, whether the deadline has passed, the step, and the
/// milliseconds until a silent entrypoint is lost.
type StepRow = (Option<Value>, PodObservation, Option<Callback>, Option<ReasonCode>, bool, bool, String, Option<u64>);

#[test]
fn steps_of_a_container() {
    let spec = record(1, TaskPhase::Running, false).spec.unwrap();
    let settings = RelaySettings::new("relay", "units", "");
    assert_eq!(settings.lost_after(), Duration::from_secs(180));
    let rows = rows::<StepRow>("steps_of_a_container");
    for (pod, observation, reported, early, removing, is_late, expected, silent_ms) in rows {
        let now = if is_late { NOW + 500 } else { NOW };
        let case = format!("{observation:?} {reported:?} {early:?} {removing} {now}");
        let early_failure = early.map(|code| FailureReason { code, message: "early".to_owned() });
        let removing = removing.then(|| "ConfigMap n/a: finalizer".to_owned());
        let silence = |ms| Silence { lasted: Duration::from_secs(184), next_check: Duration::from_millis(ms) };
        let (pod, silence) = (pod.as_ref(), silent_ms.map(silence));
        let (spec, contracts) = (&spec, built_in());
        let state = ObservedContainer { contracts, spec, observation, pod, reported, early_failure, removing, silence };
        let text = |verb: &str, result: Callback, log| format!("{verb} {} {log:?}", code_of(&result));
        let found = match state.decide(&settings, now) {
            ContainerStep::Wait(until) => format!("wait until {}", until - NOW),
            ContainerStep::Finish(result, log) => text("finish", *result, log),
            ContainerStep::Terminate(result, log) => text("terminate", *result, log),
        };
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn reasons_of_the_kubelet() {
    for (end, expected) in rows::<(Value, ReasonCode)>("reasons_of_the_kubelet") {
        assert_eq!(from_kubelet(built_in(), &end).code, expected, "{end:?}");
    }
}
