//! Secrets and ConfigMaps with reserved names contain scripts, inputs and outputs, also those of other targets.

use serde_json::Value;

use crate::ClusterPolicy;
use crate::reserved::is_reserved;
use crate::violation::{ViolationList, below};

/// Fields whose `name` names a Secret or a ConfigMap.
const HOLDERS: [&str; 7] =
    ["configMap", "configMapKeyRef", "configMapRef", "imagePullSecrets", "secret", "secretKeyRef", "secretRef"];

/// Reports references to reserved names that are not in the base.
pub(super) fn check(value: &Value, base: &Value, allowed: &ClusterPolicy, path: &str, report: &mut ViolationList) {
    walk(value, base, "", allowed, path, report);
}

fn walk(value: &Value, base: &Value, field: &str, allowed: &ClusterPolicy, path: &str, report: &mut ViolationList) {
    if value == base {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let at = below(path, key);
                let refers =
                    matches!(key.as_str(), "secretName" | "claimName") || (key == "name" && HOLDERS.contains(&field));
                match inner.as_str() {
                    Some(name) if refers && is_reserved(name) && !allowed.secrets.contains(name) => {
                        report.add(at, format!("the name `{name}` is reserved"), "use one of your own");
                    }
                    _ => walk(inner, &base[key], key, allowed, &at, report),
                }
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let name = item["name"].as_str();
                let ours = base.as_array().into_iter().flatten();
                let ours = ours.into_iter().find(|it| name.is_some() && it["name"].as_str() == name);
                let at = format!("{path}[{}]", name.map_or_else(|| number.to_string(), str::to_owned));
                walk(item, ours.unwrap_or(&Value::Null), field, allowed, &at, report);
            }
        }
        _ => {}
    }
}
