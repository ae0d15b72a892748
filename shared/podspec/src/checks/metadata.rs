use serde_json::Value;

use crate::reserved::{RESERVED_DOMAIN, is_our_key};
use crate::violation::ViolationList;

/// Prefixes of annotations and labels that other programs obey, with their effects. Those of Kubernetes are older
/// spellings of fields that have rules of their own.
const OBEYED: [(&str, &str); 15] = [
    ("batch.kubernetes.io/", "it belongs to the Job"),
    ("controller-uid", "it belongs to the Job"),
    ("job-name", "it belongs to the Job"),
    ("kubernetes.io/config.", "it marks a static pod of the node"),
    ("container.apparmor.security.beta.kubernetes.io/", "it chooses the profile of AppArmor"),
    ("seccomp.security.alpha.kubernetes.io/", "it chooses the profile of seccomp"),
    ("container.seccomp.security.alpha.kubernetes.io/", "it chooses the profile of seccomp"),
    ("scheduler.alpha.kubernetes.io/", "it chooses nodes"),
    ("k8s.v1.cni.cncf.io/", "it adds networks"),
    ("io.kubernetes.cri-o.", "the container runtime obeys it"),
    ("io.katacontainers.", "the container runtime obeys it"),
    ("io.containers.", "the container runtime obeys it"),
    ("iam.amazonaws.com/", "it assumes a role in the cloud"),
    ("sidecar.istio.io/userVolume", "it adds volumes that are not checked"),
    ("sidecar.istio.io/proxyImage", "it chooses the image of the mesh"),
];

/// Checks the metadata of a template: only labels, annotations and its own namespace. Keys of the reserved domain are
/// rejected, because the pods of a task are found by them.
pub(super) fn of_pod(metadata: &Value, base: &Value, namespace: &str, path: &str, report: &mut ViolationList) {
    for (key, value) in metadata.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let repeated = key == "namespace" && value == namespace;
        if !repeated && !["annotations", "labels"].contains(&key.as_str()) {
            let why = format!("a pod template may not set `{key}`");
            report.add(format!("{path}.{key}"), why, "remove it; it has `labels` and `annotations`");
        }
    }
    obeyed(metadata, path, report);
    for part in ["labels", "annotations"] {
        for (key, value) in metadata[part].as_object().into_iter().flatten() {
            if is_our_key(key) && base[part].get(key) != Some(value) {
                report.add(
                    format!("{path}.{part}[{key}]"),
                    format!("`{RESERVED_DOMAIN}/` is reserved"),
                    "use another key",
                );
            }
        }
    }
}

fn obeyed(metadata: &Value, path: &str, report: &mut ViolationList) {
    for part in ["labels", "annotations"] {
        for (key, _) in metadata[part].as_object().into_iter().flatten() {
            if let Some((_, what)) = OBEYED.iter().find(|(start, _)| key.starts_with(start)) {
                report.add(format!("{path}.{part}[{key}]"), *what, "remove it");
            }
        }
    }
}
