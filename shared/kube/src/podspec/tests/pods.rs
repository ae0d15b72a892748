//! Pods of authors, checked with the policy of a cluster.

use serde::Deserialize;
use serde_json::{Value, json};

use super::yaml;
use crate::podspec::pod_checks::POD_FIELDS;
use crate::podspec::{ClusterPolicy, PodOrigin, pod_violations};

fn policy() -> ClusterPolicy {
    yaml("namespaces: {units: [builder], base: {level: baseline}, open: {level: privileged}}")
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
    #[serde(flatten)]
    pod: CheckedPod,
    violations: Vec<String>,
}

#[test]
fn pods_have_exactly_these_violations() {
    for PodCase { namespace, pod, violations } in yaml::<Vec<PodCase>>(include_str!("../../../tests/pods.yaml")) {
        let (manifest, origin) = match pod {
            CheckedPod::Script(spec) => (json!({"spec": spec}), PodOrigin::Script),
            CheckedPod::Manifest(manifest) => (manifest, PodOrigin::Manifest),
        };
        let found = pod_violations(&manifest, &namespace, &policy(), origin);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, violations, "{namespace}: {manifest}");
    }
}

#[test]
fn classes_are_those_of_the_policy() {
    let wanted = json!({"spec": {"priorityClassName": "high", "runtimeClassName": "gvisor"}});
    let mut allowed: ClusterPolicy = yaml("{namespaces: {units: []}, runtimeClasses: [gvisor]}");
    // A relay of an earlier version reports no classes.
    assert_eq!(pod_violations(&wanted, "units", &allowed, PodOrigin::Script), []);
    allowed.unit_namespace = Some("units".to_owned());
    let found = pod_violations(&wanted, "units", &allowed, PodOrigin::Script);
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        ["spec.priorityClassName: the priority class high is not allowed by the policy of the cluster \
          (`priorityClasses`: none); ask its operator to add it to the value `policy.priorityClasses` of the chart"]
    );
}

/// The texts are those of the API server.
#[test]
fn the_texts_are_those_of_the_admission_policy() {
    let rules = include_str!("../../../../../infra/relay/chart/rules.yaml");
    let rules = rules.split_whitespace().collect::<Vec<_>>().join(" ");
    let fields: Vec<_> = POD_FIELDS.split(' ').map(|field| format!("'{field}'")).collect();
    let fields = format!("[{}]", fields.join(", "));
    for text in include_str!("../../../tests/admission_texts.txt").lines().chain([&*fields]) {
        assert!(rules.contains(text), "{text}");
    }
}
