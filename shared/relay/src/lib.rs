//! The relay of a cluster: it applies objects, watches them, collects what they made, and reports.
//!
//! It speaks a few verbs ([`ebb_protocol::relay`]) and knows work by their names alone: no unit kinds, retries or plugins.
//!
//! Flow of one work: [`Relay::batch`] checks what is asked for (`admit`) and makes its record, a Secret in the relay's own
//! namespace (`record`). From then on one task looks after it (`attend`) and takes one step at a time: when it is its
//! turn (`turns`) it applies (`start`), waits for a container (`ended`, judged by `pod`) or for objects (`ready`), ends
//! what has to die (`ending`), calls back (`callback`) and tidies up (`tidy`). What a step does follows from the record
//! and from what the API server says at that time; watches (`watches`) only wake. So a relay that was killed goes on by
//! listing its records.
//!
//! Guarantees: a name starts at most once; what is applied has its uid in the record before the next thing happens;
//! nothing is deleted but what carries the work's labels and the recorded uid.
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
pub use error::ClusterError;
pub use poll::{ControlPlaneEndpoint, poll};
pub use relay::Relay;
pub use reports::ReportOutcome;
pub use requests::OtherCluster;
pub use settings::RelaySettings;
