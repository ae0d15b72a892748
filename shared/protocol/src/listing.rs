//! Information about a relay and the listing of its cluster.

use serde::{Deserialize, Serialize};

use crate::id::TaskId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayInfo {
    pub version: String,
    /// Milliseconds since the start.
    pub up_ms: u64,
    pub tasks: u64,
}

/// A page of a listing: first tasks, then objects without a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterListing {
    /// Tasks that may have objects. Tombstones are omitted.
    #[serde(default)]
    pub tasks: Vec<TaskSummary>,
    /// Labelled objects without an owner that are in no record of this relay. They may belong to another relay. At
    /// most [`MAX_UNMANAGED`].
    #[serde(default)]
    pub unmanaged: Vec<UnmanagedObject>,
    /// Errors of objects that could not be listed. For people.
    #[serde(default)]
    pub errors: Vec<String>,
    /// The token of the next page, or `None` on the last page.
    #[serde(default)]
    pub next_token: Option<String>,
}

pub const MAX_UNMANAGED: usize = 500;

/// The record of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    pub task: TaskId,
    /// `starting`, `running`, `terminating`, `ended`, `acknowledged` or `tombstone`.
    pub phase: String,
    /// As in [`ObjectTask::instance`](crate::relay::ObjectTask::instance).
    pub instance: String,
    /// The callback URL, which identifies the control plane that requested the task.
    pub callback: String,
    /// As in [`CallbackEndpoint::installation`](crate::relay::CallbackEndpoint::installation).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub installation: String,
    /// Milliseconds since the request.
    pub age_ms: u64,
    /// Applied objects that still exist with the recorded UID.
    pub objects: Vec<ObjectSummary>,
}

/// A labelled object that is in no record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmanagedObject {
    /// The unit from the label.
    pub unit: String,
    /// Milliseconds since the creation.
    pub age_ms: u64,
    pub object: ObjectSummary,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSummary {
    /// `GROUP/VERSION`, or `v1`.
    pub api_version: String,
    pub kind: String,
    /// `None` for a cluster-wide object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    /// True if the labels name the task.
    pub labelled: bool,
}
