//! Checks of objects of `bind`, which hand values to workloads of their users.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::podspec::manifest::manifest_violations;
use crate::podspec::policy::{ClusterPolicy, ask_operator, is_of_kubernetes, listed, shown};
use crate::podspec::violation::PodspecViolation;

/// The field of a namespace, which has a list of its own here.
const NAMESPACE: &str = "metadata.namespace";

/// The fields of an object of `bind`. A `type` could let the API server make a token of an account.
const FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "data"];

/// Returns the violations of a manifest of `bind`: a Secret or a ConfigMap in one of the `bindNamespaces`.
pub fn bound_violations(manifest: &Value, allowed: &ClusterPolicy) -> Vec<PodspecViolation> {
    let kinds = ["ConfigMap", "Secret"].map(str::to_owned).into();
    let own = ClusterPolicy { kinds, cluster_kinds: BTreeSet::new(), ..allowed.clone() };
    let mut found = manifest_violations(manifest, &own);
    found.retain(|violation| violation.path != NAMESPACE);
    for field in manifest.as_object().into_iter().flatten().map(|(field, _)| field) {
        if !FIELDS.contains(&field.as_str()) && field != "status" {
            found.push(PodspecViolation {
                path: field.clone(),
                why: "an object of `bind` has only `data`".to_owned(),
                help: "remove it".to_owned(),
            });
        }
    }
    let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or_default();
    if !allowed.bind_namespaces.contains(namespace) {
        let (shown, listed) = (shown(namespace), listed(allowed.bind_namespaces.iter()));
        found.push(PodspecViolation {
            path: NAMESPACE.to_owned(),
            why: format!(
                "`bind` may not write into the namespace `{shown}` by the policy of the cluster (`bindNamespaces`: {listed})"
            ),
            help: match is_of_kubernetes(namespace) {
                true => "use a namespace of your own: nothing is written into those of Kubernetes".to_owned(),
                false => ask_operator(&format!("--bind-namespace {namespace}"), namespace),
            },
        });
    }
    found
}
