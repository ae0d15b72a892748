//! Pods of authors, checked with the policy of a cluster.

use serde::Deserialize;
use serde_json::json;

use super::*;

fn policy() -> ClusterPolicy {
    let namespaces = "units: [builder], base: {level: baseline}, open: {level: privileged}";
    serde_saphyr::from_str(&format!("{{namespaces: {{{namespaces}}}, runtimeClasses: [gvisor]}}")).unwrap()
}

/// The pod of a script's template, or an object with pods.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum CheckedPod {
    Script(Value),
    Manifest(Value),
}

#[derive(Deserialize)]
struct PodCase {
    namespace: String,
    /// True if the relay has reported classes. One of an earlier version does not.
    #[serde(default)]
    classes: bool,
    #[serde(flatten)]
    pod: CheckedPod,
    violations: Vec<String>,
}

#[test]
fn pods_have_exactly_these_violations() {
    let cases: Vec<PodCase> = serde_saphyr::from_str(include_str!("../../../tests/policies/pods.yaml")).unwrap();
    for PodCase { namespace, classes, pod, violations } in cases {
        let (manifest, origin) = match pod {
            CheckedPod::Script(spec) => (json!({"spec": spec}), PodOrigin::Script),
            CheckedPod::Manifest(manifest) => (manifest, PodOrigin::Manifest),
        };
        let allowed = ClusterPolicy { unit_namespace: classes.then(|| "units".to_owned()), ..policy() };
        let found = pod_violations(&manifest, &namespace, &allowed, origin);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, violations, "{namespace}: {manifest}");
    }
}

/// The texts are those of the API server.
#[test]
fn the_texts_are_those_of_the_admission_policy() {
    let rules = include_str!("../../../../../infra/relay/chart/rules.yaml");
    let rules = rules.split_whitespace().collect::<Vec<_>>().join(" ");
    let fields: Vec<_> = POD_FIELDS.split(' ').map(|field| format!("'{field}'")).collect();
    let fields = format!("[{}]", fields.join(", "));
    for text in include_str!("../../../tests/policies/admission_texts.txt").lines().chain([&*fields]) {
        assert!(rules.contains(text), "{text}");
    }
}
