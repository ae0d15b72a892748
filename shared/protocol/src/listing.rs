//! Information about a relay, and the listing of its cluster.

use serde::{Deserialize, Serialize};

use crate::relay::TaskId;

/// The relay that responds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayInfo {
    pub version: String,
    /// Milliseconds since it was started.
    pub up_ms: u64,
    pub tasks: u64,
}

/// A page of a listing: first tasks by their records, then objects without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterListing {
    /// Tasks that may have objects left. Tombstones are not among them.
    #[serde(default)]
    pub tasks: Vec<TaskSummary>,
    /// Objects with our labels that no record of this relay knows by their uid, and that no other object owns. They may be
    /// another relay's. At most [`MAX_UNMANAGED`].
    #[serde(default)]
    pub unmanaged: Vec<UnmanagedObject>,
    /// Errors of objects that could not be listed. For people.
    #[serde(default)]
    pub errors: Vec<String>,
    /// For the next page; `None`: this is the last one.
    #[serde(default)]
    pub next_token: Option<String>,
}

/// Objects without a record that are listed at most.
pub const MAX_UNMANAGED: usize = 500;

/// A task as its record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    pub task: TaskId,
    /// `starting`, `running`, `terminating`, `ended`, `acknowledged` or `tombstone`.
    pub phase: String,
    /// As in [`ObjectTask::instance`](crate::relay::ObjectTask::instance).
    pub instance: String,
    /// The URL that takes its result: it tells which control plane requested the task.
    pub callback: String,
    /// As in [`CallbackEndpoint::installation`](crate::relay::CallbackEndpoint::installation).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub installation: String,
    /// Milliseconds since it was requested.
    pub age_ms: u64,
    /// The objects that were applied for it and still exist, by the recorded uid.
    pub objects: Vec<ObjectSummary>,
}

/// An object with our labels that no record knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmanagedObject {
    /// The unit that its label names.
    pub unit: String,
    /// Milliseconds since it was created.
    pub age_ms: u64,
    pub object: ObjectSummary,
}

/// An object of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSummary {
    /// `GROUP/VERSION`, or `v1`.
    pub api_version: String,
    pub kind: String,
    /// `None`: outside of namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    /// True if its labels name the task.
    pub labelled: bool,
}
