//! A simulation of the functions: table, clock, queue, servers, clusters and platform are in memory, on one thread, in
//! virtual time.
//!
//! Only the functions are real. The order of all events follows from the documents, the seed and the faults, so a failure
//! repeats. The ledger records what exists outside of the table. Checks run when events happen and at the end.

mod bound;
mod checks;
mod diagnosis;
mod executor;
mod faults;
mod functions;
mod ledger;
mod owners;
mod platform;
pub(crate) mod plugin_documents;
mod plugin_server;
mod provider;
mod provider_documents;
mod provider_token;
mod queue;
mod random;
mod random_targets;
mod receivers;
mod registry;
mod relay;
mod scenario;
mod senders;
mod servers;
mod simulate;
mod simulator;
mod slot_checks;
mod sweeps;
mod table;
mod table_state;
mod watcher;

use crate::virtual_runtime as runtime;

pub use crate::fakes::deployment as settings;
pub use faults::{FaultInjector, FaultKind};
pub use functions::{InvocationFailure, ListedUnits, SimFunctions};
pub use ledger::{AttemptEntry, Ledger, LedgerState, NotificationEntry};
pub use owners::incomplete;
pub use platform::{KIND, PlatformSender, SimInstance};
pub use plugin_documents::{ATTEMPTS, UnitAction};
pub use provider_documents::{ProviderUnit, ThingCreation, ThingRemoval};
pub use random::SimRandom;
pub use receivers::ReceivedNotice;
pub use registry::{SimUnit, UnitBehavior, UnitEffect};
pub use relay::{BUSY, ClusterOptions, REFUSING, SimRelay, UNREACHABLE, script_of, texts};
pub use runtime::{SimClock, SimRuntime, SimTask, SimTaskId, lock};
pub use scenario::{AttemptFate, Scenario, SetupUnit, TargetScenario, UndoUnit};
pub use servers::header;
pub use simulate::{SimReport, simulate, simulate_target, unreachable_target};
pub use simulator::{SimOperator, SimOptions, Simulation, TargetEnd, TraceMode};
pub use table::{SimTable, TableAccess, TableGate, WriteFate};
