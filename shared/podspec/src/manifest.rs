//! Checks of manifests that the API server cannot make: kinds, namespaces, and what is reserved for a task.
//!
//! The admission policy of the relay's chart and Pod Security enforce the rules for pods.

use serde_json::Value;

use crate::policy::{ClusterPolicy, ask_operator, listed, shown};
use crate::reserved::{RESERVED_DOMAIN, is_reserved, is_reserved_key};
use crate::violation::{PodspecViolation, ViolationList, below};

/// Fields of the API server or the garbage collector. A generated name would differ in each attempt.
const NOT_GIVEN: &str = "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName \
    generation managedFields ownerReferences resourceVersion selfLink uid";

/// Fields whose `name` names a Secret or a ConfigMap.
const HOLDERS: [&str; 7] =
    ["configMap", "configMapKeyRef", "configMapRef", "imagePullSecrets", "secret", "secretKeyRef", "secretRef"];

/// Returns the violations of a manifest.
pub fn manifest_violations(manifest: &Value, allowed: &ClusterPolicy) -> Vec<PodspecViolation> {
    let mut report = ViolationList::default();
    let metadata = &manifest["metadata"];
    place(manifest, text(metadata, "namespace"), allowed, &mut report);
    for field in NOT_GIVEN.split(' ').filter(|field| !metadata[field].is_null()) {
        report.add(format!("metadata.{field}"), "a manifest may not set it", "remove it");
    }
    if !manifest["status"].is_null() {
        report.add("status", "the cluster sets the status", "remove it");
    }
    let name = text(metadata, "name");
    if is_reserved(name) {
        report.add("metadata.name", format!("the name `{name}` is reserved"), "give it another name");
    }
    reserved(manifest, "", "", allowed, &mut report);
    report.0
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn place(manifest: &Value, namespace: &str, allowed: &ClusterPolicy, report: &mut ViolationList) {
    let (kind, group) = (text(manifest, "kind"), text(manifest, "apiVersion").rsplit_once('/').map(|(group, _)| group));
    let (kinds, key, place) = match namespace {
        "" => (&allowed.cluster_kinds, "clusterKinds", " outside of a namespace"),
        _ => (&allowed.kinds, "kinds", ""),
    };
    let full = group.map_or_else(|| kind.to_owned(), |group| format!("{kind}.{group}"));
    if !kinds.contains(&full) && !group.is_some_and(|group| kinds.contains(&format!("*.{group}"))) {
        let help = match namespace {
            "" => "ask its operator to add it to the value `policy.clusterKinds` of the chart".to_owned(),
            _ => ask_operator(&format!("--kind {full}"), &full),
        };
        let (kind, listed) = (shown(&full), listed(kinds.iter()));
        let why = format!("objects of the kind `{kind}` are not allowed{place} by the policy of the cluster");
        report.add("kind", format!("{why} (`{key}`: {listed})"), help);
    }
    if !namespace.is_empty() {
        report.0.extend(allowed.namespace_violation(namespace));
    }
}

/// Reports labels and annotations of the reserved domain, by which the pods of a task are found, and references to
/// reserved names. Such Secrets contain scripts, inputs and outputs, also those of other targets. `field` is the field
/// of the value, or that of its list.
fn reserved(value: &Value, field: &str, path: &str, allowed: &ClusterPolicy, report: &mut ViolationList) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if matches!(field, "labels" | "annotations") && is_reserved_key(key) {
                    report.add(
                        format!("{path}[{key}]"),
                        format!("`{RESERVED_DOMAIN}/` is reserved"),
                        "use another key",
                    );
                }
                let refers =
                    matches!(key.as_str(), "secretName" | "claimName") || (key == "name" && HOLDERS.contains(&field));
                let at = below(path, key);
                match inner.as_str() {
                    Some(name) if refers && is_reserved(name) && !allowed.secrets.contains(name) => {
                        report.add(at, format!("the name `{name}` is reserved"), "use one of your own");
                    }
                    _ => reserved(inner, key, &at, allowed, report),
                }
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| number.to_string(), str::to_owned);
                reserved(item, field, &format!("{path}[{name}]"), allowed, report);
            }
        }
        _ => {}
    }
}
