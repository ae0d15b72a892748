//! Executes the units of one hook of an instance.
//!
//! [`dispatch`] sends a unit to its executor. [`undo`] decides what an undo removes, and [`removals`] which evidence shows
//! that it is gone. [`records`] converts ends of attempts into records.

pub(crate) mod acceptances;
pub mod attempt;
pub mod attempt_end;
pub mod callback_result;
pub mod cause;
pub(crate) mod credential;
mod describe;
pub mod dispatch;
pub mod dispatch_outcome;
mod evidence;
mod infrakit;
pub mod inputs;
pub mod invocation_cache;
pub mod lease;
mod masking;
mod objects;
mod opened_texts;
pub(crate) mod override_record;
mod plugin_client;
pub mod possible_resources;
pub mod records;
mod relay_task;
pub mod removals;
mod request_headers;
pub mod skip;
pub(crate) mod timeout;
pub mod undo;
mod until;
pub(crate) mod visibility;
pub mod wakeup;
mod webhook;
mod webhook_response;

pub use relay_task::script_task;
