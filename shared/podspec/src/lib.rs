//! Pod templates and manifests of authors, as far as Ebb reserves parts of them.
//!
//! - [`parse`] and [`merge`] apply an author's overlay to the pod template of a script.
//! - [`manifest_violations`] checks a manifest for kinds, namespaces and names that are not the author's.
//!
//! All are pure functions. The crate is separate because both sides use it: the control plane merges templates, and
//! the relay, which trusts no sender, checks manifests. The API server checks pods.
mod manifest;
mod merge;
mod overlay;
mod policy;
mod reserved;
mod violation;

pub use manifest::manifest_violations;
pub use merge::strategic;
pub use overlay::{merge, parse};
pub use policy::{ClusterPolicy, PodSecurityLevel};
pub use reserved::RESERVED_PREFIX;
pub use violation::PodspecViolation;

#[cfg(test)]
mod tests;
