//! Pod templates: merges an author's overlay onto the base, and checks pods and manifests against the policy of a
//! cluster.
//!
//! 1. [`parse`] parses an overlay.
//! 2. [`merge`] applies it to the base template.
//! 3. [`template_violations`] checks the result against the operator's policy. [`manifest_violations`] checks a whole
//!    manifest with its pods.
//!
//! All are pure functions. The crate is separate because both sides use it: the control plane merges
//! templates, and the relay, which trusts no sender, enforces the policy.
mod checks;
mod fields;
mod merge;
mod overlay;
mod patch_schema;
mod policy;
mod reserved;
mod violation;

pub use checks::{manifest_violations, template_violations};
pub use overlay::{MAX_OVERLAY, merge, parse, strategic};
pub use policy::{ClusterPolicy, PodSecurityLevel};
pub use reserved::{RESERVED_DOMAIN, RESERVED_PREFIX};
pub use violation::PodspecViolation;

#[cfg(test)]
mod tests;
