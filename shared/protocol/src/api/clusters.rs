//! What the api says of clusters, and of what is left in them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The clusters that are connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterList {
    /// By name.
    pub clusters: Vec<ClusterInfo>,
}

/// A cluster that is connected, and what its relay says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInfo {
    /// The name that documents have for it.
    pub name: String,
    /// `push`: its relay is asked; `pull`: it asks.
    pub transport: TransportKind,
    /// The uid of its namespace `kube-system`: the pinned one, else what the relay says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Version of the relay. Absent when it did not answer, as what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Seconds for which the relay is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_seconds: Option<u64>,
    /// Works that the relay looks after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Why nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Since when it gives no answer to what units need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<RelayOutage>,
}

/// A cluster that gives no answer to what units need: its relay is not reached, or does not reach the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayOutage {
    /// The cluster.
    pub cluster: String,
    /// When that was seen first.
    pub since: String,
    /// What was said then. For people.
    pub reason: String,
    /// The target's units that wait for an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
}

/// Who asks whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TransportKind {
    /// The control plane asks the relay.
    Push,
    /// The relay asks the control plane.
    Pull,
}

/// What is left in clusters of lives that are over, or of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanList {
    /// By cluster.
    pub orphans: Vec<Orphan>,
    /// What could not be looked at. For people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RelayProblem>,
}

/// An object that nobody seems to need.
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
    /// The key of the life that it was made for, as its label or record says.
    pub instance: String,
    /// Seconds since it was made, or asked for.
    pub age_seconds: u64,
    /// Why it is thought to be one.
    pub reason: String,
    /// Whether it is proven to be ours: the relay has recorded this uid when it applied the object, and the labels still
    /// name the same work. Nothing else is ever deleted.
    pub owned: bool,
}

/// What could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayProblem {
    /// The cluster.
    pub cluster: String,
    /// What, and why not.
    pub reason: String,
}

/// Asks for the deletion of orphans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteOrphans {
    /// Uids of those that were seen; what is no proven orphan by now stays.
    pub uids: Vec<String>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphansDeleted {
    /// These are gone.
    pub deleted: Vec<Orphan>,
    /// These are not, or not yet: a later sweep, or the same request, goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<RelayProblem>,
}
