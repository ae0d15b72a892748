//! Checks of manifests that the API server cannot make: kinds, namespaces, and what is reserved for a task.
//!
//! The admission policy of the relay's chart and Pod Security enforce the rules for pods.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::podspec::policy::{ClusterPolicy, ask_operator, full_kind, kind_fix, listed, shown};
use crate::podspec::reserved::{RESERVED_DOMAIN, is_reserved, is_reserved_key};
use crate::podspec::{PodspecViolation, ViolationList, below};

/// Fields of the API server or the garbage collector. A generated name would differ in each attempt.
const NOT_GIVEN: &str = "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName \
    generation managedFields ownerReferences resourceVersion selfLink uid";

/// The field of a namespace. `bind` has a list of its own for it.
const NAMESPACE: &str = "metadata.namespace";
/// The fields of an object of `bind`. A `type` could let the API server make a token of an account.
const BOUND_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "data"];

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
    reserved(manifest, allowed, &mut report);
    report.0
}

/// Returns the violations of a manifest of `bind`: a Secret or a ConfigMap in one of the `bindNamespaces`.
pub fn bound_violations(manifest: &Value, allowed: &ClusterPolicy) -> Vec<PodspecViolation> {
    let kinds = ["ConfigMap", "Secret"].map(str::to_owned).into();
    let own = ClusterPolicy { kinds, cluster_kinds: BTreeSet::new(), ..allowed.clone() };
    let mut report = ViolationList(manifest_violations(manifest, &own));
    report.0.retain(|violation| violation.path != NAMESPACE);
    for (field, _) in manifest.as_object().into_iter().flatten() {
        if !BOUND_FIELDS.contains(&field.as_str()) && field != "status" {
            report.add(field, "an object of `bind` has only `data`", "remove it");
        }
    }
    let namespace = text(&manifest["metadata"], "namespace");
    if !allowed.bind_namespaces.contains(namespace) {
        let (shown, listed) = (shown(namespace), listed(allowed.bind_namespaces.iter()));
        let why = format!(
            "`bind` may not write into the namespace `{shown}` by the policy of the cluster (`bindNamespaces`: {listed})"
        );
        let help = match allowed.is_closed(namespace) {
            true => "use another one: nothing is written into those of Kubernetes and of the relay".to_owned(),
            false => ask_operator(&format!("--bind-namespace {namespace}"), namespace),
        };
        report.add(NAMESPACE, why, help);
    }
    report.0
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn place(manifest: &Value, namespace: &str, allowed: &ClusterPolicy, report: &mut ViolationList) {
    let version = text(manifest, "apiVersion");
    let (kinds, key, place) = match namespace {
        "" => (&allowed.cluster_kinds, "clusterKinds", " outside of a namespace"),
        _ => (&allowed.kinds, "kinds", ""),
    };
    let full = full_kind(version, text(manifest, "kind"));
    let has_group = version.rsplit_once('/').is_some_and(|(group, _)| kinds.contains(&format!("*.{group}")));
    if !kinds.contains(&full) && !has_group {
        let help = kind_fix(&full, !namespace.is_empty());
        let (kind, listed) = (shown(&full), listed(kinds.iter()));
        let why = format!("objects of the kind `{kind}` are not allowed{place} by the policy of the cluster");
        report.add("kind", format!("{why} (`{key}`: {listed})"), help);
    }
    if !namespace.is_empty() {
        report.0.extend(allowed.namespace_violation(namespace));
    }
}

/// Reports labels and annotations of the reserved domain, by which the pods of a task are found, and references to
/// reserved names. Such Secrets contain scripts, inputs and outputs, also those of other targets.
fn reserved(manifest: &Value, allowed: &ClusterPolicy, report: &mut ViolationList) {
    visit(manifest, "", "", &mut |holder, field, path, key| {
        if matches!(field, "labels" | "annotations") && is_reserved_key(key) {
            report.add(format!("{path}[{key}]"), format!("`{RESERVED_DOMAIN}/` is reserved"), "use another key");
        }
        let named = reference(holder, field, key).map(|(_, name)| name);
        if let Some(name) = named.filter(|name| is_reserved(name) && !allowed.secrets.contains(*name)) {
            report.add(below(path, key), format!("the name `{name}` is reserved"), "use one of your own");
        }
    });
}

/// Returns kind, namespace and name of the Secrets, ConfigMaps and claims that a part of a manifest names, also in fields of
/// custom kinds that are similar to those of Kubernetes. `namespace` is that of the manifest. An object whose namespace is
/// named is returned in both, because controllers ignore that field in many namespaced kinds.
pub fn references<'a>(part: &'a Value, namespace: &'a str) -> BTreeSet<(&'static str, &'a str, &'a str)> {
    let mut found = BTreeSet::new();
    visit(part, "", "", &mut |holder, field, _, key| {
        let Some((kind, name)) = reference(holder, field, key) else { return };
        let named = ["namespace", "secretNamespace"].into_iter().filter_map(|key| holder[key].as_str());
        found.extend(named.chain([namespace]).map(|namespace| (kind, namespace, name)));
    });
    found
}

/// Returns kind and name of the object that the text at `key` of a map names. `field` has the map or its list.
fn reference<'a>(holder: &'a Value, field: &str, key: &str) -> Option<(&'static str, &'a str)> {
    let (key, field, name) = (key.to_ascii_lowercase(), field.to_ascii_lowercase(), holder[key].as_str()?);
    let field = field.trim_end_matches('s').trim_end_matches("ref").trim_end_matches("key");
    let names = |kind: &str| key.ends_with(&format!("{kind}name")) || (key == "name" && field.ends_with(kind));
    let kinds = [("Secret", "secret"), ("ConfigMap", "configmap"), ("PersistentVolumeClaim", "claim")];
    let is_named = |(kind, text): &(&str, &str)| names(text) || (key == "name" && holder["kind"] == *kind);
    kinds.into_iter().find(is_named).map(|(kind, _)| (kind, name))
}

/// Calls `each` for each key of each map, with the map, its field or that of its list, and its path.
fn visit<'a>(value: &'a Value, field: &str, path: &str, each: &mut impl FnMut(&'a Value, &str, &str, &str)) {
    match value {
        Value::Object(map) => {
            // The data of a Secret or a ConfigMap can have any keys, and Kubernetes reads no reference in it.
            let has_data = path.is_empty() && value["apiVersion"] == "v1";
            let is_data = |key: &str| has_data && ["data", "stringData", "binaryData"].contains(&key);
            for (key, inner) in map.iter().filter(|(key, _)| !is_data(key)) {
                each(value, field, path, key);
                visit(inner, key, &below(path, key), each);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| number.to_string(), str::to_owned);
                visit(item, field, &format!("{path}[{name}]"), each);
            }
        }
        _ => {}
    }
}
