//! Advances a run: executes the units of one hook of an instance.
//!
//! [`dispatch_all`] sends the attempts that are ready, [`callback`] and [`results`] record results and return the next
//! attempts. [`cancel`] ends a run before it is complete, [`reopen`] continues one that has ended.

mod acceptances;
pub mod attempt_end;
pub mod callback;
pub mod cancel;
pub mod cause;
mod describe;
pub mod dispatch;
pub mod dispatch_all;
mod evidence;
pub mod follow_up;
pub mod head;
pub mod inputs;
pub mod lease;
mod objects;
pub mod possible_resources;
pub mod records;
pub mod reopen;
pub mod results;
pub mod undo;
