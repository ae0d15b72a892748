//! Executes the units of one hook of an instance.
//!
//! [`dispatch`] sends a unit to its executor. `request` has the requests of webhooks and plugins.
//! [`undo`] decides what an undo removes, and [`removal`] which evidence shows that it is gone. [`records`] converts ends of
//! attempts into records.

pub(crate) mod acceptances;
pub(crate) mod access_token;
pub mod attempt;
pub mod attempt_end;
pub mod callback_result;
pub mod cause;
mod cluster_call;
pub(crate) mod credential;
pub mod declared_outputs;
pub mod dispatch;
pub mod dispatch_outcome;
pub mod inputs;
pub mod invocation_cache;
pub mod lease;
mod masking;
pub mod records;
mod relay_task;
pub mod removal;
mod rendered_unit;
pub(crate) mod request;
pub(crate) mod request_headers;
mod retry_rule;
pub(crate) mod sent_request;
pub(crate) mod slots;
pub(crate) mod timeout;
pub mod undo;
pub mod wakeup;

pub use attempt::AttemptContext;
pub use attempt_end::{AttemptEnd, AttemptFailure, AttemptSuccess, TaskReport};
pub use dispatch_outcome::{DispatchOutcome, DispatchReason};
pub use invocation_cache::InvocationCache;
pub use relay_task::script_task;
