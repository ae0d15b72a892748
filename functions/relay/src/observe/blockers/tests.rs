//! Pods and warnings as Kubernetes reports them, including states that a test cluster of one node cannot produce.

use serde::Deserialize;

use super::*;
use crate::test_api::rows;
use BlockerKind::Transient;

/// 2026-01-01T00:10:00Z.
const NOW: u64 = 1_767_226_200_000;
const MINUTE: u64 = 60_000;

fn pod(status: Value) -> Value {
    let containers = |name: &str| json!([{"name": name, "image": "i:1"}]);
    json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "u"},
        "spec": {"nodeName": "n1", "initContainers": containers("init"), "containers": containers("main")},
        "status": status,
    })
}

fn found(name: &str, object: &Value, warnings: &[Warning], pod_ms: u64) -> Option<StartBlocker> {
    find(name, object, &["u"], warnings, json!({"nowMs": NOW, "podMs": pod_ms, "cluster": "eu"}))
}

/// Returns a warning with fields of an event that was first reported at 00:05:00 and last at 00:09:00, about the object `u`.
fn warning(fields: Value) -> Warning {
    let mut event = json!({
        "metadata": {}, "involvedObject": {"uid": "u"}, "type": "Warning",
        "firstTimestamp": "2026-01-01T00:05:00Z", "lastTimestamp": "2026-01-01T00:09:00Z",
    });
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value::<Event>(event).unwrap().into()
}

/// A pod with its warnings and the reason why it is not ready. The file describes its keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodCase {
    status: Value,
    init_policy: Option<String>,
    #[serde(default)]
    warnings: Vec<Value>,
    is: Option<String>,
}

/// Returns the code, the kind, the first report, how it ends, and the message.
fn shown(blocker: &StartBlocker) -> String {
    let minutes = |ms: u64| if ms == 0 { "unknown".to_owned() } else { format!("{} min", (NOW - ms) / MINUTE) };
    let kind = match &blocker.kind {
        Transient(since_ms) => format!("Transient for {}", minutes(*since_ms)),
        kind => format!("{kind:?}"),
    };
    let StartBlocker { code, message, since_ms, resolves, .. } = blocker;
    format!("{code:?}, {kind}, since {}, {resolves:?}: {message}", minutes(*since_ms))
}

#[test]
fn reasons_of_pods() {
    let cases: Vec<PodCase> = serde_saphyr::from_str(include_str!("../../../tests/pod_reasons.yaml")).unwrap();
    for PodCase { status, init_policy, warnings, is } in cases {
        let mut pod = pod(status);
        pod["spec"]["initContainers"][0]["restartPolicy"] = json!(init_policy);
        let warnings: Vec<_> = warnings.into_iter().map(warning).collect();
        assert_eq!(found("pod", &pod, &warnings, 0).as_ref().map(shown), is, "{pod:?} {warnings:?}");
    }
}

#[test]
fn a_container_is_stable_some_seconds_after_a_crash() {
    let rows = rows::<(u32, Value, Value, bool)>("a_container_is_stable_some_seconds_after_a_crash");
    for (restarts, state, last, expected) in rows {
        let main = json!({"name": "main", "restartCount": restarts, "state": state, "lastState": last});
        let mut status = json!({"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [main]});
        let crash = found("crash", &pod(status.clone()), &[], 0);
        assert_eq!(crash.is_some(), expected, "{status}");
        assert!(crash.is_none_or(|it| it.message.contains("exit code 3") && it.since_ms == NOW - MINUTE));
        // A container that a pod has restarted may be killed at its end.
        status["phase"] = "Succeeded".into();
        assert_eq!(found("crash", &pod(status), &[], 0), None);
    }
}

#[test]
fn reasons_of_controllers_without_pods() {
    let controller = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"}});
    let refusals = rows::<(String, ReasonCode, WaitResolution)>("reasons_of_controllers_without_pods");
    for (message, code, resolves) in refusals {
        let first = json!({"reason": "FailedCreate", "message": message, "lastTimestamp": "2026-01-01T00:08:00Z"});
        let combined = format!("(combined from similar events): {message}");
        let newer = json!({"reason": "Other", "message": "newer", "lastTimestamp": "2026-01-01T00:09:30Z"});
        let mut foreign = newer.clone();
        (foreign["involvedObject"]["uid"], foreign["reason"]) = ("other".into(), "FailedCreate".into());
        let warnings = [
            warning(json!({"reason": "FailedCreate", "message": combined})),
            Warning { first_ms: NOW - 7 * MINUTE, ..warning(first) },
            warning(newer),
            warning(foreign),
        ];
        let since_ms = NOW - 7 * MINUTE;
        let message = message.replace("pods \"p\"", "the pod");
        let (kind, log) = (Transient(1_000), None);
        let expected = Some(StartBlocker { code, message, kind, since_ms, resolves, log });
        assert_eq!(found("controller", &controller, &warnings, 0), expected);
        // The controller has created a pod since the first try, and since the last one.
        let since = |pod_ms: u64| Some(found("controller", &controller, &warnings, pod_ms)?.since_ms);
        assert_eq!(since(NOW - 3 * MINUTE), Some(NOW - 3 * MINUTE));
        assert_eq!(since(NOW - MINUTE), None);
    }
    // An earlier refusal had another cause.
    let refused = |message: &str, first_ms: u64| {
        let refused = json!({"reason": "FailedCreate", "message": message});
        Warning { first_ms, last_ms: first_ms, ..warning(refused) }
    };
    let warnings = [refused("exceeded quota", NOW - 3 * MINUTE), refused("denied the request", NOW - 5 * MINUTE)];
    assert_eq!(found("controller", &controller, &warnings, 0).unwrap().since_ms, NOW - 3 * MINUTE);
    // A status alone never ends a task.
    let controller = rows::<Value>("selectors_owners_and_conditions").remove(0);
    let failure = found("controller", &controller, &[], 0).unwrap();
    let expected = (ReasonCode::Quota, 2_000, WaitResolution::Itself);
    assert_eq!((failure.code, failure.since_ms, failure.resolves), expected);
}
