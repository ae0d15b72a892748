//! Documents, checked against the policy of a cluster.

use std::collections::BTreeMap;

use semver::Version;
use serde_json::json;

use super::compiling::fixtures::plugins;
use crate::compile::{self, BoundPlugin, policy_violations};
use crate::{ClusterPolicy, Diagnostic, DocumentVars, NoFiles, PluginDoc, PolicyRequest, load};

const PLUGIN: &str = include_str!("../../tests/policies/plugin.yaml");
const SANDBOX: &str = include_str!("../../tests/policies/sandbox.yaml");
/// The violations of both, each in one line with its help. The last one is that of the sandbox.
const VIOLATIONS: &str = include_str!("../../tests/policies/violations.txt");

fn policy() -> ClusterPolicy {
    let policy = json!({"namespaces": {"units": ["builder"]}, "kinds": ["ConfigMap"], "services": {}});
    serde_json::from_value(policy).unwrap()
}

fn plugin(text: &str) -> PluginDoc {
    plugins(&[text]).unwrap().remove(0)
}

/// Returns the violations in the cluster `eu`, each in one line with its help.
fn violations(requests: &[PolicyRequest]) -> Vec<String> {
    let policy = ClusterPolicy { relay_namespace: Some("other".to_owned()), ..policy() };
    let found = policy_violations(requests, |cluster| Some(("eu", &policy)).filter(|_| cluster == Some("eu")));
    let line = |found: &Diagnostic| format!("{}; {}", found.plain(), found.help.as_ref().unwrap());
    found.iter().map(line).collect()
}

#[test]
fn violations_of_a_plan_have_positions() {
    let sandbox = load::sandbox("sandbox.yaml", SANDBOX, &NoFiles, &DocumentVars::none()).unwrap();
    let (plugin, version) = (plugin(PLUGIN), Version::new(0, 0, 0));
    let bound = BoundPlugin { plugin: &plugin, version: &version, digest: "sha256:00" };
    let bound = BTreeMap::from(["r", "again"].map(|name| (name.to_owned(), bound)));
    let (_, _, requests) = compile::plan(&sandbox, &bound).unwrap();
    assert_eq!(violations(&requests), VIOLATIONS.lines().collect::<Vec<_>>());
}

#[test]
fn a_plugin_is_checked_alone() {
    let mut requests = compile::check_plugin(&plugin(PLUGIN)).unwrap().1;
    let clusters: Vec<_> = requests.iter().filter_map(|request| request.cluster.as_deref()).collect();
    assert_eq!(clusters, ["far"]);
    for request in &mut requests {
        request.cluster.get_or_insert("eu".to_owned());
    }
    let of_plugin = VIOLATIONS.lines().filter(|violation| violation.starts_with("plugin.yaml:"));
    assert_eq!(violations(&requests), of_plugin.collect::<Vec<_>>());
    assert_eq!(violations(&[]), [""; 0]);
}

/// Ebb does not run the image of this plugin, so its namespace and account are not needed.
#[test]
fn the_built_in_plugin_requests_nothing() {
    let text = include_str!("../../../../tests/tests/e2e/signadot/k8s-apply/plugin.yaml");
    let requests = |text: &str| compile::check_plugin(&plugin(text)).unwrap().1.len();
    assert_eq!(requests(text), 0);
    assert_eq!(requests(&text.replace("image: signadot/", "image: mirror/")), 1);
}

fn without_namespaces() -> PluginDoc {
    plugin(&PLUGIN.replace("    namespace: elsewhere\n", "").replace("    namespace: units\n", ""))
}

/// Returns the violations of the units that name no cluster.
fn violations_of_plugin(plugin: &PluginDoc, policy: &ClusterPolicy) -> String {
    let (_, requests) = compile::check_plugin(plugin).unwrap();
    policy_violations(&requests, |cluster| Some(("eu", policy)).filter(|_| cluster.is_none())).plain()
}

/// Units without a namespace run in the one that the relay has reported.
#[test]
fn the_namespace_of_units_decides_for_documents_without_one() {
    let mut policy = policy();
    policy.namespaces.entry("open".to_owned()).or_default();
    policy.unit_namespace = Some("units".to_owned());
    let found = violations_of_plugin(&without_namespaces(), &policy);
    for expected in
        ["plugin.yaml:12:29: ", "pods in units may not run as the service account admin", "may not set hostNetwork"]
    {
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn what_is_reserved_is_reported_before_the_run() {
    let text = PLUGIN.replace("{name: 'd-${resource.name}'", "{labels: {ebb.dev/unit: u}, name: 'd-${resource.name}'");
    let found = violations_of_plugin(&plugin(&text), &policy());
    assert!(found.contains("plugin.yaml:28:") && found.contains("`ebb.dev/` is reserved"), "{found}");

    let text = PLUGIN.replace("      spec:\n", "      metadata: {labels: {ebb.dev/unit: u}}\n      spec:\n");
    let found = plugins(&[&text]).unwrap_err().plain();
    assert!(found.contains("plugin.yaml:13:") && found.contains("`ebb.dev/` is reserved"), "{found}");
}

/// The check leaves out values that are known only at the run. It also leaves out what depends on the namespace of units, if
/// a relay of an earlier version does not report that namespace.
#[test]
fn what_is_not_certain_is_not_reported() {
    let policy: ClusterPolicy = serde_json::from_value(json!({
        "namespaces": {"a": {"level": "privileged"}, "other": []},
        "kinds": ["ConfigMap", "*.example.org"], "clusterKinds": ["Namespace"],
        "services": {"files": {"namespace": "a", "name": "s", "port": 1}},
    }))
    .unwrap();
    assert_eq!(violations_of_plugin(&without_namespaces(), &policy), "");
}
