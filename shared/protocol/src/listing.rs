//! What a relay says of itself, and of what there is in its cluster.

use serde::{Deserialize, Serialize};

use crate::relay::TaskId;

/// Which relay answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayInfo {
    pub version: String,
    /// Milliseconds since it was started.
    pub up_ms: u64,
    pub tasks: u64,
}

/// A page of what there is: first works by their records, then what has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterListing {
    /// Works of which something may be left. Names that are only remembered are not among them.
    #[serde(default)]
    pub tasks: Vec<TaskSummary>,
    /// Objects with our labels that no record of this relay knows by their uid, and that no other object owns. They may be
    /// another relay's. At most [`MAX_UNMANAGED`].
    #[serde(default)]
    pub unmanaged: Vec<UnmanagedObject>,
    /// What could not be listed, and why. For people.
    #[serde(default)]
    pub errors: Vec<String>,
    /// For the next page; `None`: this is the last one.
    #[serde(default)]
    pub next: Option<String>,
}

/// Objects without a record that are listed at most.
pub const MAX_UNMANAGED: usize = 500;

/// A work as its record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    pub name: TaskId,
    /// `starting`, `running`, `ending`, `ended`, `taken` or `tombstone`.
    pub phase: String,
    /// As in [`ObjectTask::life`](crate::relay::Objects::life).
    pub instance: String,
    /// Where its result goes: which control plane has asked for it.
    pub callback: String,
    /// As in [`CallbackEndpoint::installation`](crate::relay::Destination::installation).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub installation: String,
    /// Milliseconds since it was asked for.
    pub age_ms: u64,
    /// What was applied for it and is still there: by the recorded uid.
    pub objects: Vec<ObjectSummary>,
}

/// An object with our labels that no record knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmanagedObject {
    /// The unit that its label names.
    pub unit: String,
    /// Milliseconds since it was made.
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
    /// Whether its labels name the work.
    pub labelled: bool,
}
