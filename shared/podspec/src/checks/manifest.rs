//! Rules over a whole manifest, with the pods that are in it.

use serde_json::Value;

use super::{check_template, metadata, text};
use crate::ClusterPolicy;
use crate::reserved::{RESERVED_DOMAIN, is_our_key, is_reserved};
use crate::violation::{PodspecViolation, ViolationList, below};
use crate::{fields, patch_schema};

/// What the API server or the garbage collector decides. A name that the server makes up would be another at each try.
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

/// Where a kind holds a pod template; the empty path for the object itself.
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

/// What is not allowed of an object's manifest: its kind, its namespace, its metadata, its pods (whose fields have to be known:
/// one that a newer Kubernetes has is not judged, so it is refused). Kinds that hold pods in
/// a form of their own (workflows, operators' resources) are judged by their kind alone: who allows such a kind allows
/// what its controller makes of it.
pub fn manifest_violations(manifest: &Value, allowed: &ClusterPolicy) -> Vec<PodspecViolation> {
    let mut report = ViolationList::default();
    let version = text(manifest, "apiVersion");
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = text(manifest, "kind");
    let namespace = text(&manifest["metadata"], "namespace");
    place(kind, group, namespace, allowed, &mut report);
    own(&manifest["metadata"], &mut report);
    if !manifest["status"].is_null() {
        report.add("status", "the cluster says how an object is", "take it out");
    }
    if group == "apps" && kind == "ControllerRevision" {
        report.add("data", "it holds pods that nobody judges", "use the object that is revised");
    }
    if group.is_empty() && kind == "Secret" && CREDENTIALS.contains(&text(manifest, "type")) {
        let why = "the control plane would make a credential of it";
        report.add("type", why, "take it out; use a `serviceAccountName` that is allowed");
    }
    if group.is_empty() && kind == "Service" && super::is_set(&manifest["spec"]["externalIPs"]) {
        let why = "it would take the traffic of addresses that are not its own";
        report.add("spec.externalIPs", why, "take it out; use a load balancer");
    }
    if let Some((_, _, path)) = PODS.iter().find(|(of, name, _)| *of == group && *name == kind) {
        if path.is_empty() {
            // Its own metadata was judged above, and is more than a template's.
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

/// Templates of other things that carry metadata: of the Jobs of a CronJob, of the claims of a StatefulSet.
fn templates(manifest: &Value, namespace: &str, report: &mut ViolationList) {
    let job = &manifest["spec"]["jobTemplate"]["metadata"];
    metadata::of_pod(job, &Value::Null, namespace, "spec.jobTemplate.metadata", report);
    for (at, claim) in super::items(&manifest["spec"], "volumeClaimTemplates", "spec") {
        let mut unnamed = claim["metadata"].clone();
        unnamed.as_object_mut().map(|it| it.remove("name"));
        metadata::of_pod(&unnamed, &Value::Null, namespace, &format!("{at}.metadata"), report);
    }
}

/// A template as it is to be, and no patch of one.
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
                    let help = "write what the template is to be";
                    report.add(&at, "directives are for what is merged, and this is applied", help);
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
        report.add(format!("metadata.{field}"), "a manifest may not say it", "take it out");
    }
    let name = text(metadata, "name");
    if is_reserved(name) {
        report.add("metadata.name", format!("the name `{name}` is reserved"), "give it another name");
    }
    for part in ["labels", "annotations"] {
        for (key, _) in metadata[part].as_object().into_iter().flatten().filter(|(key, _)| is_our_key(key)) {
            report.add(format!("metadata.{part}[{key}]"), format!("`{RESERVED_DOMAIN}/` is ours"), "use another key");
        }
    }
}
