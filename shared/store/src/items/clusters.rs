//! Registered clusters.

use ebb_protocol::{SignadotOutputs, Timestamp};
use serde::{Deserialize, Serialize};

/// A cluster that was registered by a request. It has no secret in clear.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterItem {
    /// The name in documents, a DNS label.
    pub name: String,
    /// The URL of the relay with push transport. `None` means pull.
    pub url: Option<String>,
    pub entrypoint_image: String,
    pub signadot_outputs: Option<SignadotOutputs>,
    /// The options of the installation, for the program that made it.
    #[serde(default)]
    pub options: serde_json::Value,
    /// `None` until a relay has registered.
    pub relay: Option<RegisteredRelay>,
    pub bootstrap: Option<BootstrapToken>,
    /// The time of the first request.
    pub created: Timestamp,
    /// The caller that sent it.
    pub created_by: String,
    #[serde(skip)]
    pub version: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredRelay {
    /// The UID of the namespace `kube-system`. It never changes.
    pub uid: String,
    /// The encrypted secret that the relay has made.
    pub secret: String,
    /// The time of the registration.
    pub since: Timestamp,
}

/// A token that registers a relay, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapToken {
    pub digest: String,
    pub expires: Timestamp,
    #[serde(default)]
    pub used: bool,
}
