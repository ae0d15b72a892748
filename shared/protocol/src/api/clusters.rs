//! Clusters and the objects that remain in them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::listing::ReportedPolicy;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterList {
    /// Clusters ordered by name.
    pub clusters: Vec<ClusterInfo>,
}

/// A connected cluster with information from its relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInfo {
    /// The name of the cluster in documents.
    pub name: String,
    pub transport: TransportKind,
    /// The UID of the namespace `kube-system`, as reported by the relay or, without a response, as pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The version of the relay. Absent without a response, like the next two fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The uptime of the relay in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_seconds: Option<u64>,
    /// The number of tasks of the relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// What documents may request in the cluster. Absent without a response, and for a relay of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ReportedPolicy>,
    /// The reason why the relay did not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<RelayOutage>,
}

/// An outage: the relay does not respond or does not reach the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TransportKind {
    /// The control plane sends requests to the relay.
    Push,
    /// The relay polls the control plane for requests.
    Pull,
}

/// Objects in clusters whose instances have ended or are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
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
#[serde(rename_all = "camelCase")]
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
#[serde(rename_all = "camelCase")]
pub struct DeleteOrphansResponse {
    pub deleted: Vec<Orphan>,
    /// Objects that are not deleted yet. A later scan or the same request continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<ClusterError>,
}
