//! The control plane's side of units in a cluster.
//!
//! A cluster's relay knows objects and nothing of scripts: [`script`] makes a Job and a Secret of a script, and
//! [`ClusterRelay`] sends it to the relay of the cluster that is named, signed. What is made and how is decided here, so
//! that it changes without anything in a cluster changing. A relay that cannot be reached polls the batch
//! queue ([`PollEndpoint`]); to callers there is no difference.

mod batch_sender;
mod batches;
mod job;
mod poll_endpoint;
mod pull;
mod registry;
mod relay;
pub mod script;

pub use job::{PodSettings, PodUser};
pub use poll_endpoint::{PollEndpoint, PollRejection};
pub use registry::{ClusterConfig, ClusterConfigError, ClusterRegistry, RelayTransport};
pub use relay::ClusterRelay;
