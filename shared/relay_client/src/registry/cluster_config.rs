//! How to reach a connected cluster, and how its scripts run.

use ebb_protocol::{SignadotOutputs, WebhookKeys};

#[derive(Debug)]
pub struct ClusterConfig {
    /// The name in documents.
    pub name: String,
    pub transport: RelayTransport,
    /// The first key signs and encrypts batches. Polls are accepted with any key, so that a secret can be rotated.
    pub keys: WebhookKeys,
    /// The UID of the namespace `kube-system`. Responses from a relay in another cluster are rejected.
    pub uid: String,
    /// The image with the entrypoint, as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    pub signadot_outputs: Option<SignadotOutputs>,
    /// False for a cluster of the configuration of the control plane.
    pub is_registered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayTransport {
    /// The control plane sends batches to this URL, which is without `/v1/batch`.
    Push(String),
    Pull,
}
