//! The policy that a relay reported, in the form that checks use.

use std::collections::BTreeSet;

use ebb_kube::podspec::{AllowedService, ClusterPolicy, NamespacePolicy, PodSecurityLevel};
use ebb_protocol::listing::{ReportedNamespace, ReportedPolicy};

/// Returns a reported policy for checks of documents. Returns `None` if the report does not have all names, because a check
/// would then report violations that are none.
///
/// A report has no targets of Services, so the result has none.
pub fn reported_policy(reported: &ReportedPolicy) -> Option<ClusterPolicy> {
    if reported.is_cut() {
        return None;
    }
    let reported = reported.clone();
    let entries = reported.namespaces.into_iter().map(|(name, entry)| {
        let ReportedNamespace { level, service_accounts, image_pull_secrets } = entry;
        // One that only a later version knows refuses nothing here.
        let level = Some(serde_json::from_value(level.into()).unwrap_or(PodSecurityLevel::Privileged));
        (name, NamespacePolicy { level, service_accounts, image_pull_secrets })
    });
    let target = || AllowedService { namespace: String::new(), name: String::new(), port: 0, path: String::new() };
    Some(ClusterPolicy {
        namespaces: entries.collect(),
        kinds: reported.kinds,
        cluster_kinds: reported.cluster_kinds,
        bind_namespaces: reported.bind_namespaces,
        runtime_classes: reported.runtime_classes,
        priority_classes: reported.priority_classes,
        services: reported.services.into_iter().map(|name| (name, target())).collect(),
        unit_namespace: reported.unit_namespace,
        relay_namespace: reported.relay_namespace,
        // A relay reports the levels of its namespaces, and no Secrets.
        pod_security_level: PodSecurityLevel::default(),
        secrets: BTreeSet::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_report_is_not_used() {
        let mut reported: ReportedPolicy = serde_json::from_value(serde_json::json!({
            "services": ["files"], "unitNamespace": "a",
            "namespaces": {"a": {"level": "baseline", "serviceAccounts": ["b"]}, "later": {"level": "sealed"}},
        }))
        .unwrap();
        let policy = reported_policy(&reported).unwrap();
        assert_eq!(["a", "later"].map(|name| policy.level(name).name()), ["baseline", "privileged"]);
        assert_eq!(policy.unit_namespace.as_deref(), Some("a"));
        assert!(policy.services.contains_key("files") && policy.namespaces["a"].service_accounts.contains("b"));
        reported.kinds = (0..500).map(|number| number.to_string()).collect();
        assert!(reported_policy(&reported.fit()).is_none());
    }
}
