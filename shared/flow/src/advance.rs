//! Advances the runs of a target, and the target itself at their ends.
//!
//! [`dispatch_all`] dispatches ready attempts. [`callback`] and [`apply_result`] record results and return the next
//! attempts. [`cancel`] ends a run before it is complete. [`reopen`] and [`retry`] continue a run that has ended, and
//! [`early_start`] ends waits.
//! [`transition`] moves the target to its next phase, and `next_run` begins its next run. `policy_check` refuses updates that
//! would undo what cannot be made again.

pub mod apply_result;
pub mod callback;
pub mod cancel;
pub mod dispatch_all;
pub mod early_start;
mod ended_run;
pub(crate) mod next_run;
pub(crate) mod policy_check;
pub mod progress;
pub mod reopen;
pub mod retry;
pub mod transition;

pub use dispatch_all::FollowUp;
pub use progress::{Continuation, LateResult, RunEnd, RunProgress};
