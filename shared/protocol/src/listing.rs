//! Information about a relay and the listing of its cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::TaskId;
use crate::limits::message;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayInfo {
    pub version: String,
    /// Milliseconds since the start.
    pub up_ms: u64,
    pub tasks: u64,
    /// The policy in force. A relay of an earlier version reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ReportedPolicy>,
    /// A relay of an earlier version does not try its API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<ApiServerState>,
}

/// Whether the API server of a cluster responds to its relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApiServerState {
    Responds,
    /// The reason.
    Fails(String),
}

/// The maximum number of names in each part of a reported policy.
const MAX_REPORTED: usize = 200;

/// What the operator of a cluster allows.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedPolicy {
    /// The namespace of units whose documents name none. `None` from a relay of an earlier version, which does not report
    /// the classes of pods either.
    pub unit_namespace: Option<String>,
    /// The namespace of the relay, in which no unit may run. `None` from a relay of an earlier version.
    pub relay_namespace: Option<String>,
    pub namespaces: BTreeMap<String, ReportedNamespace>,
    /// Kinds of namespaced objects: `Kind`, `Kind.group` or `*.group`.
    pub kinds: BTreeSet<String>,
    /// Kinds of objects outside of namespaces.
    pub cluster_kinds: BTreeSet<String>,
    /// Namespaces of workloads in which `bind` may have objects.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub bind_namespaces: BTreeSet<String>,
    /// Runtime classes of pods.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub runtime_classes: BTreeSet<String>,
    /// Priority classes of pods.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub priority_classes: BTreeSet<String>,
    /// The names of Services that units may call.
    pub services: BTreeSet<String>,
}

impl ReportedPolicy {
    /// Limits the number and the length of the names that a relay reports.
    #[must_use]
    pub fn fit(mut self) -> Self {
        fn shorten(names: &mut BTreeSet<String>) {
            *names = names.iter().take(MAX_REPORTED).map(|name| message(name)).collect();
        }
        let texts = [self.unit_namespace.as_mut(), self.relay_namespace.as_mut()];
        texts.into_iter().flatten().for_each(|text| *text = message(text));
        let namespaces = self.namespaces.into_iter().take(MAX_REPORTED).map(|(name, mut entry)| {
            entry.level = message(&entry.level);
            [&mut entry.service_accounts, &mut entry.image_pull_secrets].into_iter().for_each(shorten);
            (message(&name), entry)
        });
        self.namespaces = namespaces.collect();
        let kinds = [&mut self.kinds, &mut self.cluster_kinds];
        let classes = [&mut self.runtime_classes, &mut self.priority_classes];
        kinds.into_iter().chain(classes).chain([&mut self.bind_namespaces, &mut self.services]).for_each(shorten);
        self
    }

    /// Returns true if [`Self::fit`] may have omitted a name.
    pub fn is_cut(&self) -> bool {
        let entries = self.namespaces.values().flat_map(|entry| [&entry.service_accounts, &entry.image_pull_secrets]);
        let classes = [&self.runtime_classes, &self.priority_classes];
        let own = [&self.kinds, &self.cluster_kinds, &self.bind_namespaces, &self.services].into_iter().chain(classes);
        self.namespaces.len() >= MAX_REPORTED || entries.chain(own).any(|names| names.len() >= MAX_REPORTED)
    }
}

/// What pods of a namespace may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedNamespace {
    /// `restricted`, `baseline` or `privileged`.
    pub level: String,
    pub service_accounts: BTreeSet<String>,
    pub image_pull_secrets: BTreeSet<String>,
}

/// A page of a listing: first tasks, then objects without a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterListing {
    /// Tasks that may have objects. Tombstones are omitted.
    pub tasks: Vec<TaskSummary>,
    /// Labelled objects without an owner that are in no record of this relay. They may belong to another relay. At
    /// most [`MAX_UNMANAGED`].
    pub unmanaged: Vec<UnmanagedObject>,
    /// Errors of objects that could not be listed. For people.
    pub errors: Vec<String>,
    /// The token of the next page, or `None` on the last page.
    pub next_token: Option<String>,
}

pub const MAX_UNMANAGED: usize = 500;

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
    /// True if the object is still that of the task, also if a person has changed its labels. False if another task has
    /// taken it over. For an object that is in no record: true if its labels name a task.
    pub labelled: bool,
}
