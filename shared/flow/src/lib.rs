//! Orchestrates runs and targets. Its functions read state, decide, write and dispatch; programs call them as plain
//! async functions.
//!
//! - [`run`] executes the units of one hook: dispatch, results, undo, cancel.
//! - [`instance`] applies lifecycle webhooks, moves the target at the end of a run, and notifies the platform.
//! - [`source`] applies events of third parties.
//! - [`sweep`] repairs due runs and targets, removes expired data and orphans, and records outages.
//! - [`operator`] applies decisions of operators.
//! - [`ports`] are the interfaces that programs implement. [`env`](mod@env) contains the implementations of one
//!   program.
//!
//! Invariants:
//! - State between invocations is immutable, except for circuit breakers, failed sweeps and taken results. The first two
//!   decide only when a request is sent or repeated, the last one whether an acceptance is recorded.
//! - The only tasks are those of [`background`], which every invocation joins.
//! - The only timer is [`sweep`].
//! - Every write is conditional or harmless to repeat.

pub mod background;
mod breaker;
pub mod env;
pub mod error;
mod guarded_relay;
pub mod instance;
pub mod offload;
pub mod operator;
mod pending_call;
pub mod ports;
mod response_body;
pub mod run;
mod sealed_values;
pub mod source;
pub mod sweep;
pub mod system;
pub mod telemetry;

pub use env::{ApiStore, DeploymentSettings, DriveStore, Env, HttpStore, InstanceCache, SweepStore};
pub use error::{FlowError, RequestError};

/// Maximum attempts of a conditional write. Each attempt uses the present state of the item.
pub(crate) const ATTEMPTS: usize = 8;
