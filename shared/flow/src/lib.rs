//! Orchestrates runs and targets. Its functions read state, decide, write and dispatch; programs call them as plain
//! async functions.
//!
//! Each of these modules uses only those before it:
//!
//! - [`run`] executes the units of one hook: requests, answers, undo, evidence.
//! - [`instance`] has the document of a target, its notifications and its retention.
//! - [`advance`] records results, dispatches what is ready, cancels and reopens runs, and moves the target at their ends.
//! - [`lifecycle`] applies lifecycle webhooks: creations, updates, events and deletions.
//! - [`source`] applies events of third parties.
//! - [`operator`] applies decisions of operators.
//! - [`sweep`] repairs due runs and targets, removes expired data and orphans, and records outages.
//!
//! - [`ports`] are the interfaces that programs implement. [`env`](mod@env) contains the implementations of one
//!   program.
//!
//! Invariants:
//! - State between invocations is immutable, except for circuit breakers, failed sweeps and taken results. The first two
//!   decide only when a request is sent or repeated, the last one whether an acceptance is recorded.
//! - The only tasks are those of [`background`], which every invocation joins.
//! - The only timer is [`sweep`].
//! - Every write is conditional or harmless to repeat.

pub mod advance;
pub mod background;
mod circuit;
pub mod env;
pub mod error;
mod failed_sweeps;
mod guarded_relay;
pub mod instance;
pub mod lifecycle;
pub mod loaded_run;
pub mod lock;
pub mod offload;
pub mod operator;
mod pending_call;
pub(crate) mod permits;
pub mod ports;
mod response_body;
pub mod run;
mod sealed_values;
pub mod source;
pub mod sweep;
pub mod system;
mod taken_results;
pub mod telemetry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use advance::FollowUp;
pub(crate) use env::START_WINDOW_MS;
pub use env::{CompiledPlan, DeploymentSettings, Env, InstanceCache};
pub use error::{FlowError, FlowResult, Rejection, RequestError};
pub(crate) use guarded_relay::guarded;
pub(crate) use instance::changes::PinnedVersions;
pub(crate) use instance::history::Decision;
pub(crate) use instance::rejection::missing_instance;
pub use loaded_run::{EarlierRun, Run, target_facts};
pub use lock::lock;
pub use offload::offload;
pub use operator::target_request::TargetRequest;
pub(crate) use pending_call::{PendingCall, circuit_wait};
pub(crate) use permits::{OriginPermit, SweepPermit};
pub use ports::{ForwardedAttempts, QueueMessage, RelayClient, RelayError, SteadyTime, UnitCluster};
pub use run::access_token::oauth_error;
pub(crate) use run::attempt::{AttemptContext, task_unit};
pub(crate) use run::attempt_end::{AttemptEnd, AttemptFailure, AttemptSuccess};
pub use run::credential::secret_problem;
pub(crate) use run::credential::{CredentialDigest, RequestCredential};
pub(crate) use run::dispatch_outcome::{DispatchOutcome, DispatchReason};
pub use run::invocation_cache::InvocationCache;
pub(crate) use run::sent_request::SentRequest;
pub(crate) use run::undo::{UndoPasses, UndoneResult};
pub(crate) use run::wakeup::{AttemptWakeup, MAX_MESSAGE_DELAY};
pub use sweep::outages;
pub(crate) use taken_results::ExpectedResult;
pub(crate) use telemetry::Counter;

/// Groups values by their keys. A group has the order of the values.
pub fn group<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
}

/// Maximum attempts of a conditional write. Each attempt uses the present state of the item.
pub(crate) const ATTEMPTS: usize = 8;
