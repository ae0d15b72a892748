//! Rules for security contexts.

use serde_json::Value;

use super::{is_set, text};
use crate::violation::ViolationList;

/// SELinux types that the baseline level allows.
const SELINUX: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// Checks rules for the contexts of pods and containers.
pub(super) fn check(context: &Value, path: &str, report: &mut ViolationList) {
    for profile in ["seccompProfile", "appArmorProfile"] {
        if text(&context[profile], "type") == "Unconfined" {
            let help = "remove it, or write `RuntimeDefault`";
            report.add(format!("{path}.{profile}.type"), "`Unconfined` disables the profile", help);
        }
    }
    let selinux = &context["seLinuxOptions"];
    let kind = text(selinux, "type");
    if !SELINUX.contains(&kind) {
        report.add(format!("{path}.seLinuxOptions.type"), format!("the type `{kind}` is not allowed"), "remove it");
    }
    for field in ["user", "role"].into_iter().filter(|field| is_set(&selinux[field])) {
        report.add(format!("{path}.seLinuxOptions.{field}"), "pods may not set it", "remove it");
    }
    if is_set(&context["windowsOptions"]["hostProcess"]) {
        let path = format!("{path}.windowsOptions.hostProcess");
        report.add(path, "pods may not run processes of the node", "remove it");
    }
}

/// Checks further rules of the restricted level.
pub(super) fn restricted(container: &Value, pod: &Value, path: &str, report: &mut ViolationList) {
    let own = &container["securityContext"];
    let path = format!("{path}.securityContext");
    // A field of the container overrides that of the pod.
    let effective = |field: &str| if own[field].is_null() { &pod[field] } else { &own[field] };
    if effective("runAsNonRoot") != true {
        report.add(format!("{path}.runAsNonRoot"), "it may run as root", "write `runAsNonRoot: true`");
    }
    if effective("runAsUser") == 0 {
        report.add(format!("{path}.runAsUser"), "it runs as root", "write another user's number");
    }
    if own["allowPrivilegeEscalation"] != false {
        let why = "a process may not gain more rights than its parent";
        report.add(format!("{path}.allowPrivilegeEscalation"), why, "write `allowPrivilegeEscalation: false`");
    }
    let dropped = own["capabilities"]["drop"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !dropped.iter().any(|name| name == "ALL") {
        report.add(format!("{path}.capabilities.drop"), "not all capabilities are dropped", "write `drop: [ALL]`");
    }
    if !["RuntimeDefault", "Localhost"].contains(&text(effective("seccompProfile"), "type")) {
        let help = "write `seccompProfile: {type: RuntimeDefault}`";
        report.add(format!("{path}.seccompProfile"), "there is no seccomp profile", help);
    }
}
