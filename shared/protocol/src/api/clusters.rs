//! Clusters and the objects that remain in them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::listing::ReportedPolicy;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterList {
    /// Clusters ordered by name.
    pub clusters: Vec<ClusterInfo>,
}

/// A connected cluster with information from its relay.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInfo {
    /// The name of the cluster in documents.
    pub name: String,
    pub transport: TransportKind,
    /// Absent in responses of earlier versions.
    pub state: Option<ClusterState>,
    /// The UID of the namespace `kube-system`, as reported by the relay or, without a response, as pinned.
    pub uid: Option<String>,
    /// The version of the relay. Absent without a response, like the next two fields.
    pub version: Option<String>,
    /// The uptime of the relay in seconds.
    pub up_seconds: Option<u64>,
    /// The number of tasks of the relay.
    pub tasks: Option<u64>,
    /// What documents may request in the cluster. Without a response, it is the last known policy. Absent if none is known,
    /// and for a relay of an earlier version.
    pub policy: Option<ReportedPolicy>,
    /// The time of the first report of the policy. Present if the relay does not respond and the policy is the last known
    /// one.
    pub policy_since: Option<String>,
    /// The reason why the relay did not respond, or why the cluster has none.
    pub error: Option<String>,
    pub outage: Option<RelayOutage>,
}

/// The state of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClusterState {
    /// The cluster is registered, and no relay has used its bootstrap token yet.
    WaitingForRelay,
    /// The relay responds.
    Up,
    /// The relay does not respond.
    Down,
    /// The relay does not respond, and polls under the name of the cluster have a wrong signature.
    Denied,
}

/// A cluster, with its registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDetail {
    #[serde(flatten)]
    pub info: ClusterInfo,
    /// Absent for a cluster of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<ClusterRegistration>,
}

/// A cluster that was registered by a request.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRegistration {
    /// The URL of the relay with push transport. Absent: pull.
    pub url: Option<String>,
    /// The image that contains the entrypoint as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    pub signadot_outputs: Option<SignadotOutputs>,
    /// The options of the installation, as they were sent.
    #[schema(value_type = Object)]
    pub options: serde_json::Map<String, serde_json::Value>,
    /// Changes with each write. Absent in responses of earlier versions.
    pub version: Option<u64>,
    pub created: String,
    /// The caller that created it.
    pub created_by: String,
    /// The time at which the present relay registered. Absent before.
    pub registered: Option<String>,
    /// The end of the bootstrap token that no relay has used yet.
    pub bootstrap_expires: Option<String>,
}

/// The form of the outputs of Signadot plugins in a cluster, if it is not the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignadotOutputs {
    Open,
}

/// Registers a cluster, or replaces its settings.
#[serde_with::skip_serializing_none]
#[serde_with::apply(bool => #[serde(default)])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutCluster {
    /// The URL of the relay with push transport, without `/v1/batch`. Absent: pull.
    pub url: Option<String>,
    /// The image that contains the entrypoint as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    /// `open`: the outputs of Signadot plugins are not sensitive in this cluster. Absent: they stay there, unless a plugin
    /// opens them. It counts for targets that are created or updated from then on.
    pub signadot_outputs: Option<SignadotOutputs>,
    /// The options of the installation, which Ebb stores and returns. At most 64 KiB, without secrets.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub options: serde_json::Map<String, serde_json::Value>,
    /// True issues a new bootstrap token, also for a cluster that exists.
    pub rebootstrap: bool,
    /// The `version` of the registration that was read. The request is refused if it has changed since.
    pub expected: Option<u64>,
}

/// A registered cluster with its bootstrap token, which no other response contains.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrap {
    pub name: String,
    /// Registers one relay within an hour. Absent if the cluster exists and no token was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<String>,
    /// The URL to which relays and scripts send their results. Empty in responses of earlier versions.
    #[serde(default)]
    pub callback_url: String,
    pub registration: ClusterRegistration,
}

/// An outage: the relay does not respond or does not reach the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RelayOutage {
    pub cluster: String,
    /// The time of the first error.
    pub since: String,
    /// The first error, for people.
    pub reason: String,
    /// Units of the target that wait for the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
}

/// The direction of requests between control plane and relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TransportKind {
    /// The control plane sends requests to the relay.
    #[default]
    Push,
    /// The relay polls the control plane for requests.
    Pull,
}

/// Objects in clusters whose instances have ended or are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphanList {
    /// Orphans ordered by cluster.
    pub orphans: Vec<Orphan>,
    /// Errors of clusters, or of parts of them, that could not be listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ClusterError>,
}

/// An object without an active owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Orphan {
    pub cluster: String,
    pub kind: String,
    /// Absent for a cluster-wide object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    /// The key of the instance, from the label or the record.
    pub instance: String,
    /// Seconds since the object was created or its task was requested.
    pub age_seconds: u64,
    /// The reason why the object is an orphan.
    pub reason: String,
    /// True if the relay recorded this UID when it applied the object, and the labels name the same task. Only owned
    /// objects are deleted.
    pub owned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterError {
    pub cluster: String,
    /// The object or the request, with the error. For people.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteOrphans {
    /// UIDs of listed orphans. An object that is no longer an owned orphan is not deleted.
    pub uids: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeleteOrphansResponse {
    pub deleted: Vec<Orphan>,
    /// Objects that are not deleted yet. A later scan or the same request continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<ClusterError>,
}
