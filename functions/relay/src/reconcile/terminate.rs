//! Terminates tasks: the Job with its pods, and all objects of a task unless `keep` is set.

use std::sync::Arc;

use ebb_protocol::{Callback, TaskId, TaskWait};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

use crate::objects::{self, ObjectIdentity, delete_uid};
use crate::reconcile::task_events::{self, TaskEnd};
use crate::reconcile::{DELETION_PAUSE, ReconcileAction};
use crate::task::decide::{self, Termination};
use crate::task::task_waits;
use crate::{AppliedObject, ObjectRef, Reconciler, Result, TaskPhase, TaskSpec, VersionedRecord, millis, now_ms};

pub(crate) const GRACE_MS: u64 = 5_000;

impl Reconciler {
    /// Ends a task with this result. All objects that may still run or appear are terminated first.
    pub(crate) async fn terminate_with(&self, held: &mut VersionedRecord, result: Callback) -> Result<ReconcileAction> {
        if held.record.has_container() || held.may_be_in_flight() {
            self.begin_termination(held, GRACE_MS, Some(result)).await?;
            return Ok(ReconcileAction::RequeueNow);
        }
        self.finish(held, result).await
    }

    /// Ends a task with this result. No part of the task may run.
    pub(crate) async fn finish(&self, held: &mut VersionedRecord, mut result: Callback) -> Result<ReconcileAction> {
        let since_ms = held.record.spec.as_ref().map(|spec| spec.received_ms);
        result.duration_ms = result.duration_ms.or(since_ms.map(|since| now_ms().saturating_sub(since)));
        let end = TaskEnd::of(&result);
        // The event is published while the objects exist.
        let is_published = matches!(held.record.phase, TaskPhase::Terminating { has_result: true, .. });
        held.set_result(result);
        held.record.phase = TaskPhase::Ended;
        self.store.save(held).await?;
        if let Some(spec) = &held.record.spec {
            task_events::record_end(&held.record.name, &spec.names, &end);
            if !is_published {
                self.publish_end(&held.record.name, spec, &end);
            }
        }
        Ok(ReconcileAction::RequeueNow)
    }

    /// Stops a running task without its result. Needs no lock: the write depends on the version of the record.
    pub(crate) async fn stop(self: &Arc<Self>, held: &mut VersionedRecord) -> Result<()> {
        if matches!(held.record.phase, TaskPhase::Starting | TaskPhase::Running) {
            self.begin_termination(held, GRACE_MS, None).await?;
            self.reconcile(&held.record.name);
        }
        Ok(())
    }

    /// Records that the task is to be terminated. A queued task becomes a tombstone at once.
    pub(crate) async fn begin_termination(
        &self,
        held: &mut VersionedRecord,
        grace_ms: u64,
        result: Option<Callback>,
    ) -> Result<()> {
        if held.record.is_queued() && result.is_none() {
            let names = held.record.spec.as_ref().map(|spec| spec.names.clone()).unwrap_or_default();
            held.make_tombstone();
            self.store.save(held).await?;
            task_events::record_end(&held.record.name, &names, &TaskEnd::cancelled());
            return Ok(());
        }
        let may_be_in_flight = held.may_be_in_flight();
        let mut unconfirmed = None;
        if let Some(spec) = &mut held.record.spec {
            // At most one applied object is unrecorded, because each is recorded before the next is applied.
            let next = spec.object_refs().nth(spec.applied.len()).filter(|_| may_be_in_flight);
            unconfirmed = next.map(|(object_ref, document)| AppliedObject { object_ref, uid: String::new(), document });
            spec.objects.apply.clear();
        }
        held.record.phase =
            TaskPhase::Terminating { grace_ms, since_ms: now_ms(), has_result: result.is_some(), unconfirmed };
        let end = result.as_ref().map(TaskEnd::of);
        if let Some(result) = result {
            held.set_result(result);
        }
        self.store.save(held).await?;
        if let (Some(spec), Some(end)) = (&held.record.spec, end) {
            self.publish_end(&held.record.name, spec, &end);
        }
        Ok(())
    }

    /// Terminates the objects of a task. When they are gone, the task ends with its result or becomes a tombstone.
    pub(crate) async fn terminate(&self, held: &mut VersionedRecord) -> Result<ReconcileAction> {
        let TaskPhase::Terminating { grace_ms, since_ms, .. } = held.record.phase else {
            return Ok(ReconcileAction::RequeueNow);
        };
        let unknown = self.resolve_unconfirmed(held, since_ms).await?;
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        let mut remaining = self.terminate_objects(&held.record.name, &spec, grace_ms).await?;
        remaining.extend(unknown);
        let result = if held.result.is_some() { Some(held.result()?) } else { None };
        if remaining.is_empty() && !spec.objects.keep {
            held.record.clear_applied();
        }
        let left = task_waits::first_text(&remaining);
        self.registry.record_waits(&held.record.name, remaining);
        match decide::terminated(&held.record.phase, result, left, now_ms()) {
            Termination::Pending => Ok(ReconcileAction::Requeue(DELETION_PAUSE)),
            Termination::Ended(result) => self.finish(held, *result).await,
            Termination::Cancelled => {
                held.make_tombstone();
                self.store.save(held).await?;
                task_events::record_end(&held.record.name, &spec.names, &TaskEnd::cancelled());
                self.publish_end(&held.record.name, &spec, &TaskEnd::cancelled());
                Ok(ReconcileAction::Done)
            }
        }
    }

    /// Checks whether an unconfirmed object exists. Returns a wait if that is not known yet.
    async fn resolve_unconfirmed(&self, held: &mut VersionedRecord, since_ms: u64) -> Result<Option<TaskWait>> {
        let TaskPhase::Terminating { unconfirmed, .. } = &mut held.record.phase else {
            return Ok(None);
        };
        let Some(AppliedObject { object_ref, document, .. }) = unconfirmed.clone() else { return Ok(None) };
        // This is checked before the read: a request that has not taken effect by now never will.
        let is_expired = now_ms().saturating_sub(since_ms) > millis(self.settings.api_server_request_timeout);
        let namespace = object_ref.namespace.as_deref();
        let existing = match self.read(&object_ref).await {
            Ok(existing) => existing,
            Err(error) => return Ok(Some(self.explain_refusal(&object_ref, namespace, error).await?)),
        };
        let own = match &existing {
            None => None,
            Some(object) => match self.identify(&held.record.name, "", object).await? {
                ObjectIdentity::Own => Some(objects::uid(object).to_owned()),
                ObjectIdentity::Other => None,
                // Its deletion waits for a person.
                ObjectIdentity::Undecided => Some(String::new()),
            },
        };
        if own.is_none() && !is_expired {
            return Ok(Some(task_waits::wait(&object_ref, "it may still be created")));
        }
        *unconfirmed = None;
        if let (Some(uid), Some(spec)) = (own, &mut held.record.spec) {
            spec.applied.push(AppliedObject { object_ref, uid, document });
        }
        self.store.save(held).await?;
        Ok(None)
    }

    /// Deletes all objects that are not kept. Returns the waits for those that still exist, the pods first.
    async fn terminate_objects(&self, name: &TaskId, spec: &TaskSpec, grace_ms: u64) -> Result<Vec<TaskWait>> {
        let job = spec.manifests().next().filter(|_| spec.container().is_some());
        let to_delete = spec.applied.iter().filter(|it| !spec.objects.keep || Some(*it) == job);
        let mut remaining = self.delete_all(name, to_delete).await?;
        let Some(job) = job else { return Ok(remaining) };
        let namespace = job.object_ref.namespace.as_deref();
        let pods = match self.pods(spec).await {
            Ok(pods) => pods,
            Err(error) => {
                let pods = format!("pods of {}", job.object_ref);
                remaining.insert(0, self.explain_refusal(pods, namespace, error).await?);
                return Ok(remaining);
            }
        };
        for pod in &pods {
            let object = ObjectRef::of(pod);
            let wait = match self.terminate_pod(pod, grace_ms).await {
                Ok(()) if pod["metadata"]["deletionTimestamp"].is_string() => objects::deletion(&object, pod),
                Ok(()) => task_waits::wait(object, "its deletion has begun"),
                Err(error) => self.explain_refusal(object, namespace, error).await?,
            };
            remaining.insert(0, wait);
        }
        Ok(remaining)
    }

    async fn terminate_pod(&self, pod: &Value, grace_ms: u64) -> kube::Result<()> {
        if pod["metadata"]["deletionTimestamp"].is_string() {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), objects::namespace(pod));
        // 0 would remove the pod from the list while it still runs.
        let seconds = u32::try_from(grace_ms.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let how = DeleteParams::default().grace_period(seconds);
        delete_uid(&api, objects::name(pod), objects::uid(pod).to_owned(), how).await
    }
}
