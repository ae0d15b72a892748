//! The policy in force, which its operator may change while the relay runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ebb_kube::podspec::{ClusterPolicy, NamespacePolicy};
use ebb_protocol::{ReportedNamespace, ReportedPolicy, limits, short_digest};

use crate::{lock, status};

pub(crate) struct CurrentPolicy(Mutex<PolicyState>);

#[derive(Clone)]
struct PolicyState {
    policy: Arc<ClusterPolicy>,
    /// The reason why a newer policy is not in force.
    error: Option<String>,
    /// Namespaces that may contain objects of tasks: those of all policies and records that this relay has read.
    namespaces: BTreeSet<String>,
}

impl CurrentPolicy {
    pub(crate) fn new(policy: ClusterPolicy) -> Self {
        let namespaces = policy.namespaces.keys().cloned().collect();
        Self(Mutex::new(PolicyState { policy: Arc::new(policy), error: None, namespaces }))
    }

    /// Returns the snapshot. One decision uses one snapshot.
    pub(crate) fn get(&self) -> Arc<ClusterPolicy> {
        Arc::clone(&lock(&self.0).policy)
    }

    /// Returns the namespaces that may contain objects of tasks. An earlier policy may have listed some of them.
    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        lock(&self.0).namespaces.clone()
    }

    pub(crate) fn add_namespaces(&self, namespaces: impl IntoIterator<Item = String>) {
        lock(&self.0).namespaces.extend(namespaces);
    }

    /// Returns true for a namespace that the policy no longer lists, and that the relay has no right to read.
    pub(crate) fn has_lost_right(&self, namespace: &str, error: &kube::Error) -> bool {
        let policy = self.get();
        let is_listed = policy.namespaces.contains_key(namespace) || policy.bind_namespaces.contains(namespace);
        status(error) == Some(403) && !is_listed
    }

    pub(crate) fn set(&self, next: Result<ClusterPolicy, String>) {
        let mut state = lock(&self.0);
        match next {
            Ok(policy) => {
                state.namespaces.extend(policy.namespaces.keys().cloned());
                (state.policy, state.error) = (Arc::new(policy), None);
            }
            Err(reason) => state.error = Some(limits::message(&reason)),
        }
    }

    /// Returns the policy for the control plane, with the namespaces of units and of the relay, and no Service.
    pub(crate) fn report(&self, unit_namespace: &str, relay_namespace: &str) -> ReportedPolicy {
        let PolicyState { policy, error, .. } = lock(&self.0).clone();
        let namespaces = policy.namespaces.iter().map(|(name, entry)| {
            let NamespacePolicy { service_accounts, image_pull_secrets, .. } = entry.clone();
            let level = policy.level(name).name().to_owned();
            (name.clone(), ReportedNamespace { level, service_accounts, image_pull_secrets })
        });
        ReportedPolicy {
            // Serialization cannot fail: all keys are texts.
            digest: short_digest(&[&serde_json::to_string(&*policy).unwrap_or_default()], 16),
            unit_namespace: Some(unit_namespace.to_owned()),
            relay_namespace: Some(relay_namespace.to_owned()),
            namespaces: namespaces.collect(),
            kinds: policy.kinds.clone(),
            cluster_kinds: policy.cluster_kinds.clone(),
            bind_namespaces: policy.bind_namespaces.clone(),
            runtime_classes: policy.runtime_classes.clone(),
            priority_classes: policy.priority_classes.clone(),
            services: policy.services.keys().cloned().collect(),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> ClusterPolicy {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_invalid_policy_keeps_the_current_one_and_is_reported() {
        let first = policy(
            r#"{"namespaces": {"units": [], "signadot": {"level": "baseline", "imagePullSecrets": ["r"]}},
                "services": {"files": {"namespace": "infra", "name": "plugin", "port": 1}}, "priorityClasses": ["low"]}"#,
        );
        let current = CurrentPolicy::new(first.clone());
        let snapshot = current.get();
        current.set(Err("line 1: \u{1b}unexpected end".to_owned()));
        assert_eq!(*current.get(), first);
        let report = current.report("units", "relay");
        assert_eq!(report.unit_namespace.as_deref(), Some("units"));
        assert!(report.priority_classes.contains("low") && report.runtime_classes.is_empty());
        assert!(report.error.as_ref().is_some_and(|error| error.contains("unexpected end")), "{report:?}");
        assert_eq!(report.services.iter().collect::<Vec<_>>(), ["files"]);
        let levels = report.namespaces.iter().map(|(name, entry)| (name.as_str(), entry.level.as_str()));
        assert_eq!(levels.collect::<Vec<_>>(), [("signadot", "baseline"), ("units", "restricted")]);
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains("infra") && text.contains(r#""imagePullSecrets":["r"]"#), "{text}");

        let second = policy(r#"{"namespaces": {"units": []}}"#);
        current.set(Ok(second.clone()));
        assert_eq!((&*current.get(), &*snapshot), (&second, &first));
        // Objects of earlier tasks are still found.
        current.add_namespaces(["recorded".to_owned()]);
        assert_eq!(current.namespaces().into_iter().collect::<Vec<_>>(), ["recorded", "signadot", "units"]);
        let replaced = current.report("units", "relay");
        assert!(replaced.error.is_none() && replaced.digest != report.digest, "{replaced:?}");
        current.set(Ok(first));
        assert_eq!(current.report("units", "relay").digest, report.digest);
    }
}
