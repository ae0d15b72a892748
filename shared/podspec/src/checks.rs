//! Rules of the cluster's operator.
//!
//! Source of most rules: the *Pod Security Standards* of the Kubernetes documentation, levels baseline and restricted.
//! Further rules exist because the author of a pod is unknown to the operator: service accounts and their tokens,
//! nodes, priorities, devices, and annotations that other programs obey.

mod container;
mod manifest;
mod metadata;
mod pod;
mod protections;
mod references;
mod security;
mod volume;

pub use manifest::manifest_violations;

use serde_json::Value;

use crate::ClusterPolicy;
use crate::violation::{PodspecViolation, ViolationList};

/// Returns the violations of a pod template in a namespace, in the order of the template. `base` is the template below
/// an overlay, or `Value::Null`: parts that are unchanged from it may name reserved Secrets, and its protections must
/// stay.
pub fn template_violations(
    template: &Value,
    base: &Value,
    namespace: &str,
    allowed: &ClusterPolicy,
) -> Vec<PodspecViolation> {
    let mut report = ViolationList::default();
    if !allowed.namespaces.contains_key(namespace) {
        let why = format!("pods may not run in the namespace `{namespace}`");
        report.add("metadata.namespace", why, "use one that the operator of the cluster allows");
    }
    check_template(template, base, namespace, allowed, "", &mut report);
    report.0
}

/// Checks a template at a path by all rules except the namespace.
fn check_template(
    template: &Value,
    base: &Value,
    namespace: &str,
    allowed: &ClusterPolicy,
    path: &str,
    report: &mut ViolationList,
) {
    let at = |part: &str| crate::violation::below(path, part);
    metadata::of_pod(&template["metadata"], &base["metadata"], namespace, &at("metadata"), report);
    pod::check(&template["spec"], namespace, allowed, &at("spec"), report);
    protections::check(&template["spec"], &base["spec"], &at("spec"), report);
    references::check(&template["spec"], &base["spec"], allowed, &at("spec"), report);
}

/// Returns the items of a list with their paths.
fn items<'a>(of: &'a Value, list: &str, path: &str) -> impl Iterator<Item = (String, &'a Value)> {
    let items = of[list].as_array().map(Vec::as_slice).unwrap_or_default();
    let path = format!("{path}.{list}");
    items.iter().enumerate().map(move |(number, item)| {
        let name = item["name"].as_str().map_or_else(|| number.to_string(), str::to_owned);
        (format!("{path}[{name}]"), item)
    })
}

/// Returns the text of a field, or an empty text.
fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

/// Returns true if a value is not null, empty, zero or false.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) => true,
    }
}
