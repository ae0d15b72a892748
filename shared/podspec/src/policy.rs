use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The policy of a cluster's operator. Everything that it does not list is denied. [`Default`] allows no namespace and
/// no kind.
///
/// The relay enforces `namespaces` and the kinds. The admission policy of its chart enforces the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterPolicy {
    /// The Pod Security Standard for pods.
    pub pod_security_level: PodSecurityLevel,
    /// Namespaces with the allowed service accounts. Other accounts get no token. The default is the account
    /// `default`.
    pub namespaces: BTreeMap<String, BTreeSet<String>>,
    /// Kinds of namespaced objects: `Kind` of the core group, `Kind.group`, or `*.group`.
    pub kinds: BTreeSet<String>,
    /// Kinds of cluster-wide objects, in the same form.
    pub cluster_kinds: BTreeSet<String>,
    pub runtime_classes: BTreeSet<String>,
    pub priority_classes: BTreeSet<String>,
    /// Services that the control plane may call, by a name of the operator's choice.
    pub services: BTreeMap<String, AllowedService>,
    /// Reserved Secrets that the current task may read: those with its own outputs.
    pub secrets: BTreeSet<String>,
}

/// A Service that the control plane may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedService {
    pub namespace: String,
    pub name: String,
    pub port: u16,
    /// The path that all requests begin with, without a slash at its end. Empty: all paths.
    #[serde(default)]
    pub path: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodSecurityLevel {
    /// No access outside of a container, and no root in it.
    #[default]
    Restricted,
    /// No access outside of a container.
    Baseline,
}

impl PodSecurityLevel {
    /// Returns the name in labels and messages of Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Baseline => "baseline",
        }
    }
}
