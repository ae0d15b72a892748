//! Advances a run: executes the units of one hook of an instance.
//!
//! [`dispatch_all`] dispatches ready attempts. [`callback`] and [`apply_result`] record results and return the next
//! attempts. [`cancel`] ends a run before it is complete. [`reopen`] continues a run that has ended.

mod acceptances;
pub mod apply_result;
pub mod attempt;
pub mod attempt_end;
pub mod callback;
pub mod callback_result;
pub mod cancel;
pub mod cause;
pub(crate) mod credential;
mod describe;
pub mod dispatch;
pub mod dispatch_all;
pub mod dispatch_outcome;
mod evidence;
pub mod follow_up;
pub mod head;
mod infrakit;
pub mod inputs;
pub mod lease;
mod masking;
mod objects;
mod opened_texts;
pub(crate) mod override_record;
mod plugin_client;
pub mod possible_resources;
pub mod progress;
pub mod records;
mod relay_task;
pub mod removals;
pub mod reopen;
mod request_headers;
mod sight;
pub mod skip;
pub(crate) mod taken_results;
pub(crate) mod timeout;
pub mod undo;
mod until;
pub mod wakeup;
mod webhook;
mod webhook_response;

pub use relay_task::script_task;
