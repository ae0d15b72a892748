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
    let ReportedPolicy { unit_namespace, namespaces, kinds, cluster_kinds, bind_namespaces, services, .. } = reported;
    let entries = namespaces.iter().map(|(name, entry)| {
        let ReportedNamespace { level, service_accounts, image_pull_secrets } = entry;
        let policy = NamespacePolicy {
            // One that only a later version knows refuses nothing here.
            level: Some(serde_json::from_value(level.as_str().into()).unwrap_or(PodSecurityLevel::Privileged)),
            service_accounts: service_accounts.clone(),
            image_pull_secrets: image_pull_secrets.clone(),
        };
        (name.clone(), policy)
    });
    let target = || AllowedService { namespace: String::new(), name: String::new(), port: 0, path: String::new() };
    Some(ClusterPolicy {
        pod_security_level: PodSecurityLevel::default(),
        namespaces: entries.collect(),
        kinds: kinds.clone(),
        cluster_kinds: cluster_kinds.clone(),
        bind_namespaces: bind_namespaces.clone(),
        runtime_classes: reported.runtime_classes.clone(),
        priority_classes: reported.priority_classes.clone(),
        services: services.iter().map(|name| (name.clone(), target())).collect(),
        secrets: BTreeSet::new(),
        unit_namespace: unit_namespace.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_report_is_not_used() {
        let mut reported: ReportedPolicy = serde_json::from_value(serde_json::json!({
            "digest": "d", "services": ["files"], "unitNamespace": "a",
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
