//! The relay of a cluster. It applies objects, waits for them, collects their outputs, and reports the result.
//!
//! It executes the requests of [`ebb_protocol::relay`]. Actions, retries, hooks and plugins exist only in the control
//! plane. A task passes these steps:
//!
//! 1. [`Relay::batch`] validates the request (`admit`) and creates a record (`task`), a Secret in the relay's namespace.
//!    `transport` receives batches or polls for them.
//! 2. One loop per task (`reconcile`) advances the task by one step at a time. `fair_queue` assigns a slot.
//! 3. `start` applies the objects.
//! 4. `container` waits for a container, `ready` for objects. `observe` and `reasons` find out why they take long, or why
//!    objects have failed.
//! 5. `terminate` stops running containers, `reconcile` sends the result, `removal` deletes objects.
//!
//! Each request is checked with the `policy` of the cluster's operator, which is read once.
//! `task_events` shows these steps to people in the cluster, and `reports` tells the control plane that a script runs.
//!
//! A step observes the API server, decides (`decide`) and executes the decision. The decision depends only on the
//! record and on observations, such as the time since the last report of an entrypoint. `watches` only wake the loop.
//! A restarted relay therefore continues from its records.
//!
//! Several relays may run in one namespace: the one with the `lease` works. The others wait for it, and pass connections on.
//!
//! Invariants:
//!
//! - A task starts at most once.
//! - The UID of an applied object is in the record before the next object is applied.
//! - Only objects with the recorded UID that no other task has taken over are deleted.
mod api_server;
mod batch;
mod error;
mod http_client;
mod lease;
mod lock;
mod metrics;
mod names;
mod objects;
mod observe;
mod policy;
mod reasons;
mod reconcile;
mod reconciler;
mod settings;
mod task;
#[cfg(test)]
mod test_api;
mod transport;

pub use api_server::client::client;
pub use batch::admit::check_admission;
pub use ebb_kube::podspec::{ClusterPolicy, NamespacePolicy, PodSecurityLevel};
pub use error::ReconcileError;
pub(crate) use error::{Result, StepResult, error_message, fail, refuse, status};
pub use lease::{LeaderAddress, RelayLease};
pub(crate) use lock::lock;
pub(crate) use reconciler::Reconciler;
pub use reconciler::Relay;
pub use settings::RelaySettings;
pub(crate) use settings::{millis, now_ms};
pub(crate) use task::record::{AppliedObject, ObjectRef, TaskPhase, TaskRecord, TaskSpec};
pub(crate) use task::store::VersionedRecord;
pub(crate) use task::task_waits;
pub use transport::http;
pub use transport::identity::{RelayBootstrap, registered_keys};
pub use transport::poll::poll;
pub use transport::standby::stand_by;
