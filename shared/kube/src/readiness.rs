//! Judges Kubernetes objects: pending, ready, failed or gone.
//!
//! [`judge`] judges an applied object, [`deletion`] a deleted one. Both are pure functions of one observation. The
//! caller handles deadlines and retries, reads the object, and evaluates the document's own `ready` and `fail`, which
//! arrive as [`DocumentRules`].
//!
//! The checks in their order:
//!
//! 1. The object is missing or has another UID: gone.
//! 2. It has a `metadata.deletionTimestamp`: failed.
//! 3. The document's `fail` is true: failed.
//! 4. Its generation is not observed yet, by the status or by a condition: pending.
//! 5. The document has a `ready`: ready if it is true, otherwise pending.
//! 6. The contract of its group and kind. Without a contract: `Stalled` is failed, `Reconciling` is pending, `Ready` is
//!    ready.
//!
//! Intended differences from kstatus:
//!
//! - **An object without a status or conditions is pending.** kstatus calls it current. Only the kinds in
//!   the first rows of `contracts.rs` are ready at once.
//! - A running or suspended Job is pending. A failed Pod is failed.
//! - A load balancer without an address is pending.
//! - An unschedulable Pod is pending, because a node may become available.
//! - `Ready: False` is pending, because it does not distinguish slow from failed.
mod conditions;
mod contracts;
mod judge;
mod object;

pub use contracts::exit_text;
pub use judge::{DocumentRules, FAIL_RULE, READY_RULE, deletion, judge};
pub use object::{MAX_TEXT, ObjectReadiness};

#[cfg(test)]
mod tests;
