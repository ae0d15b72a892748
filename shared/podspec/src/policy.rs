//! The policy of a cluster's operator.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The policy of a cluster's operator. Everything that it does not name is refused; [`Default`] allows no namespace and no
/// kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterPolicy {
    /// The Pod Security Standard that pods have to meet.
    pub pod_security_level: PodSecurityLevel,
    /// Namespaces, each with the service accounts that pods in it may run as. One that is not named here never gets a
    /// token; a pod that names none runs as `default`.
    pub namespaces: BTreeMap<String, BTreeSet<String>>,
    /// Kinds of objects in namespaces, as `Kind` of the core's group or `Kind.group`; `*.group` for all of a group.
    pub kinds: BTreeSet<String>,
    /// Kinds of objects outside of namespaces, written likewise.
    pub cluster_kinds: BTreeSet<String>,
    pub runtime_classes: BTreeSet<String>,
    pub priority_classes: BTreeSet<String>,
    /// Secrets with a reserved name that this one target may read: those that hold its own outputs.
    pub secrets: BTreeSet<String>,
}

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodSecurityLevel {
    /// Nothing that leads out of a container, and no root in it.
    #[default]
    Restricted,
    /// Nothing that leads out of a container.
    Baseline,
}

impl ClusterPolicy {
    /// Returns true if a set of kinds has one.
    pub(crate) fn has_kind(kinds: &BTreeSet<String>, kind: &str, group: &str) -> bool {
        if group.is_empty() {
            return kinds.contains(kind);
        }
        kinds.contains(&format!("{kind}.{group}")) || kinds.contains(&format!("*.{group}"))
    }

    /// Returns true if pods in a namespace may run as a service account and have its token.
    pub(crate) fn allows_account(&self, namespace: &str, account: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|accounts| accounts.contains(account))
    }
}
