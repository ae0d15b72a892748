//! Tests manifests that are allowed, and violations with their paths.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::yaml;
use crate::podspec::{
    ClusterPolicy, PodSecurityLevel, PodspecViolation, bound_violations, manifest_violations, references,
};

#[derive(Deserialize)]
struct ManifestCases {
    allowed: Vec<Value>,
    violations: Vec<(Value, String)>,
    /// Parts of manifests, each with the objects that it names.
    references: Vec<(Value, Vec<String>)>,
    bound: Vec<(Map<String, Value>, Vec<String>)>,
}

fn of(manifest: &Value) -> Vec<PodspecViolation> {
    let kinds = "kinds: [ConfigMap, Pod, '*.apps', '*.cache.example.org'], clusterKinds: [Namespace]";
    let mut allowed: ClusterPolicy = yaml(&format!("{{namespaces: {{units: []}}, {kinds}}}"));
    allowed.secrets.insert("ebb-out-own".to_owned());
    let mut metadata = json!({"name": "a", "namespace": "units"});
    metadata.as_object_mut().unwrap().extend(manifest["metadata"].as_object().cloned().unwrap_or_default());
    let mut manifest = manifest.clone();
    manifest["metadata"] = metadata;
    manifest_violations(&manifest, &allowed)
}

/// The kinds and namespaces of units do not count. The refusal names the key of the policy.
#[test]
fn bound_objects() {
    let allowed: ClusterPolicy = yaml("{namespaces: {units: []}, kinds: [Pod], bindNamespaces: [web]}");
    for (change, expected) in yaml::<ManifestCases>(include_str!("../../../tests/manifests.yaml")).bound {
        let mut manifest = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "web"}});
        manifest.as_object_mut().unwrap().extend(change);
        let found = bound_violations(&manifest, &allowed);
        let paths: Vec<&str> = found.iter().map(|it| &*it.path).collect();
        assert_eq!(paths, expected, "{manifest}");
        let is_namespace = paths.contains(&"metadata.namespace");
        assert!(!is_namespace || found[0].to_string().contains("`bindNamespaces`"), "{found:?}");
    }
}

/// Exactly one violation at each path, with a reason and help.
#[test]
fn manifests_that_are_rejected() {
    let cases: ManifestCases = yaml(include_str!("../../../tests/manifests.yaml"));
    for fine in &cases.allowed {
        assert_eq!(of(fine), [], "{fine}");
    }
    for (attempt, path) in &cases.violations {
        let found = of(attempt);
        let has_text = found.iter().all(|it| it.why.len() > 10 && it.help.len() >= "remove it".len());
        assert!(found.len() == 1 && found[0].path == *path && has_text, "{attempt}\n  {path}\n  {found:?}");
    }
    for (part, expected) in &cases.references {
        let found =
            references(part, "n").into_iter().map(|(kind, namespace, name)| format!("{kind} {namespace}/{name}"));
        assert_eq!(found.collect::<Vec<_>>(), *expected, "{part}");
    }
    assert_eq!(manifest_violations(&Value::Null, &ClusterPolicy::default()).len(), 1);
    assert_eq!(ClusterPolicy::default().pod_security_level, PodSecurityLevel::Restricted);
}
