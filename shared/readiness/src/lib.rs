//! A Kubernetes object → pending, ready, failed or gone.
//!
//! [`judge`] looks at one observation of an object that somebody applied, [`deletion`] at one of an object that somebody
//! deleted. Both are functions of their arguments: deadlines, retries and the reading of the object are the caller's, and
//! so is the evaluation of a document's own `ready` and `fail` (expressions of `ebb-documents`), which come in as [`DocumentRules`].
//!
//! The order of the questions, and what answers them:
//!
//! 1. not there, or another uid → gone;
//! 2. `metadata.deletionTimestamp` → failed;
//! 3. the document's `fail` holds → failed;
//! 4. the generation was not observed yet, by the object or by a condition → pending;
//! 5. the document has a `ready`: it holds → ready, else pending;
//! 6. the contract of its group and kind ([`contract`] names it), or, for a kind that has none of its own: `Stalled` →
//!    failed, `Reconciling` → pending, `Ready` true → ready.
//!
//! Where this differs from kstatus, on purpose: **what says nothing is pending, never ready** (kstatus calls an object
//! without conditions current); a Job that runs or is suspended is pending; a Pod that failed is failed; a load balancer
//! without an address is pending; an unschedulable Pod is pending, because a node may come; `Ready: False` is pending,
//! because it cannot tell slow from doomed. Ready at once are only the kinds that have no status to wait for, listed in
//! `contracts/static_kinds.rs`.
mod conditions;
mod contracts;
mod generation;
mod judge;
mod object;
mod object_readiness;
mod table;

pub use judge::{DocumentRules, RuleState, deletion, judge};
pub use object_readiness::{MAX_TEXT, ObjectReadiness};
pub use table::contract;

#[cfg(test)]
mod tests;
