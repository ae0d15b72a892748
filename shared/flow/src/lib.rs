//! Orchestration: loads the state of a run, decides, writes, dispatches. The functions call it as plain async functions.
//!
//! - [`lifecycle`] creates and ends instances, [`callback`] applies results, [`sweep`] acts when time has passed, [`api`]
//!   has the queries and commands of people and programs.
//! - [`dispatch_all`] advances a run: [`dispatch`] sends attempts, [`results`] records results and names the next
//!   attempts, [`transition`] moves the target at the end of a run.
//! - [`http`] serves all of this with an axum router, on Lambda and on one machine.
//! - [`cluster`] sends tasks to relays. [`telemetry`] gathers metrics and spans of an invocation.
//!
//! Architecture invariants:
//! - Memory between invocations holds only what never changes, and the last answers of clusters. Those decide only when a
//!   cluster is asked.
//! - The only tasks are those of [`background`], which every invocation joins.
//! - The only timer is [`sweep`].
//! - Every write is conditional or harmless to repeat.

mod acceptances;
pub mod api;
pub mod attempt_end;
pub mod background;
mod breaker;
pub mod callback;
pub mod cancel;
pub mod cause;
pub mod changes;
pub mod cluster;
mod describe;
pub mod dispatch;
pub mod dispatch_all;
pub mod env;
pub mod error;
mod evidence;
pub mod follow_up;
pub mod http;
pub mod inputs;
pub mod lease;
pub mod lifecycle;
pub mod notify;
mod objects;
mod offload;
pub mod orphans;
pub mod outages;
pub mod ports;
pub mod records;
pub mod reopen;
pub mod results;
pub mod retention;
pub mod run;
pub mod secrets;
pub mod sweep;
pub mod switch;
pub mod system;
pub mod telemetry;
pub mod transition;
pub mod undo;

pub use env::{ApiStore, DeploymentSettings, DriveStore, Env, HttpStore, InstanceCache, SweepStore};
pub use error::FlowError;

/// How often a write is tried again whose item others keep changing, each time on what is there by then.
pub(crate) const ATTEMPTS: usize = 8;
