//! The relay of a cluster: it applies objects, watches them, collects what they made, and reports.
//!
//! It serves a few requests ([`ebb_protocol::relay`]) and knows tasks by their ids alone: no unit kinds, retries or plugins.
//!
//! Flow of one task: [`Relay::batch`] checks the request (`admit`) and makes its record, a Secret in the relay's own
//! namespace (`record`). From then on one loop reconciles it (`reconcile`), one step at a time: once it has a slot
//! (`fair_queue`) it applies (`start`), waits for a container (`wait_container`, judged by `pod`) or for objects (`ready`),
//! terminates what still runs (`terminate`), calls back (`callback`) and cleans up (`cleanup`). What a step does follows from
//! the record and from the state of the API server at that time; watches (`watches`) only wake. So a relay that was killed
//! continues from the list of its records.
//!
//! Guarantees: a task starts at most once; what is applied has its uid in the record before the next thing happens;
//! nothing is deleted but what carries the task's labels and the recorded uid.
mod admit;
mod answer_budget;
mod batch_context;
mod bodies;
mod callback;
mod cleanup;
mod client;
mod discovery;
mod documents;
mod error;
mod fair_queue;
pub mod http;
mod list;
mod logs;
mod names;
mod objects;
mod other_attempts;
mod pod;
mod poll;
mod ready;
mod reconcile;
mod record;
mod relay;
mod removal;
mod reports;
mod requests;
mod rules;
mod settings;
mod start;
mod startup;
mod store;
mod task_registry;
mod terminate;
mod wait_container;
mod watches;

pub use client::client;
pub use ebb_podspec::{ClusterPolicy, PodSecurityLevel};
pub use error::ReconcileError;
pub use poll::{ControlPlaneEndpoint, poll};
pub use relay::Relay;
pub use reports::ReportOutcome;
pub use requests::OtherCluster;
pub use settings::RelaySettings;
