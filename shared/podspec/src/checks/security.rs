//! Rules over security contexts.

use serde_json::Value;

use super::{is_set, text};
use crate::violation::ViolationList;

/// Types of SELinux that the baseline level leaves.
const SELINUX: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// What is refused in the context of a pod and in that of a container.
pub(super) fn check(context: &Value, path: &str, report: &mut ViolationList) {
    for profile in ["seccompProfile", "appArmorProfile"] {
        if text(&context[profile], "type") == "Unconfined" {
            let help = "take it out, or write `RuntimeDefault`";
            report.add(format!("{path}.{profile}.type"), "`Unconfined` takes the profile away", help);
        }
    }
    let selinux = &context["seLinuxOptions"];
    let kind = text(selinux, "type");
    if !SELINUX.contains(&kind) {
        report.add(format!("{path}.seLinuxOptions.type"), format!("`{kind}` is no container's"), "take it out");
    }
    for field in ["user", "role"].into_iter().filter(|field| is_set(&selinux[field])) {
        report.add(format!("{path}.seLinuxOptions.{field}"), "it is not a pod's to choose", "take it out");
    }
    if is_set(&context["windowsOptions"]["hostProcess"]) {
        let path = format!("{path}.windowsOptions.hostProcess");
        report.add(path, "a process of the node is not a pod's", "take it out");
    }
}

/// What the restricted level asks beyond the baseline.
pub(super) fn restricted(container: &Value, pod: &Value, path: &str, report: &mut ViolationList) {
    let own = &container["securityContext"];
    let path = format!("{path}.securityContext");
    // A container's own field counts where it has one.
    let said = |field: &str| if own[field].is_null() { &pod[field] } else { &own[field] };
    if said("runAsNonRoot") != true {
        report.add(format!("{path}.runAsNonRoot"), "it may run as root", "write `runAsNonRoot: true`");
    }
    if said("runAsUser") == 0 {
        report.add(format!("{path}.runAsUser"), "it runs as root", "write another user's number");
    }
    if own["allowPrivilegeEscalation"] != false {
        let why = "a process may not gain more rights than its parent";
        report.add(format!("{path}.allowPrivilegeEscalation"), why, "write `allowPrivilegeEscalation: false`");
    }
    let dropped = own["capabilities"]["drop"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !dropped.iter().any(|name| name == "ALL") {
        report.add(format!("{path}.capabilities.drop"), "capabilities are left", "write `drop: [ALL]`");
    }
    if !["RuntimeDefault", "Localhost"].contains(&text(said("seccompProfile"), "type")) {
        let help = "write `seccompProfile: {type: RuntimeDefault}`";
        report.add(format!("{path}.seccompProfile"), "there is no seccomp profile", help);
    }
}
