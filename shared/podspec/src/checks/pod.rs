use serde_json::Value;

use super::{container, is_set, items, security, text, volume};
use crate::violation::ViolationList;
use crate::{ClusterPolicy, PodSecurityLevel};

const OPERATOR: &str = "ask the operator of the cluster, or remove it";

/// Fields that must not be set, with the reason.
const REFUSED: [(&str, &str, &str); 10] = [
    ("hostNetwork", "pods may not use the network of the node", "remove it; reach services by their names"),
    ("hostPID", "pods may not use the processes of the node", "remove it"),
    ("hostIPC", "pods may not use the memory of the node", "remove it"),
    ("hostUsers", "pods may not use the users of the node", "remove it"),
    ("nodeName", "pods may not bypass the scheduler", "use `nodeSelector` or `affinity`"),
    ("priority", "pods may not set their priority", "remove it"),
    ("overhead", "pods may not set their overhead", "remove it; the runtime class sets it"),
    ("ephemeralContainers", "ephemeral containers are only for debugging", "use `containers`"),
    ("resourceClaims", "pods may not use devices", OPERATOR),
    ("schedulingGates", "the gate would never open", "remove it"),
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
        report.add(format!("{context}.sysctls"), "pods may not change kernel settings", "remove it");
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

/// The deprecated spelling `serviceAccount` is still effective.
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

/// Rejects tolerations for nodes of the control plane.
fn tolerations(spec: &Value, path: &str, report: &mut ViolationList) {
    for (at, item) in items(spec, "tolerations", path) {
        let key = text(item, "key");
        if key.is_empty() || key.starts_with("node-role.kubernetes.io/") {
            let help = "name the taint of the nodes that you mean";
            report.add(at, "this allows nodes of the control plane", help);
        }
    }
}
