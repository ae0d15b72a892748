//! Orchestration: loads the state of a run, decides, writes, dispatches. The functions call it as plain async functions.
//!
//! - [`run`] executes the units of one hook: dispatch, results, undo, cancel.
//! - [`target`] applies lifecycle webhooks, moves the target at the end of a run, and notifies the platform.
//! - [`sweep`] repairs what is due: runs, targets, retention, orphans, outages.
//! - [`operator`] has the decisions of operators.
//! - [`ports`] are the interfaces that programs implement; [`env`] holds the implementations of one program.
//!
//! Architecture invariants:
//! - Memory between invocations holds only what never changes, and the last responses of clusters. Those decide only when
//!   a cluster is asked.
//! - The only tasks are those of [`background`], which every invocation joins.
//! - The only timer is [`sweep`].
//! - Every write is conditional or harmless to repeat.

pub mod background;
mod breaker;
pub mod env;
pub mod error;
mod guarded_relay;
pub mod offload;
pub mod operator;
pub mod ports;
pub mod run;
pub mod sweep;
pub mod system;
pub mod target;
pub mod telemetry;

pub use env::{ApiStore, DeploymentSettings, DriveStore, Env, HttpStore, InstanceCache, SweepStore};
pub use error::{FlowError, RequestError};

/// How often a write is tried again whose item others keep changing, each time on what is there by then.
pub(crate) const ATTEMPTS: usize = 8;
