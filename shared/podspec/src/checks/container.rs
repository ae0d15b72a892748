use serde_json::Value;

use super::{is_set, items, security, text};
use crate::violation::ViolationList;

pub(super) fn check(container: &Value, path: &str, report: &mut ViolationList) {
    let context = &container["securityContext"];
    let at = format!("{path}.securityContext");
    security::check(context, &at, report);
    if is_set(&context["privileged"]) {
        report.add(format!("{at}.privileged"), "a privileged container controls the node", "remove it");
    }
    if is_set(&context["allowPrivilegeEscalation"]) {
        let why = "a process may not gain more rights than its parent";
        report.add(format!("{at}.allowPrivilegeEscalation"), why, "remove it");
    }
    let added = context["capabilities"]["add"].as_array().map(Vec::as_slice).unwrap_or_default();
    for capability in added.iter().filter_map(Value::as_str) {
        // The only capability that the restricted level allows.
        if !["NET_BIND_SERVICE", "CAP_NET_BIND_SERVICE"].contains(&capability) {
            let why = format!("the capability `{capability}` is not allowed");
            report.add(format!("{at}.capabilities.add"), why, "remove it");
        }
    }
    let proc_mount = text(context, "procMount");
    if !["", "Default"].contains(&proc_mount) {
        report.add(format!("{at}.procMount"), format!("`{proc_mount}` shows the node's `/proc`"), "remove it");
    }
    for (at, port) in items(container, "ports", path) {
        for field in ["hostPort", "hostIP"].into_iter().filter(|field| is_set(&port[field])) {
            let help = "remove it; pods reach it by its address or a Service";
            report.add(format!("{at}.{field}"), "pods may not use ports of the node", help);
        }
    }
    for (at, mount) in items(container, "volumeMounts", path) {
        if text(mount, "mountPropagation") == "Bidirectional" {
            report.add(format!("{at}.mountPropagation"), "mounts would reach the node", "remove it");
        }
    }
    if is_set(&container["resources"]["claims"]) {
        let help = "remove it";
        report.add(format!("{path}.resources.claims"), "pods may not use devices", help);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        requests(&container[probe], &format!("{path}.{probe}"), report);
    }
    for hook in ["postStart", "preStop"] {
        requests(&container["lifecycle"][hook], &format!("{path}.lifecycle.{hook}"), report);
    }
}

/// The kubelet sends these requests from the node, so they may only go to the pod itself.
fn requests(probe: &Value, path: &str, report: &mut ViolationList) {
    for kind in ["httpGet", "tcpSocket"] {
        if is_set(&probe[kind]["host"]) {
            let help = "leave `host` out: it is the pod's own address";
            report.add(format!("{path}.{kind}.host"), "the node would send requests for the pod", help);
        }
    }
}
