//! Rules over a container.

use serde_json::Value;

use super::{is_set, items, security, text};
use crate::violation::ViolationList;

pub(super) fn check(container: &Value, path: &str, report: &mut ViolationList) {
    let context = &container["securityContext"];
    let at = format!("{path}.securityContext");
    security::check(context, &at, report);
    if is_set(&context["privileged"]) {
        report.add(format!("{at}.privileged"), "a privileged container is the node", "take it out");
    }
    if is_set(&context["allowPrivilegeEscalation"]) {
        let why = "a process may not gain more rights than its parent";
        report.add(format!("{at}.allowPrivilegeEscalation"), why, "take it out");
    }
    let added = context["capabilities"]["add"].as_array().map(Vec::as_slice).unwrap_or_default();
    for capability in added.iter().filter_map(Value::as_str) {
        // The one that the restricted level leaves.
        if !["NET_BIND_SERVICE", "CAP_NET_BIND_SERVICE"].contains(&capability) {
            let why = format!("the capability `{capability}` is not allowed");
            report.add(format!("{at}.capabilities.add"), why, "take it out");
        }
    }
    let proc_mount = text(context, "procMount");
    if !["", "Default"].contains(&proc_mount) {
        report.add(format!("{at}.procMount"), format!("`{proc_mount}` shows the node's `/proc`"), "take it out");
    }
    for (at, port) in items(container, "ports", path) {
        for field in ["hostPort", "hostIP"].into_iter().filter(|field| is_set(&port[field])) {
            let help = "take it out; pods reach it by its address or a Service";
            report.add(format!("{at}.{field}"), "ports of the node are not a pod's", help);
        }
    }
    for (at, mount) in items(container, "volumeMounts", path) {
        if text(mount, "mountPropagation") == "Bidirectional" {
            report.add(format!("{at}.mountPropagation"), "mounts would reach the node", "take it out");
        }
    }
    if is_set(&container["resources"]["claims"]) {
        let help = "take it out";
        report.add(format!("{path}.resources.claims"), "devices are not given to pods here", help);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        requests(&container[probe], &format!("{path}.{probe}"), report);
    }
    for hook in ["postStart", "preStop"] {
        requests(&container["lifecycle"][hook], &format!("{path}.lifecycle.{hook}"), report);
    }
}

/// The kubelet sends these, from the node: to the pod itself and nowhere else.
fn requests(probe: &Value, path: &str, report: &mut ViolationList) {
    for kind in ["httpGet", "tcpSocket"] {
        if is_set(&probe[kind]["host"]) {
            let help = "leave `host` out: it is the pod's own address";
            report.add(format!("{path}.{kind}.host"), "the node would send requests for the pod", help);
        }
    }
}
