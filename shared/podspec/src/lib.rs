//! Pod templates: an author's overlay merged onto ours, and what an author may not ask of a cluster.
//!
//! [`parse`] takes the overlay's text, [`merge`] lays it onto a template that we made, [`template_violations`] judges the outcome by
//! what the operator of the cluster allows; [`manifest_violations`] judges a whole manifest, with the pods that are in it. All four
//! are functions of their arguments. The base itself, the Job around it and the sending are others'.
//!
//! It is a crate of its own because both sides need it: who loads documents tells an author early, and the relay, which
//! trusts nobody, decides; the relay has no part in documents (`ebb-documents`), and readiness has none in pods to be made.
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
