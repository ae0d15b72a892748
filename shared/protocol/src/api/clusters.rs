//! Clusters and the objects that remain in them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The clusters that are connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterList {
    /// By name.
    pub clusters: Vec<ClusterInfo>,
}

/// A connected cluster, and the information that its relay reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInfo {
    /// The name that documents have for it.
    pub name: String,
    /// `push`: the control plane sends requests to the relay; `pull`: the relay polls for them.
    pub transport: TransportKind,
    /// The uid of its namespace `kube-system`: the one that the relay reports, else the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Version of the relay. Absent if it did not answer, as the next two fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Seconds for which the relay is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_seconds: Option<u64>,
    /// Number of tasks of the relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// The reason why the relay did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The outage, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<RelayOutage>,
}

/// An outage of a cluster: its relay does not answer, or does not reach the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayOutage {
    /// The cluster.
    pub cluster: String,
    /// When it was first observed.
    pub since: String,
    /// The first error, for people.
    pub reason: String,
    /// The target's units that wait for the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
}

/// The direction of the requests between control plane and relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TransportKind {
    /// The control plane sends them to the relay.
    Push,
    /// The relay polls the control plane for them.
    Pull,
}

/// Objects that remain in clusters of instances that have ended, or that are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanList {
    /// By cluster.
    pub orphans: Vec<Orphan>,
    /// The clusters, or parts of them, that could not be listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ClusterError>,
}

/// An object without an active owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Orphan {
    /// The cluster.
    pub cluster: String,
    /// Its kind.
    pub kind: String,
    /// Absent: outside of namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The key of the instance that it was made for, by its label or record.
    pub instance: String,
    /// Seconds since it was made, or its task was requested.
    pub age_seconds: u64,
    /// The reason why it is an orphan.
    pub reason: String,
    /// True if the relay recorded this uid when it applied the object, and the labels still name the same task. Only owned
    /// objects are deleted.
    pub owned: bool,
}

/// An error of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterError {
    /// The cluster.
    pub cluster: String,
    /// The object or the request, and the error. For people.
    pub reason: String,
}

/// Asks for the deletion of orphans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteOrphans {
    /// Uids of listed orphans; an object that is not an owned orphan by now stays.
    pub uids: Vec<String>,
}

/// The result of the deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOrphansResponse {
    /// The deleted objects.
    pub deleted: Vec<Orphan>,
    /// The objects that are not deleted, or not yet: a later scan, or the same request, continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<ClusterError>,
}
