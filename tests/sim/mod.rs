//! A small simulation in which the functions run: a table, a clock, a queue, servers, a cluster and a platform, all in
//! memory, on one thread, in virtual time.
//!
//! The functions are the real ones; only what surrounds them is made here. Everything happens in an order that follows
//! from the scenario and its seed alone, so that a failing case fails again. Faults are put in by hooks on the numbered
//! writes of the [`SimTable`], and by the plans of [`ScenarioQueue`] and [`ScenarioServer`].

mod executor;
mod faults;
pub mod fleet;
mod functions;
mod gate;
mod ledger;
pub mod many_targets;
mod operations;
mod queue;
mod random;
mod relay;
mod runtime;
mod scenario;
mod servers;
mod settings;
mod simulation;
mod table;
mod turns;

pub use executor::CallbackFaults;
pub use faults::{ExcludedFaults, FaultInjector, FaultKind};
pub use functions::{InvocationFailure, SimFunctions};
pub use gate::{TableAccess, TableGate};
pub use ledger::{FinishEntry, Ledger, StartEntry};
pub use queue::{QueueFaults, ScenarioQueue};
pub use random::SimRandom;
pub use relay::ScenarioRelay;
pub use runtime::{SimClock, SimRuntime, SimTask, SimTaskId};
pub use scenario::{AttemptFate, Scenario, ScenarioAction, ScenarioEffect, SetupHook, SetupUnit, UndoUnit, scenarios};
pub use servers::{ScenarioPlatform, ScenarioServer};
pub use settings::settings;
pub use simulation::{ScenarioEnd, ScenarioFaults, ScenarioSimulation};
pub use table::{SimTable, WriteFate, WriteHook, WriteSide};
pub use turns::TableTurns;
