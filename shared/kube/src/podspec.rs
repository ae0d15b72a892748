//! Checks manifests of authors. Ebb reserves parts of them.
//!
//! - [`manifest_violations`] checks a manifest for kinds, namespaces and names that an author must not use, and
//!   [`bound_violations`] one of `bind`.
//! - [`references`] returns the Secrets and ConfigMaps that a manifest names.
//! - [`fill_defaults`] fills in what the pod of a script leaves open, by the [`ClusterPolicy`].
//!
//! All are pure functions. The relay checks and completes manifests, because it knows the policy and does not trust their
//! sender. The API server checks pods. Authors get the same refusals from the policy that a relay has reported.
mod manifest;
mod names;
mod pod_defaults;
mod policy;
mod reserved;

pub use manifest::{bound_violations, manifest_violations, references};
pub use names::{is_dns_part, is_label, with_article};
pub use pod_defaults::{fill_defaults, named_account};
pub use policy::{AllowedService, ClusterPolicy, NamespacePolicy, PodSecurityLevel, ask_operator};
pub use policy::{full_kind, is_service_header, kind_fix, listed, service_of, shown};
pub use reserved::{RESERVED_DOMAIN, RESERVED_PREFIX, is_reserved, is_reserved_key};

use std::fmt;

use serde_json::Value;

/// A violation with its place, reason and fix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodspecViolation {
    /// For example `spec.containers[main].securityContext.privileged`. List items are shown by name if they have one.
    pub path: String,
    pub why: String,
    pub help: String,
}

impl fmt::Display for PodspecViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}; {}", self.why, self.help)
    }
}

/// The violations of a check, in their order.
#[derive(Debug, Default)]
pub struct ViolationList(pub Vec<PodspecViolation>);

impl ViolationList {
    /// Adds a violation with its path, reason and fix.
    pub fn add(&mut self, path: impl Into<String>, why: impl Into<String>, help: impl Into<String>) {
        self.0.push(PodspecViolation { path: path.into(), why: why.into(), help: help.into() });
    }
}

/// Returns the items of a list, and none of another value.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests;
