//! Pod templates: an author's overlay merged onto ours, and what an author may not ask of a cluster.
//!
//! [`read`] takes the overlay's text, [`merge`] lays it onto a template that we made, [`refusals`] judges the outcome by
//! what the operator of the cluster allows; [`object`] judges a whole manifest, with the pods that are in it. All four
//! are functions of their arguments. The base itself, the Job around it and the sending are others'.
//!
//! It is a crate of its own because both sides need it: who loads documents tells an author early, and the relay, which
//! trusts nobody, decides; the relay has no part in documents (`ebb-spec`), and readiness has none in pods to be made.
mod allowed;
mod fields;
mod merge;
mod overlay;
mod refusal;
mod refuse;
mod reserved;
mod shape;

pub use allowed::{Allowed, Level};
pub use overlay::{MAX_OVERLAY, merge, read, strategic};
pub use refusal::Refusal;
pub use refuse::{object, refusals};
pub use reserved::{DOMAIN, OURS};

#[cfg(test)]
mod tests;
