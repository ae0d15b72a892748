//! The client of relays in the control plane.
//!
//! 1. `script` converts a script into a Job and a Secret, because a relay applies objects only. The format of a Job can
//!    therefore change without an upgrade of relays.
//! 2. [`ClusterRelay`] collects simultaneous requests to a cluster in batches (`batches`).
//! 3. `batch_sender` signs a batch and sends it to the relay (push), or stores it in the batch queue (`pull`).
//! 4. [`PollEndpoint`] serves the polls of relays with pull transport.
//! 5. `registration` adds clusters to the [`ClusterRegistry`] by requests.
//! 6. [`reported_policy`] prepares the policy that a relay reported for checks of documents.

mod batch_sender;
mod batches;
mod pod_template;
mod poll_endpoint;
mod pull;
mod registration;
mod registry;
mod relay;
mod reported_policy;
mod script;

pub use poll_endpoint::{PollEndpoint, PollResult};
pub use registration::StoredRegistration;
pub use registry::{ClusterConfig, ClusterLookupError, ClusterRegistry, RelayTransport};
pub use relay::ClusterRelay;
pub use reported_policy::reported_policy;
