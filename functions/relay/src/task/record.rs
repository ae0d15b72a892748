//! The record of a task. It is a Secret, because requests carry tokens and results carry values.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_kube::podspec;
use ebb_protocol::{CallbackEndpoint, FailureReason, ObjectTask, TaskCompletion, TaskId, TaskNames, short_digest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names::{ObjectMarks, USES};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskRecord {
    pub(crate) name: TaskId,
    pub(crate) phase: TaskPhase,
    /// `None` if the task was cancelled before it was requested.
    pub(crate) spec: Option<TaskSpec>,
    /// Further Secrets with parts of the result.
    pub(crate) result_parts: usize,
    /// Further Secrets with the documents of a queued task.
    pub(crate) document_parts: usize,
    /// The number of removed objects of an ended task that keeps its objects, for the evidence of the removal.
    pub(crate) removed: Option<usize>,
}

impl TaskRecord {
    pub(crate) fn new(name: TaskId, phase: TaskPhase, spec: Option<TaskSpec>) -> Self {
        Self { name, phase, spec, result_parts: 0, document_parts: 0, removed: None }
    }

    pub(crate) fn applied(&self) -> &[AppliedObject] {
        self.spec.as_ref().map_or(&[], |spec| &spec.applied)
    }

    /// Returns true if the record shows which objects the task has applied. A tombstone that prevents a start shows it only
    /// if no record of the task can be lost.
    pub(crate) fn names_objects(&self) -> bool {
        self.spec.is_some() || self.removed.is_some()
    }

    /// Returns the namespaces of units that may contain objects of the task. Those of `bind` are not for units.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = String> {
        let is_bound = self.spec.as_ref().is_some_and(|spec| spec.objects.bind);
        let applied = self.applied().iter().filter(move |_| !is_bound);
        let applied = applied.filter_map(|applied| applied.object_ref.namespace.clone());
        applied.chain(self.spec.as_ref().map(|spec| spec.namespace.clone()))
    }

    pub(crate) fn clear_applied(&mut self) {
        let is_kept = self.is_kept();
        let gone = self.spec.as_mut().map_or(0, |spec| std::mem::take(&mut spec.applied).len());
        if is_kept {
            *self.removed.get_or_insert_default() += gone;
        }
    }

    /// Returns true if the task may take over objects of another one: of a lower attempt, or of a unit that it adopts.
    pub(crate) fn takes_over(&self, from: &TaskId) -> bool {
        let is_later = self.name.unit == from.unit && self.name.attempt > from.attempt;
        self.spec.as_ref().is_some_and(|spec| is_later || spec.objects.adopts.contains(&from.unit))
    }

    pub(crate) fn has_container(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.container().is_some())
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.objects.keep)
    }

    /// Returns true if the task waits for a slot. Nothing was applied yet.
    pub(crate) fn is_queued(&self) -> bool {
        let has_slot = self.spec.as_ref().is_some_and(|spec| spec.has_slot);
        self.phase == TaskPhase::Starting && self.has_container() && !has_slot && self.applied().is_empty()
    }

    /// Returns true while the control plane lacks the result, or only the record names objects that stay.
    pub(crate) fn is_needed(&self) -> bool {
        !self.phase.is_over() || (self.is_kept() && !self.applied().is_empty())
    }

    pub(crate) fn may_run(&self) -> bool {
        self.has_container() && self.phase.is_open() && !self.is_queued()
    }

    pub(crate) fn needs_reconcile(&self) -> bool {
        match self.phase {
            TaskPhase::Acknowledged => self.spec.is_some() && (!self.is_kept() || self.applied().is_empty()),
            TaskPhase::Tombstone { .. } => false,
            _ => true,
        }
    }

    /// Sends an unacknowledged result to the newest callback, whose token is valid for the longest time. The result of
    /// a task that keeps its objects is sent again. Returns true if the record has changed.
    pub(crate) fn renew(&mut self, callback: &CallbackEndpoint) -> bool {
        let is_sent_again = self.phase == TaskPhase::Acknowledged && self.is_kept();
        if is_sent_again {
            self.phase = TaskPhase::Ended;
        }
        if !matches!(self.phase, TaskPhase::Starting | TaskPhase::Ended) {
            return false;
        }
        let Some(spec) = &mut self.spec else { return false };
        let before = std::mem::replace(&mut spec.callback, callback.clone());
        is_sent_again || before != *callback
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum TaskPhase {
    Starting,
    /// All objects are applied. The relay waits for readiness or for the end of the container.
    Running,
    /// The containers are being terminated. Times are milliseconds since 1970 by the relay's clock.
    Terminating {
        grace_ms: u64,
        since_ms: u64,
        /// True if the record holds the result. Otherwise the task becomes a tombstone.
        has_result: bool,
        /// An object whose request may still be in transit. Its UID is empty.
        unconfirmed: Option<AppliedObject>,
    },
    /// The task has a result that is not acknowledged yet.
    Ended,
    /// The result is acknowledged. Objects are deleted unless `keep` is set.
    Acknowledged,
    /// The task does not run and must never start.
    Tombstone {
        since_ms: u64,
    },
}

impl TaskPhase {
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

    /// Returns true if a part of the task runs or may start.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Terminating { .. })
    }

    /// Returns true if the control plane needs no result of the task.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Acknowledged | Self::Tombstone { .. })
    }
}

/// The parts of a request that are still needed. Times are milliseconds since 1970 by the relay's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskSpec {
    pub(crate) callback: CallbackEndpoint,
    /// For people.
    pub(crate) names: TaskNames,
    pub(crate) namespace: String,
    /// The requested objects. Manifests and documents are removed once they are applied.
    pub(crate) objects: ObjectTask,
    /// Labels of the record, by [`crate::objects::references::use_labels`].
    pub(crate) uses: BTreeMap<String, String>,
    /// Applied objects: documents first, then the manifests in their order.
    pub(crate) applied: Vec<AppliedObject>,
    pub(crate) token: String,
    /// The start of its timeout: the request, or the assignment of a slot.
    pub(crate) received_ms: u64,
    pub(crate) not_after_ms: u64,
    pub(crate) deadline_ms: u64,
    /// True once the task has got a slot. Only tasks with a container need one.
    pub(crate) has_slot: bool,
    /// The names of the sensitive outputs that the entrypoint may report.
    pub(crate) sensitive: BTreeSet<String>,
    /// True if a document already existed. Its entrypoint may report to a former relay, whose records are lost.
    pub(crate) taken_over: bool,
    /// True if the stored result comes from the entrypoint and waits for the end of the container.
    pub(crate) reported: bool,
    /// The reason of a pod before its deletion, or the cause of a Job before its failure. It cannot be read later.
    pub(crate) early_failure: Option<FailureReason>,
}

impl TaskSpec {
    /// Returns a task without objects.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let rows: serde_json::Value = serde_saphyr::from_str(include_str!("../../tests/rows.yaml")).unwrap();
        serde_json::from_value(rows["task_without_objects"][0].clone()).unwrap()
    }

    /// Restarts the timeout with the full duration when the task gets its slot.
    pub(crate) fn start_clock(&mut self, now_ms: u64) {
        let waited = now_ms.saturating_sub(self.received_ms);
        for time in [&mut self.received_ms, &mut self.not_after_ms, &mut self.deadline_ms] {
            *time = time.saturating_add(waited);
        }
        self.has_slot = true;
    }

    pub(crate) fn container(&self) -> Option<&str> {
        match &self.objects.until {
            TaskCompletion::Ended { container } => Some(container),
            TaskCompletion::Ready(_) => None,
        }
    }

    /// Returns all requested objects in their order, and true for a document.
    pub(crate) fn object_refs(&self) -> impl Iterator<Item = (ObjectRef, bool)> {
        let documents = self.objects.secrets.iter().map(|it| (ObjectRef::secret(&self.namespace, &it.name), true));
        documents.chain(self.objects.apply.iter().map(|manifest| (ObjectRef::of(manifest), false)))
    }

    pub(crate) fn manifests(&self) -> impl DoubleEndedIterator<Item = &AppliedObject> {
        self.applied.iter().filter(|applied| !applied.document)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AppliedObject {
    pub(crate) object_ref: ObjectRef,
    /// Empty if the relay was killed before it recorded the UID, and cannot decide whether the task made the object.
    pub(crate) uid: String,
    /// True for a Secret with a document.
    pub(crate) document: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectRef {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// `None` for a cluster-wide object.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl ObjectRef {
    /// Returns the reference of a manifest with a namespace.
    pub(crate) fn of(manifest: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&manifest["apiVersion"]),
            kind: text(&manifest["kind"]),
            namespace: manifest["metadata"]["namespace"].as_str().map(str::to_owned),
            name: text(&manifest["metadata"]["name"]),
        }
    }

    pub(crate) fn secret(namespace: &str, name: &str) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// Returns the command that grants the rights to objects of this kind.
    pub(crate) fn right_fix(&self, cluster: &str) -> String {
        let fix = podspec::kind_fix(&podspec::full_kind(&self.api_version, &self.kind), self.namespace.is_some());
        fix.replace(" NAME ", &format!(" {cluster} "))
    }

    /// Returns the label of records whose tasks use the object.
    pub(crate) fn use_label(&self) -> String {
        format!("{USES}{}", short_digest(&[&self.kind, self.namespace.as_deref().unwrap_or_default(), &self.name], 16))
    }

    pub(crate) fn secret_manifest(&self, marks: &ObjectMarks, key: &str, value: &[u8]) -> Value {
        let ObjectMarks { labels, annotations } = marks;
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {
                "name": self.name, "namespace": self.namespace, "labels": labels, "annotations": annotations,
            },
            "data": {key: STANDARD.encode(value)},
        })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_queued_task_starts_with_its_slot() {
        let mut spec = TaskSpec { received_ms: 100, not_after_ms: 1_100, deadline_ms: 5_100, ..TaskSpec::example() };
        spec.start_clock(60_100);
        assert_eq!((spec.received_ms, spec.not_after_ms, spec.deadline_ms), (60_100, 61_100, 65_100));
        assert!(spec.has_slot);
    }
}
