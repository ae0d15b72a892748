//! Tables of decisions. The tests of the relay program have the effects of the API server, the kubelet and a second relay.

use std::time::Duration;

use kube::core::Status;
use serde_json::json;

use super::*;
use crate::task::record::ObjectRef;
use PodObservation::{Gone, Running, Terminated, Waiting};
use ReasonCode::{Evicted, Exit, Failed, ImagePull, Lost, NotStartable, OutOfMemory, Timeout, Unschedulable};

const NOW: u64 = 1_000_000;

fn result(code: Option<ReasonCode>) -> Callback {
    code.map_or(Callback::new(CallbackStatus::Succeeded), |code| Callback::failed(code, "reported"))
}

fn pod(phase: &str, deleted: Option<&str>) -> Pod {
    serde_json::from_value(json!({"metadata": {"deletionTimestamp": deleted}, "status": {"phase": phase}})).unwrap()
}

/// Returns a record with a deadline half a second after [`NOW`].
fn record(attempt: u32, phase: &str, keep: bool) -> TaskRecord {
    let phase = match phase {
        "terminating" => json!({"terminating": {"graceMs": 1_000, "sinceMs": 0, "hasResult": false}}),
        "tombstone" => json!({"tombstone": {"sinceMs": 0}}),
        other => json!(other),
    };
    let objects = json!({"instance": "i", "until": {"ended": {"container": "main"}}, "keep": keep});
    let (received_ms, not_after_ms, deadline_ms) = (NOW - 500, NOW, NOW + 500);
    let objects = serde_json::from_value(objects).unwrap();
    let spec = TaskSpec { objects, received_ms, not_after_ms, deadline_ms, ..TaskSpec::example() };
    let name = TaskId { unit: "unit".to_owned(), attempt };
    TaskRecord::new(name, serde_json::from_value(phase).unwrap(), Some(spec))
}

#[test]
fn an_attempt_starts_after_the_lower_ones_and_never_after_a_higher_one() {
    let name = TaskId { unit: "unit".to_owned(), attempt: 2 };
    for (others, expected) in [
        (&[][..], Some(&[][..])),
        (&[(1, "ended"), (1, "acknowledged"), (1, "tombstone"), (2, "starting")], Some(&[])),
        (&[(1, "starting"), (1, "running"), (1, "terminating")], Some(&[1, 1, 1])),
        (&[(1, "running"), (3, "tombstone")], None),
    ] {
        let records = others.iter().map(|(attempt, phase)| record(*attempt, phase, false)).collect();
        let found = open_lower_attempts(&name, records);
        let found = found.map(|lower| lower.iter().map(|name| name.attempt).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), expected, "{others:?}");
    }
}

#[test]
fn a_request_renews_a_pending_callback() {
    for (phase, keep, after, is_new) in [
        ("starting", false, "starting", true),
        ("running", false, "running", false),
        ("terminating", false, "terminating", false),
        ("ended", false, "ended", true),
        ("acknowledged", false, "acknowledged", false),
        ("acknowledged", true, "ended", true),
        ("tombstone", true, "tombstone", false),
    ] {
        let mut record = record(1, phase, keep);
        let mut callback = record.spec.as_ref().unwrap().callback.clone();
        assert_eq!(record.clone().renew(&callback), after != phase, "{phase}");
        callback.token = "new".to_owned();
        assert_eq!((record.renew(&callback), record.phase.label()), (is_new, after), "{phase}");
        assert_eq!(record.spec.unwrap().callback == callback, is_new, "{phase}");
    }
}

#[test]
fn a_termination_ends_without_objects_or_when_it_is_stuck() {
    let (in_time, stuck) = (STUCK_MS, STUCK_MS + 1_001);
    for (result_of, has_result, remaining, now, expected) in [
        (None, false, false, in_time, Some(None)),
        (Some(Some(Exit)), true, false, in_time, Some(Some(Some(Exit)))),
        (Some(Some(Exit)), false, false, in_time, Some(None)),
        // The success of a cancelled task is reported.
        (Some(None), false, false, in_time, Some(Some(None))),
        (Some(None), true, true, in_time, None),
        (None, false, true, in_time, None),
        (None, false, true, stuck, Some(Some(Some(Lost)))),
        (Some(Some(Exit)), false, true, stuck, Some(Some(Some(Lost)))),
        (Some(Some(Exit)), true, true, stuck, Some(Some(Some(Exit)))),
    ] {
        let phase = TaskPhase::Terminating { grace_ms: 1_000, since_ms: 0, has_result, unconfirmed: None };
        let remaining = remaining.then(|| "ConfigMap n/a: finalizer".to_owned());
        let found = match terminated(&phase, result_of.map(result), remaining, now) {
            Termination::Pending => None,
            Termination::Cancelled => Some(None),
            Termination::Ended(result) => Some(Some(result.reason.map(|reason| reason.code))),
        };
        assert_eq!(found, expected, "{result_of:?} {has_result} {now}");
    }
}

#[test]
fn a_slot_is_free_when_no_container_can_run() {
    let failure = |code: u16| Err(kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code))));
    for (pods, expected) in [
        (Ok(vec![]), Some(true)),
        (Ok(vec![pod("Succeeded", None), pod("Failed", None)]), Some(true)),
        (Ok(vec![pod("Succeeded", None), pod("Running", None)]), Some(false)),
        (Ok(vec![pod("Pending", Some("1970-01-01T00:16:00Z"))]), Some(false)),
        // The node does not respond.
        (Ok(vec![pod("Running", Some("1970-01-01T00:14:00Z"))]), Some(true)),
        // The namespace was deleted with the relay's rights.
        (failure(403), Some(true)),
        (failure(404), Some(true)),
        (failure(500), None),
    ] {
        let text = format!("{pods:?}");
        assert_eq!(is_slot_free(pods, NOW).ok(), expected, "{text}");
    }
}

#[test]
fn a_task_waits_for_objects_until_its_deadline() {
    let mut spec = record(1, "running", false).spec.unwrap();
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
    use WaitResolution::{Itself, Never, Person};
    let mut spec = record(1, "running", false).spec.unwrap();
    let object_ref = ObjectRef { kind: "Deployment".to_owned(), ..ObjectRef::secret("n", "b") };
    spec.applied = vec![AppliedObject { object_ref, uid: "u".to_owned(), document: false }];
    let mut settings = RelaySettings::new("relay", "units", "");
    settings.scheduling_timeout = Some(Duration::from_secs(120));
    for (code, resolves, since_ms, fails) in [
        (NotStartable, Never, None, true),
        (ImagePull, Person, Some(59_999), false),
        (ImagePull, Person, Some(60_000), true),
        (ImagePull, Person, None, false),
        (Unschedulable, Person, Some(60_000), false),
        (Unschedulable, Person, Some(120_000), true),
        (NotStartable, Itself, Some(600_000), false),
    ] {
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
    let mut wait = TaskWait { code: ImagePull, resolves: Person, ..task_waits::wait("Deployment n/b", "m") };
    wait.since_ms = Some(12_000);
    assert_eq!(fails_in_ms(&spec, &wait, &settings), Some(48_000));
    wait.code = Unschedulable;
    assert_eq!(fails_in_ms(&spec, &wait, &settings), Some(108_000));
    settings.scheduling_timeout = None;
    assert_eq!(fails_in_ms(&spec, &wait, &settings), None);
}

#[test]
fn readiness_rules_and_lost_objects() {
    let applied: AppliedObject = serde_json::from_value(json!({
        "objectRef": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "a"}, "uid": "u", "document": false,
    }))
    .unwrap();
    let object = |uid: &str, ready: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": uid}, "data": {"ready": ready},
        })
    };
    let rule = |text: &str| Some(format!("object.data.ready == '{text}'"));
    let rules = |ready: Option<String>, fail: Option<String>| Some(ReadyRules { ready, fail });
    let has_failed = "ConfigMap n/a: its `fail` is true: `object.data.ready == 'no'`";
    for (object, rules, expected) in [
        (Some(object("u", "yes")), None, Ok(true)),
        (Some(object("u", "yes")), rules(rule("yes"), None), Ok(true)),
        (Some(object("u", "no")), rules(rule("yes"), None), Ok(false)),
        (Some(object("u", "no")), rules(rule("no"), rule("no")), Err((Failed, has_failed))),
        (Some(object("u", "no")), rules(Some("object.data.ready".to_owned()), None), Err((Failed, "true or false"))),
        (Some(object("other", "yes")), None, Err((Lost, "was deleted or replaced"))),
        (None, rules(rule("yes"), None), Err((Lost, "was deleted or replaced"))),
    ] {
        let wait = judge(&applied, object.as_ref(), rules.as_ref());
        assert_eq!(wait.as_ref().is_some_and(task_waits::is_failure), expected.is_err(), "{object:?}: {wait:?}");
        match expected {
            Ok(ready) => {
                assert_eq!(wait.is_none(), ready, "{object:?}");
                let text = wait.map(|wait| wait.message);
                assert!(text.is_none_or(|it| it == "its `ready` is not true yet: `object.data.ready == 'yes'`"));
            }
            Err((code, text)) => {
                let wait = wait.unwrap();
                assert!(wait.code == code && wait.to_string().contains(text), "{object:?}: {wait:?}");
            }
        }
    }
}

#[test]
fn steps_of_a_container() {
    let spec = record(1, "running", false).spec.unwrap();
    let settings = RelaySettings::new("relay", "units", "");
    let end = |exit_code: i32, reason: &str, message: &str| Terminated(pod::terminated(exit_code, reason, message));
    let with_message = |result: &Callback, report: Option<&str>| {
        let message = json!({"v": 1, "result": result, "exitCode": 0, "report": report}).to_string();
        end(0, "Completed", &message)
    };
    let blocked = |code, kind| {
        let (message, resolves) = ("blocked".to_owned(), WaitResolution::Itself);
        Waiting(Some(StartBlocker { code, message, kind, since_ms: 0, resolves }))
    };
    let permanent = |code| blocked(code, BlockerKind::Permanent);
    let unpulled_for = |ms: u64| blocked(ImagePull, BlockerKind::Transient(NOW - ms));
    let unschedulable = || blocked(Unschedulable, BlockerKind::Unschedulable);
    let killed = || end(137, "OOMKilled", "");
    let (running, deleted) = (pod("Running", None), pod("Running", Some("1970-01-01T00:14:00Z")));
    let (present, lost) = (Some(&running), Some(&deleted));
    let mut failed = pod("Failed", None);
    let init = json!([pod::container_status("init", json!({"terminated": {"exitCode": 3}}))]);
    failed.status.as_mut().unwrap().init_container_statuses = serde_json::from_value(init).unwrap();
    let success = || Some(result(None));
    let failure = |code| Some(result(Some(code)));
    let (deadline, before) = (NOW + 500, NOW);
    // The pod, its state, the report, an early failure, objects to remove, the time, and the step.
    for (pod, state, reported, early, removing, now, expected) in [
        (present, Running, None, None, false, before, "wait until 500"),
        (present, Running, None, None, false, deadline, "terminate Timeout Whole"),
        (present, Running, failure(Exit), None, false, deadline, "terminate Exit Whole"),
        (lost, Running, None, None, false, before, "terminate Lost Nothing"),
        (lost, Running, None, Some(Evicted), false, before, "terminate Evicted Nothing"),
        // A container that cannot start.
        (None, Waiting(None), None, None, false, before, "wait until 500"),
        (None, Waiting(None), None, None, false, deadline, "terminate Timeout Whole"),
        (present, permanent(ImagePull), None, None, false, before, "terminate ImagePull Nothing"),
        (Some(&failed), permanent(NotStartable), None, None, false, before, "terminate NotStartable FailedInit"),
        (present, unpulled_for(60_000), None, None, false, before, "terminate ImagePull Nothing"),
        (present, unpulled_for(59_900), None, None, false, before, "wait until 100"),
        (present, unschedulable(), None, None, false, before, "wait until 500"),
        (present, unschedulable(), None, None, false, deadline, "terminate Unschedulable Whole"),
        (present, blocked(NotStartable, BlockerKind::Reported), None, None, false, before, "wait until 500"),
        (present, blocked(NotStartable, BlockerKind::Reported), None, None, false, deadline, "terminate Timeout Whole"),
        // The report, then the termination message, then the kubelet.
        (None, Gone, success(), None, false, before, "finish Succeeded Nothing"),
        (present, end(7, "Error", ""), failure(Failed), None, false, before, "finish Failed Nothing"),
        (present, with_message(&result(None), None), None, None, false, before, "finish Succeeded Script"),
        (present, with_message(&result(None), Some("sha")), None, None, false, before, "finish Lost Script"),
        (present, with_message(&result(Some(Exit)), None), None, None, false, before, "finish Exit Script"),
        (present, end(7, "Error", "text"), None, None, false, before, "finish Exit Whole"),
        (present, end(0, "Completed", ""), None, None, false, before, "finish Failed Whole"),
        // An early failure explains the end of a killed entrypoint, and does not affect a success.
        (None, Gone, None, None, false, before, "finish Lost Nothing"),
        (None, Gone, None, Some(Evicted), false, before, "finish Evicted Nothing"),
        (None, Gone, failure(Lost), Some(Evicted), false, before, "finish Evicted Nothing"),
        (None, Gone, failure(Exit), Some(Evicted), false, before, "finish Exit Nothing"),
        (None, Gone, success(), Some(Evicted), false, before, "finish Succeeded Nothing"),
        (present, killed(), failure(Exit), Some(Evicted), false, before, "finish OutOfMemory Nothing"),
        (present, killed(), success(), None, false, before, "finish Succeeded Nothing"),
        // A success waits for the removal of objects, a failure does not.
        (None, Gone, success(), None, true, before, "wait until 3000"),
        (None, Gone, success(), None, true, deadline, "finish Timeout Nothing"),
        (None, Gone, failure(Exit), None, true, before, "finish Exit Nothing"),
    ] {
        let case = format!("{state:?} {reported:?} {early:?} {removing} {now}");
        let early_failure = early.map(|code| FailureReason { code, message: "early".to_owned() });
        let removing = removing.then(|| "ConfigMap n/a: finalizer".to_owned());
        let silence = None;
        let state =
            ObservedContainer { spec: &spec, observation: state, pod, reported, early_failure, removing, silence };
        let text = |verb: &str, result: Callback, log| {
            let code = result.reason.map_or("Succeeded".to_owned(), |reason| format!("{:?}", reason.code));
            format!("{verb} {code} {log:?}")
        };
        let found = match state.decide(&settings, now) {
            ContainerStep::Wait(until) => format!("wait until {}", until - NOW),
            ContainerStep::Finish(result, log) => text("finish", *result, log),
            ContainerStep::Terminate(result, log) => text("terminate", *result, log),
        };
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn a_silent_entrypoint_is_lost_unless_it_has_reported() {
    let spec = record(1, "running", false).spec.unwrap();
    let running = pod("Running", None);
    let settings = RelaySettings::new("r", "n", "http://10.0.0.1");
    assert_eq!(settings.lost_after(), Duration::from_secs(180));
    let steps = [(100, None), (100, Some(Failed)), (0, Some(Failed)), (0, None)].map(|(next_check, reported)| {
        let silence = Silence { lasted: Duration::from_secs(184), next_check: Duration::from_millis(next_check) };
        let observed = ObservedContainer {
            spec: &spec,
            observation: Running,
            pod: Some(&running),
            reported: reported.map(|code| result(Some(code))),
            early_failure: None,
            removing: None,
            silence: Some(silence),
        };
        observed.decide(&settings, NOW)
    });
    let [early, reported_early, reported, ContainerStep::Terminate(lost, LogPart::Script)] = steps else {
        panic!("{steps:?}")
    };
    assert_eq!(early, ContainerStep::Wait(NOW + 100));
    assert_eq!((reported_early, reported), (ContainerStep::Wait(NOW + 500), ContainerStep::Wait(NOW + 500)));
    let reason = lost.reason.unwrap();
    assert!(reason.code == Lost && reason.message.contains("no heartbeat for 3 min 4 s"), "{reason:?}");
}

#[test]
fn reasons_of_the_kubelet() {
    let shim = "failed to create containerd task: failed to create shim task: ";
    for (code, reason, message, expected) in [
        (128, "StartError", format!("{shim}exec: \"/none\": no such file"), ReasonCode::NotStartable),
        (128, "StartError", format!("{shim}context canceled: unknown"), Lost),
        (137, "OOMKilled", String::new(), OutOfMemory),
        (255, "ContainerStatusUnknown", String::new(), Lost),
        (-1, "Evicted", String::new(), Evicted),
        (-1, "NodeLost", String::new(), Lost),
    ] {
        let result = from_kubelet(&pod::terminated(code, reason, &message));
        assert_eq!(result.reason.map(|it| it.code), Some(expected), "{reason}");
    }
}
