//! Registered clusters.

use ebb_protocol::api::SignadotOutputs;
use ebb_protocol::engine::Timestamp;
use serde::{Deserialize, Serialize};

/// A cluster that was registered by a request. It has no secret in clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterItem {
    /// The name in documents, a DNS label.
    pub name: String,
    /// The URL of the relay with push transport. `None` means pull.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    pub entrypoint_image: String,
    #[serde(default)]
    pub run_as_non_root: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signadot_outputs: Option<SignadotOutputs>,
    /// The options of the installation, for the program that made it.
    #[serde(default)]
    pub options: serde_json::Value,
    /// `None` until a relay has registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RegisteredRelay>,
    /// The last bootstrap token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapToken>,
    /// The time of the first request.
    pub created: Timestamp,
    /// The caller that sent it.
    pub created_by: String,
    #[serde(skip)]
    pub version: u64,
}

/// The relay of a registered cluster.
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
