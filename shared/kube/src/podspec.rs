//! Merges pod templates of authors, and checks their manifests. Ebb reserves parts of both.
//!
//! - [`parse`] and [`merge`] apply an author's overlay to the pod template of a script.
//! - [`manifest_violations`] checks a manifest for kinds, namespaces and names that an author must not use, and
//!   [`bound_violations`] one of `bind`.
//! - [`name_violations`] checks its names, labels and annotations by the rules of Kubernetes.
//! - [`references`] returns the Secrets and ConfigMaps that a manifest names.
//! - [`pod_violations`] checks pods before they are applied, as far as a template decides.
//! - [`fill_defaults`] fills in what the template leaves open, by the [`ClusterPolicy`].
//!
//! All are pure functions, and both sides use them: the control plane merges templates, and the relay checks and
//! completes manifests, because it knows the policy and does not trust their sender. The API server checks pods. Authors
//! get the same refusals from the policy that a relay has reported.
mod manifest;
mod merge;
mod names;
mod pod_checks;
mod pod_defaults;
mod policy;
mod reserved;

pub use manifest::{bound_violations, manifest_violations, references};
pub use merge::{merge, parse, strategic};
pub use names::{is_label, name_violations, with_article};
pub use pod_checks::{PodOrigin, pod_violations};
pub use pod_defaults::{fill_defaults, named_account};
pub use policy::{AllowedService, ClusterPolicy, NamespacePolicy, PodSecurityLevel, full_kind, kind_fix};
pub use reserved::{RESERVED_PREFIX, is_reserved, is_reserved_key};

use std::fmt;

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

#[derive(Debug, Default)]
pub(crate) struct ViolationList(pub(crate) Vec<PodspecViolation>);

impl ViolationList {
    pub(crate) fn add(&mut self, path: impl Into<String>, why: impl Into<String>, help: impl Into<String>) {
        self.0.push(PodspecViolation { path: path.into(), why: why.into(), help: help.into() });
    }
}

pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests;
