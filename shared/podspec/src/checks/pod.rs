//! Rules over the pod.

use serde_json::Value;

use super::{container, is_set, items, security, text, volume};
use crate::violation::ViolationList;
use crate::{ClusterPolicy, PodSecurityLevel};

const OPERATOR: &str = "ask the operator of the cluster, or take it out";

/// Fields that are refused when they say something, and why.
const REFUSED: [(&str, &str, &str); 10] = [
    ("hostNetwork", "the network of the node is not a pod's", "take it out; reach services by their names"),
    ("hostPID", "the processes of the node are not a pod's", "take it out"),
    ("hostIPC", "the memory of the node is not a pod's", "take it out"),
    ("hostUsers", "the users of the node are not a pod's", "take it out"),
    ("nodeName", "a pod does not choose its node past the scheduler", "use `nodeSelector` or `affinity`"),
    ("priority", "a pod does not choose its priority", "take it out"),
    ("overhead", "a pod does not choose its overhead", "take it out; the runtime class says it"),
    ("ephemeralContainers", "ephemeral containers are for debugging a pod that runs", "use `containers`"),
    ("resourceClaims", "devices are not given to pods here", OPERATOR),
    ("schedulingGates", "nobody would open the gate", "take it out"),
];

pub(super) fn check(spec: &Value, namespace: &str, allowed: &ClusterPolicy, path: &str, report: &mut ViolationList) {
    for (field, why, help) in REFUSED {
        if is_set(&spec[field]) {
            report.add(format!("{path}.{field}"), why, help);
        }
    }
    account(spec, namespace, allowed, path, report);
    for (field, set, what) in [
        ("runtimeClassName", &allowed.runtime_classes, "runtime class"),
        ("priorityClassName", &allowed.priority_classes, "priority class"),
    ] {
        let name = text(spec, field);
        if !name.is_empty() && !set.contains(name) {
            report.add(format!("{path}.{field}"), format!("the {what} `{name}` is not allowed"), OPERATOR);
        }
    }
    tolerations(spec, path, report);
    let context = format!("{path}.securityContext");
    security::check(&spec["securityContext"], &context, report);
    if is_set(&spec["securityContext"]["sysctls"]) {
        report.add(format!("{context}.sysctls"), "kernel settings are the node's", "take it out");
    }
    for (at, item) in items(spec, "volumes", path) {
        volume::check(item, &at, report);
    }
    for list in ["initContainers", "containers"] {
        for (at, item) in items(spec, list, path) {
            container::check(item, &at, report);
            if allowed.pod_security_level == PodSecurityLevel::Restricted {
                security::restricted(item, &spec["securityContext"], &at, report);
            }
        }
    }
}

/// Both spellings: `serviceAccount` is the deprecated one, and still obeyed.
fn account(spec: &Value, namespace: &str, allowed: &ClusterPolicy, path: &str, report: &mut ViolationList) {
    let mut named = "default";
    for field in ["serviceAccountName", "serviceAccount"] {
        let account = text(spec, field);
        if account.is_empty() {
            continue;
        }
        named = account;
        if account != "default" && !allowed.allows_account(namespace, account) {
            let why = format!("pods in `{namespace}` may not run as the service account `{account}`");
            report.add(format!("{path}.{field}"), why, OPERATOR);
        }
    }
    if spec["automountServiceAccountToken"] == true && !allowed.allows_account(namespace, named) {
        let why = format!("pods in `{namespace}` may not have the token of `{named}`");
        report.add(format!("{path}.automountServiceAccountToken"), why, OPERATOR);
    }
}

/// A pod may go to nodes that were set apart for work like it, not to those of the control plane.
fn tolerations(spec: &Value, path: &str, report: &mut ViolationList) {
    for (at, item) in items(spec, "tolerations", path) {
        let key = text(item, "key");
        if key.is_empty() || key.starts_with("node-role.kubernetes.io/") {
            let help = "name the taint of the nodes that you mean";
            report.add(at, "this opens the nodes of the control plane", help);
        }
    }
}
