//! Worlds with many targets that share one table, one queue and one schedule, in which anything may go wrong at any
//! time, and which know what really exists.

mod checks;
mod executor;
mod ledger;
mod platform;
mod queue;
mod registry;
mod relay;
mod scenario;
mod servers;
mod simulation;

pub use scenario::{PluginText, TargetScenario};
pub use simulation::{SimReport, TraceMode, simulate, simulate_target};
