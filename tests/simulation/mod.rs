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
mod origins;
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

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use clap::ValueEnum;
use ebb_documents::compile::CLUSTER_POLICY;
use ebb_documents::plan::{HookPlan, document_name};
use ebb_documents::{Action, Plan, UnitRef};
use ebb_egress::{CallError, CallResult, HttpRequest, HttpResponse};
use ebb_engine::{Attempt, HeadState, Hook, Millis, RunPhase, TargetChange, TargetPhase, Timestamp, Unit};
use ebb_flow::advance::callback::CallbackOutcome;
use ebb_flow::{Env, QueueMessage, Rejection, TargetRequest};
use ebb_protocol::id::instance_key;
use ebb_protocol::sign::WEBHOOK_ID;
use ebb_protocol::unit::{ATTEMPT, IDEMPOTENCY_KEY};
use ebb_protocol::{
    AttemptOutcome, AttemptRecord, Callback, CallbackStatus, ErrorCode, EventRef, HistoryChange, LifecycleData,
    LifecycleResponse, LifecycleType, ReasonCode, RunDetail, RunId, SourceResult, TaskId, UnitValue, id, parse_rfc3339,
};
use ebb_store::{
    DesiredKey, DesiredTarget, DueItem, HistoryItem, InstanceExpiry, Item, MemoryTable, NamedDocument, NamedKind,
    PluginItem, RunHead, Store, StoreResult, StoredItem, TargetHead,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::github::GithubStandIn;
use crate::virtual_runtime as runtime;
use bound::SimBound;
use executor::{SimExecutor, SimOutputs, callback_of, run_of, texts_of};
use ledger::{AttemptGuard, AttemptReceiver, SimGuard, SimObject, TimeBounds};
use origins::{MISSING, SENDERS, SimOrigins};
use owners::{AcceptedDocument, CALLERS, DIRECT, InstanceEntry, PERSON, RequestedDeletion, is_present};
use platform::EVENT;
use plugin_documents::{EACH, list};
use plugin_server::SimPlugin;
use provider::{ORIGIN, SimProvider, SimThing};
use provider_documents::{CONNECTION, NAMED, PLAIN};
use provider_token::{SimAccessTokens, SimChallenges, SimSecrets, TOKEN, TOKENS, USER};
use random_targets::{EMPTY, LIFTED, OWN_HOOKS, PROTECTED, REPAIRED, WRONG};
use receivers::{RECEIVERS, SimReceivers};
use registry::key_scope;
use scenario::names;
use senders::{SentEvent, SimSource};
use servers::{SimServers, gateway_status, retry_after};
use simulator::{LINGER_MS, MAX_SKEW_MS, SLIDING};
use table_state::{TableState, named};
use watcher::SimWatcher;

pub use crate::fakes::deployment as settings;
pub use faults::{FaultAttribute, FaultInjector, FaultKind};
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
