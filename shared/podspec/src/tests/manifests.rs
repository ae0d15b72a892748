//! Tests manifests that are allowed, and violations with their paths.

use serde::Deserialize;
use serde_json::{Value, json};

use super::base::yaml;
use crate::{ClusterPolicy, PodSecurityLevel, PodspecViolation, manifest_violations};

#[derive(Deserialize)]
struct ManifestCases {
    allowed: Vec<Value>,
    violations: Vec<(Value, String)>,
}

fn of(manifest: &Value) -> Vec<PodspecViolation> {
    let allowed = json!({
        "namespaces": {"units": []}, "kinds": ["ConfigMap", "Pod", "*.apps", "*.cache.example.org"],
        "clusterKinds": ["Namespace"], "secrets": ["ebb-out-own"],
    });
    let mut metadata = json!({"name": "a", "namespace": "units"});
    metadata.as_object_mut().unwrap().extend(manifest["metadata"].as_object().cloned().unwrap_or_default());
    let mut manifest = manifest.clone();
    manifest["metadata"] = metadata;
    manifest_violations(&manifest, &serde_json::from_value(allowed).unwrap())
}

/// Exactly one violation at each path, with a reason and help.
#[test]
fn manifests_that_are_rejected() {
    let cases: ManifestCases = yaml(include_str!("../../tests/manifests.yaml"));
    for fine in &cases.allowed {
        assert_eq!(of(fine), [], "{fine}");
    }
    for (attempt, path) in &cases.violations {
        let found = of(attempt);
        let has_text = found.iter().all(|it| it.why.len() > 10 && it.help.len() >= "remove it".len());
        assert!(found.len() == 1 && found[0].path == *path && has_text, "{attempt}\n  {path}\n  {found:?}");
    }
    assert_eq!(manifest_violations(&Value::Null, &ClusterPolicy::default()).len(), 1);
    assert_eq!(ClusterPolicy::default().pod_security_level, PodSecurityLevel::Restricted);
}
