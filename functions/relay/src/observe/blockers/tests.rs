//! Pods and warnings as Kubernetes reports them, including states that a test cluster of one node cannot produce.

use ebb_kube::contract::built_in;
use serde::Deserialize;

use super::*;

/// 2026-01-01T00:10:00Z.
const NOW: u64 = 1_767_226_200_000;
const MINUTE: u64 = 60_000;

fn pod(status: Value) -> Value {
    let containers = |name: &str| json!([{"name": name, "image": "i:1"}]);
    json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1", "initContainers": containers("init"), "containers": containers("main")},
        "status": status,
    })
}

/// Returns a warning with fields of an event that was first reported at 00:05:00 and last at 00:09:00, about the object `u`.
fn reported(fields: Value) -> Value {
    let mut event = json!({
        "metadata": {}, "involvedObject": {"uid": "u"}, "type": "Warning",
        "firstTimestamp": "2026-01-01T00:05:00Z", "lastTimestamp": "2026-01-01T00:09:00Z",
    });
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    warning(&event)
}

/// A pod with its warnings and the reason why it is not ready. The file describes its keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodCase {
    #[serde(default)]
    status: Value,
    of: Option<String>,
    init_policy: Option<String>,
    #[serde(default)]
    warnings: Vec<Value>,
    #[serde(default)]
    pods_since: Value,
    is: Option<String>,
}

/// Returns the code, the kind, the first report, how it ends, and the message.
fn shown(blocker: &StartBlocker) -> String {
    let minutes = |ms: u64| if ms == 0 { "unknown".to_owned() } else { format!("{} min", (NOW - ms) / MINUTE) };
    let kind = match blocker.ends {
        CauseEnd::PodStart => format!("Transient for {}", minutes(blocker.from_ms)),
        CauseEnd::AtOnce => "Permanent".to_owned(),
        CauseEnd::Scheduling => "Unschedulable".to_owned(),
        CauseEnd::Deadline => "Reported".to_owned(),
    };
    let StartBlocker { code, message, since_ms, resolves, .. } = blocker;
    format!("{code:?}, {kind}, since {}, {resolves:?}: {message}", minutes(*since_ms))
}

#[test]
fn reasons_of_pods() {
    let cases: Vec<PodCase> = serde_saphyr::from_str(include_str!("../../../tests/pod_reasons.yaml")).unwrap();
    for PodCase { status, of, init_policy, warnings, pods_since, is } in cases {
        let mut pod = pod(status);
        pod["spec"]["initContainers"][0]["restartPolicy"] = json!(init_policy);
        let warnings: Vec<_> = warnings.into_iter().map(reported).collect();
        let facts = json!({"nowMs": NOW, "podMs": millis_at(&pods_since), "cluster": "eu"});
        let found = find(built_in(), of.as_deref().unwrap_or("pod"), &pod, &[], &warnings, facts);
        assert_eq!(found.as_ref().map(shown), is, "{pod:?} {warnings:?}");
    }
}
