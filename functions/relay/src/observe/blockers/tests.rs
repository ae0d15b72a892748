//! Pods and warnings as Kubernetes reports them, including states that a test cluster of one node cannot produce.

use k8s_openapi::api::core::v1::Event;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::observe::pod::container_status;
use crate::test_api::rows;
use BlockerKind::Transient;

/// 2026-01-01T00:10:00Z.
const NOW: u64 = 1_767_226_200_000;
const MINUTE: u64 = 60_000;
const RECENT: &str = "2026-01-01T00:09:00Z";

fn pod(status: Value) -> Pod {
    let containers =
        |names: &[&str]| -> Vec<_> { names.iter().map(|it| json!({"name": it, "image": "i:1"})).collect() };
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "u"},
        "spec": {"nodeName": "n1", "initContainers": containers(&["init"]), "containers": containers(&["main"])},
        "status": status,
    }))
    .unwrap()
}

/// Returns a warning that was first reported at 00:05:00, about the object `uid`.
fn warning(uid: &str, reason: &str, message: &str, last: &str) -> Warning {
    let event = json!({
        "metadata": {}, "involvedObject": {"uid": uid}, "type": "Warning", "reason": reason, "message": message,
        "firstTimestamp": "2026-01-01T00:05:00Z", "lastTimestamp": last,
    });
    serde_json::from_value::<Event>(event).unwrap().into()
}

/// A pod with its warnings and the reason why it is not ready. The file describes its keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodCase {
    #[serde(default)]
    status: Value,
    init_policy: Option<String>,
    init: Option<Value>,
    main: Option<Value>,
    last: Option<Value>,
    #[serde(default)]
    warnings: Vec<PodWarning>,
    is: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodWarning {
    uid: Option<String>,
    reason: String,
    message: String,
    last: Option<String>,
}

impl PodCase {
    fn status(&self) -> Value {
        let mut status = self.status.clone();
        if let Some(state) = &self.init {
            status["initContainerStatuses"] = json!([container_status("init", state.clone())]);
        }
        if let Some(state) = &self.main {
            let mut main = container_status("main", state.clone());
            if let Some(last) = &self.last {
                (main["lastState"], main["restartCount"]) = (last.clone(), 2.into());
            }
            status["containerStatuses"] = json!([main]);
        }
        status
    }

    fn warnings(&self) -> Vec<Warning> {
        let made = |PodWarning { uid, reason, message, last }: &PodWarning| {
            warning(uid.as_deref().unwrap_or("u"), reason, message, last.as_deref().unwrap_or(RECENT))
        };
        self.warnings.iter().map(made).collect()
    }
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
    for case in &cases {
        let mut pod = pod(case.status());
        pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap()[0].restart_policy.clone_from(&case.init_policy);
        assert_eq!(of_pod(&pod, &case.warnings(), NOW, "eu").as_ref().map(shown), case.is, "{case:?}");
    }
}

#[test]
fn a_container_is_stable_some_seconds_after_a_crash() {
    let rows = rows::<(u32, Value, Value, bool)>("a_container_is_stable_some_seconds_after_a_crash");
    for (restarts, state, last, expected) in rows {
        let main = container_status("main", state);
        let mut status = json!({"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [main]});
        status["containerStatuses"][0]["restartCount"] = restarts.into();
        status["containerStatuses"][0]["lastState"] = last;
        let found = recent_crash(&pod(status.clone()), NOW);
        assert_eq!(found.is_some(), expected, "{status}");
        assert!(found.is_none_or(|it| it.message.contains("exit code 3") && it.since_ms == NOW - MINUTE));
        // A container that a pod has restarted may be killed at its end.
        status["phase"] = "Succeeded".into();
        assert_eq!(recent_crash(&pod(status), NOW), None);
    }
}

#[test]
fn reasons_of_controllers_without_pods() {
    let rows = rows::<(String, ReasonCode, WaitResolution)>("reasons_of_controllers_without_pods");
    for (message, code, resolves) in rows {
        let combined = format!("(combined from similar events): {message}");
        let mut first = warning("u", "FailedCreate", &message, "2026-01-01T00:08:00Z");
        first.first_ms = NOW - 7 * MINUTE;
        let warnings = [
            warning("u", "FailedCreate", &combined, "2026-01-01T00:09:00Z"),
            first,
            warning("u", "Other", "newer", "2026-01-01T00:09:30Z"),
            warning("other", "FailedCreate", "newer", "2026-01-01T00:09:30Z"),
        ];
        let found = of_controller("u", 1, 0, &warnings);
        let since_ms = NOW - 7 * MINUTE;
        let message = message.replace("pods \"p\"", "the pod");
        assert_eq!(found, Some(StartBlocker { code, message, kind: Transient(1), since_ms, resolves }));
        // The controller has created a pod since the first try, and since the last one.
        let since = |pod_ms: u64| Some(of_controller("u", 1, pod_ms, &warnings)?.since_ms);
        assert_eq!(since(NOW - 3 * MINUTE), Some(NOW - 3 * MINUTE));
        assert_eq!(since(NOW - MINUTE), None);
    }
    // An earlier refusal had another cause.
    let refused = |message: &str, first_ms: u64| {
        let refused = warning("u", "FailedCreate", message, "2026-01-01T00:09:00Z");
        Warning { first_ms, last_ms: first_ms, ..refused }
    };
    let warnings = [refused("exceeded quota", NOW - 3 * MINUTE), refused("denied the request", NOW - 5 * MINUTE)];
    assert_eq!(of_controller("u", 1, 0, &warnings).unwrap().since_ms, NOW - 3 * MINUTE);
}
