//! Rules for a whole manifest with its pods.

use serde_json::Value;

use super::{check_template, metadata, text};
use crate::reserved::{RESERVED_DOMAIN, is_our_key, is_reserved};
use crate::violation::{PodspecViolation, ViolationList, below};
use crate::{ClusterPolicy, fields, patch_schema};

/// Fields of the API server or the garbage collector. A generated name would differ in each attempt.
const NOT_GIVEN: [&str; 11] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The path of the pod template by kind. An empty path is the object itself.
const PODS: [(&str, &str, &str); 9] = [
    ("", "Pod", ""),
    ("", "PodTemplate", "template"),
    ("", "ReplicationController", "spec.template"),
    ("apps", "DaemonSet", "spec.template"),
    ("apps", "Deployment", "spec.template"),
    ("apps", "ReplicaSet", "spec.template"),
    ("apps", "StatefulSet", "spec.template"),
    ("batch", "CronJob", "spec.jobTemplate.spec.template"),
    ("batch", "Job", "spec.template"),
];

/// Types of Secrets that the control plane turns into credentials.
const CREDENTIALS: [&str; 2] = ["bootstrap.kubernetes.io/token", "kubernetes.io/service-account-token"];

/// Returns the violations of a manifest: kind, namespace, metadata and pods. An unknown field of a pod is a violation,
/// because a newer Kubernetes may give it a meaning. Kinds with pods in another form (workflows, resources of
/// operators) are checked by their kind only: allowing the kind allows whatever its controller creates.
pub fn manifest_violations(manifest: &Value, allowed: &ClusterPolicy) -> Vec<PodspecViolation> {
    let mut report = ViolationList::default();
    let version = text(manifest, "apiVersion");
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = text(manifest, "kind");
    let namespace = text(&manifest["metadata"], "namespace");
    place(kind, group, namespace, allowed, &mut report);
    own(&manifest["metadata"], &mut report);
    if !manifest["status"].is_null() {
        report.add("status", "the cluster sets the status", "remove it");
    }
    if group == "apps" && kind == "ControllerRevision" {
        report.add("data", "it contains pods that are not checked", "use the object of the revision");
    }
    if group.is_empty() && kind == "Secret" && CREDENTIALS.contains(&text(manifest, "type")) {
        let why = "the control plane would turn it into a credential";
        report.add("type", why, "remove it; use a `serviceAccountName` that is allowed");
    }
    if group.is_empty() && kind == "Service" && super::is_set(&manifest["spec"]["externalIPs"]) {
        let why = "it would take the traffic of addresses that are not its own";
        report.add("spec.externalIPs", why, "remove it; use a load balancer");
    }
    if let Some((_, _, path)) = PODS.iter().find(|(of, name, _)| *of == group && *name == kind) {
        if path.is_empty() {
            // The pod's own metadata has more fields than a template's and was checked above.
            let parts = ["labels", "annotations"].map(|part| (part.to_owned(), manifest["metadata"][part].clone()));
            let parts: Value = Value::Object(parts.into_iter().collect());
            let pod = serde_json::json!({"metadata": parts, "spec": manifest["spec"]});
            let base = serde_json::json!({"metadata": parts});
            whole(&pod, "", &mut report);
            check_template(&pod, &base, namespace, allowed, "", &mut report);
        } else {
            let template = path.split('.').fold(manifest, |value, key| &value[key]);
            whole(template, path, &mut report);
            check_template(template, &Value::Null, namespace, allowed, path, &mut report);
            templates(manifest, namespace, &mut report);
        }
    }
    report.0
}

/// Checks further templates with metadata: Jobs of a CronJob, claims of a StatefulSet.
fn templates(manifest: &Value, namespace: &str, report: &mut ViolationList) {
    let job = &manifest["spec"]["jobTemplate"]["metadata"];
    metadata::of_pod(job, &Value::Null, namespace, "spec.jobTemplate.metadata", report);
    for (at, claim) in super::items(&manifest["spec"], "volumeClaimTemplates", "spec") {
        let mut unnamed = claim["metadata"].clone();
        unnamed.as_object_mut().map(|it| it.remove("name"));
        metadata::of_pod(&unnamed, &Value::Null, namespace, &format!("{at}.metadata"), report);
    }
}

/// Checks that a template is complete and not a patch.
fn whole(template: &Value, path: &str, report: &mut ViolationList) {
    patch_schema::check(template, fields::ROOT, path, report);
    directives(template, path, report);
}

fn directives(value: &Value, path: &str, report: &mut ViolationList) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let at = below(path, key);
                if key.starts_with('$') {
                    let help = "write the final template";
                    report.add(&at, "directives are only for merged templates", help);
                }
                directives(inner, &at, report);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                directives(item, &format!("{path}[{number}]"), report);
            }
        }
        _ => {}
    }
}

fn place(kind: &str, group: &str, namespace: &str, allowed: &ClusterPolicy, report: &mut ViolationList) {
    let help = "ask the operator of the cluster";
    let kinds = if namespace.is_empty() { &allowed.cluster_kinds } else { &allowed.kinds };
    if !ClusterPolicy::has_kind(kinds, kind, group) {
        let full = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let why = match namespace.is_empty() {
            true => format!("objects of the kind `{full}` are not allowed outside of a namespace"),
            false => format!("objects of the kind `{full}` are not allowed"),
        };
        report.add("kind", why, help);
    }
    if !namespace.is_empty() && !allowed.namespaces.contains_key(namespace) {
        report.add("metadata.namespace", format!("the namespace `{namespace}` is not allowed"), help);
    }
}

fn own(metadata: &Value, report: &mut ViolationList) {
    for field in NOT_GIVEN.into_iter().filter(|field| !metadata[field].is_null()) {
        report.add(format!("metadata.{field}"), "a manifest may not set it", "remove it");
    }
    let name = text(metadata, "name");
    if is_reserved(name) {
        report.add("metadata.name", format!("the name `{name}` is reserved"), "give it another name");
    }
    for part in ["labels", "annotations"] {
        for (key, _) in metadata[part].as_object().into_iter().flatten().filter(|(key, _)| is_our_key(key)) {
            report.add(
                format!("metadata.{part}[{key}]"),
                format!("`{RESERVED_DOMAIN}/` is reserved"),
                "use another key",
            );
        }
    }
}
