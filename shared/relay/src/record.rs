//! The record of a task: a Secret, because requests carry tokens and results carry values.

use std::collections::BTreeSet;

use ebb_protocol::callback::FailureReason;
use ebb_protocol::relay::{CallbackEndpoint, ObjectTask, TaskCompletion, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is remembered of a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskRecord {
    pub(crate) name: TaskId,
    pub(crate) phase: TaskPhase,
    /// `None`: the name was cancelled before it came.
    pub(crate) spec: Option<TaskSpec>,
}

impl TaskRecord {
    /// Returns whether it waits for a slot: nothing of it was applied.
    pub(crate) fn is_queued(&self) -> bool {
        let waits = |spec: &TaskSpec| spec.container().is_some() && !spec.has_slot && spec.applied.is_empty();
        self.phase == TaskPhase::Starting && self.spec.as_ref().is_some_and(waits)
    }

    /// Returns whether the record may be removed: its result was acknowledged, and it names no objects to remove.
    pub(crate) fn is_removable(&self) -> bool {
        self.phase.is_over() && self.spec.as_ref().is_none_or(|spec| spec.applied.is_empty())
    }

    /// Returns true if something of it may run in a container now.
    pub(crate) fn may_run(&self) -> bool {
        let container = self.spec.as_ref().is_some_and(|spec| spec.container().is_some());
        container && self.phase.is_open() && !self.is_queued()
    }
}

/// The phase of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TaskPhase {
    Starting,
    /// All is applied; its end is waited for.
    Running,
    /// Its containers are being terminated. Times are milliseconds since 1970 by the relay's clock.
    #[serde(rename_all = "camelCase")]
    Terminating {
        grace_ms: u64,
        since_ms: u64,
        /// True if it then has the result that is held; otherwise it is a tombstone.
        has_result: bool,
        /// Where an object may still come to be: whether a request for it is under way nobody knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unconfirmed: Option<UnconfirmedObject>,
    },
    /// There is a result, which was not acknowledged yet.
    Ended,
    /// The result was acknowledged. Its objects are deleted, unless they are to be kept.
    Acknowledged,
    /// It does not run and never will. Times as before.
    #[serde(rename_all = "camelCase")]
    Tombstone {
        since_ms: u64,
    },
}

impl TaskPhase {
    /// For the label that people see.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Terminating { .. } => "terminating",
            Self::Ended => "ended",
            Self::Acknowledged => "acknowledged",
            Self::Tombstone { .. } => "tombstone",
        }
    }

    /// Returns true if something of it runs, or may.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Terminating { .. })
    }

    /// Returns true if nobody waits for its result.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Acknowledged | Self::Tombstone { .. })
    }
}

/// What was asked for, as far as it is still needed. Times are milliseconds since 1970 by the relay's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskSpec {
    pub(crate) callback: CallbackEndpoint,
    pub(crate) namespace: String,
    /// What was asked for; the manifests and documents go once they are applied.
    pub(crate) objects: ObjectTask,
    /// What was applied, documents first, then the manifests in their order.
    pub(crate) applied: Vec<AppliedObject>,
    pub(crate) token: String,
    /// The time at which its timeout began: when it was requested, or when it got its slot.
    pub(crate) received_ms: u64,
    pub(crate) not_after_ms: u64,
    pub(crate) deadline_ms: u64,
    /// True if it has, or had, a slot. Only tasks with a container need one.
    #[serde(default)]
    pub(crate) has_slot: bool,
    /// Names of the sensitive outputs that its entrypoint may report.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) sensitive: BTreeSet<String>,
    /// True if the stored result was reported by the entrypoint and waits for the container's end.
    #[serde(default)]
    pub(crate) reported: bool,
    /// What was seen of a pod that is about to end, should nobody see it again.
    #[serde(default)]
    pub(crate) early_failure: Option<FailureReason>,
}

impl TaskSpec {
    /// Starts its timeout when it gets its slot: it has the time from now on that it had when it was requested.
    pub(crate) fn start_clock(&mut self, now_ms: u64) {
        let waited = now_ms.saturating_sub(self.received_ms);
        for time in [&mut self.received_ms, &mut self.not_after_ms, &mut self.deadline_ms] {
            *time = time.saturating_add(waited);
        }
        self.has_slot = true;
    }

    /// The container whose end is waited for.
    pub(crate) fn container(&self) -> Option<&str> {
        match &self.objects.until {
            TaskCompletion::Ended { container } => Some(container),
            TaskCompletion::Ready(_) => None,
        }
    }

    /// Where all is applied that was asked for, in its order, and whether it is a document.
    pub(crate) fn object_refs(&self) -> impl Iterator<Item = (ObjectRef, bool)> {
        let documents = self.objects.secrets.iter().map(|it| (ObjectRef::secret(&self.namespace, &it.name), true));
        documents.chain(self.objects.apply.iter().map(|manifest| (ObjectRef::of(manifest), false)))
    }

    /// What was applied of the manifests.
    pub(crate) fn manifests(&self) -> impl DoubleEndedIterator<Item = &AppliedObject> {
        self.applied.iter().filter(|applied| !applied.document)
    }
}

/// An object that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AppliedObject {
    pub(crate) object_ref: ObjectRef,
    pub(crate) uid: String,
    /// True if it is a Secret with a document.
    #[serde(default)]
    pub(crate) document: bool,
}

/// What may have been applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnconfirmedObject {
    pub(crate) object_ref: ObjectRef,
    pub(crate) document: bool,
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectRef {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// `None`: outside of namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl ObjectRef {
    /// Where a manifest belongs, whose namespace was filled in.
    pub(crate) fn of(manifest: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&manifest["apiVersion"]),
            kind: text(&manifest["kind"]),
            namespace: manifest["metadata"]["namespace"].as_str().map(str::to_owned),
            name: text(&manifest["metadata"]["name"]),
        }
    }

    /// A Secret.
    pub(crate) fn secret(namespace: &str, name: &str) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// Returns true if it is a Job.
    pub(crate) fn is_job(&self) -> bool {
        self.kind == "Job" && self.api_version.starts_with("batch/")
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}
