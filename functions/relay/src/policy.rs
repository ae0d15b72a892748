//! The policy of the operator in a report, and namespaces of former policies.

use ebb_kube::podspec::{ClusterPolicy, NamespacePolicy};
use ebb_protocol::{ReportedNamespace, ReportedPolicy};

use crate::{Reconciler, RelaySettings, status};

impl Reconciler {
    /// Returns true for a namespace that the policy no longer lists, and that the relay has no right to read.
    pub(crate) fn has_lost_right(&self, namespace: &str, error: &kube::Error) -> bool {
        let policy = &self.policy;
        let is_listed = policy.namespaces.contains_key(namespace) || policy.bind_namespaces.contains(namespace);
        status(error) == Some(403) && !is_listed
    }
}

/// Returns the policy for the control plane, with the namespaces of units and of the relay, and no Service.
pub(crate) fn report(policy: &ClusterPolicy, settings: &RelaySettings) -> ReportedPolicy {
    let namespaces = policy.namespaces.iter().map(|(name, entry)| {
        let NamespacePolicy { service_accounts, image_pull_secrets, .. } = entry.clone();
        let level = policy.level(name).name().to_owned();
        (name.clone(), ReportedNamespace { level, service_accounts, image_pull_secrets })
    });
    ReportedPolicy {
        unit_namespace: Some(settings.default_namespace.clone()),
        relay_namespace: Some(settings.own_namespace.clone()),
        namespaces: namespaces.collect(),
        kinds: policy.kinds.clone(),
        cluster_kinds: policy.cluster_kinds.clone(),
        bind_namespaces: policy.bind_namespaces.clone(),
        runtime_classes: policy.runtime_classes.clone(),
        priority_classes: policy.priority_classes.clone(),
        services: policy.services.keys().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_has_no_targets_of_services() {
        let policy = json!({
            "namespaces": {"units": [], "signadot": {"level": "baseline", "imagePullSecrets": ["r"]}},
            "services": {"files": {"namespace": "infra", "name": "plugin", "port": 1}}, "priorityClasses": ["low"],
        });
        let settings = RelaySettings::new("relay", "units", "http://127.0.0.1:1");
        let reported = report(&serde_json::from_value(policy).unwrap(), &settings);
        let expected = json!({
            "unitNamespace": "units", "relayNamespace": "relay",
            "namespaces": {
                "units": {"level": "restricted", "serviceAccounts": [], "imagePullSecrets": []},
                "signadot": {"level": "baseline", "serviceAccounts": [], "imagePullSecrets": ["r"]},
            },
            "kinds": [], "clusterKinds": [], "priorityClasses": ["low"], "services": ["files"],
        });
        assert_eq!(json!(reported), expected);
    }
}
