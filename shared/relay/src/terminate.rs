//! Terminates tasks: the Job with its pods, and all objects of a task unless `keep` is set.

use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};

use crate::clock::now_ms;
use crate::error::{ReconcileError, error_message, status};
use crate::objects::{self, DeleteOutcome};
use crate::reconcile::ReconcileAction;
use crate::reconciler::Reconciler;
use crate::record::{AppliedObject, TaskPhase, TaskSpec, UnconfirmedObject};
use crate::store::VersionedRecord;

/// The default grace period in milliseconds.
pub(crate) const GRACE_MS: u64 = 5_000;
/// Milliseconds after the grace period until a pod counts as stuck, because its node is lost.
pub(crate) const STUCK_MS: u64 = 120_000;
/// The pause between two checks. Watches do not see every deletion.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

impl Reconciler {
    /// Ends a task with this result. Whatever may still run or appear is terminated first.
    pub(crate) async fn terminate_with_result(
        &self,
        held: &mut VersionedRecord,
        result: Callback,
    ) -> Result<ReconcileAction, ReconcileError> {
        let may_run = held.record.spec.as_ref().is_some_and(|spec| spec.container().is_some());
        if may_run || self.may_be_in_flight(held) {
            self.begin_termination(held, GRACE_MS, Some(result)).await?;
        } else {
            self.finish(held, result).await?;
        }
        Ok(ReconcileAction::RequeueNow)
    }

    /// Ends a task with this result. Nothing of it may run.
    pub(crate) async fn finish(
        &self,
        held: &mut VersionedRecord,
        mut result: Callback,
    ) -> Result<ReconcileAction, ReconcileError> {
        if let Some(spec) = &held.record.spec
            && result.duration_ms.is_none()
        {
            result.duration_ms = Some(now_ms().saturating_sub(spec.received_ms));
        }
        held.set_result(result);
        held.record.phase = TaskPhase::Ended;
        self.store.save(held).await?;
        Ok(ReconcileAction::RequeueNow)
    }

    /// Returns true if the outcome of a request may be unknown: the relay was killed or got no response.
    fn may_be_in_flight(&self, held: &VersionedRecord) -> bool {
        held.record.phase == TaskPhase::Starting
            && !held.record.is_queued()
            && !held.confirmed
            && !self.registry.is_confirmed(&held.record.name, &held.resource_version)
    }

    /// Records that the task is to be terminated. A queued task becomes a tombstone at once.
    pub(crate) async fn begin_termination(
        &self,
        held: &mut VersionedRecord,
        grace_ms: u64,
        result: Option<Callback>,
    ) -> Result<(), ReconcileError> {
        if held.record.is_queued() && result.is_none() {
            held.make_tombstone();
            return self.store.save(held).await;
        }
        let unconfirmed = self.may_be_in_flight(held);
        let mut next = None;
        if let Some(spec) = &mut held.record.spec {
            // At most one applied object is unrecorded, because each is recorded before the next is applied.
            next = spec.object_refs().nth(spec.applied.len());
            spec.objects.apply.clear();
        }
        let next =
            next.filter(|_| unconfirmed).map(|(object_ref, document)| UnconfirmedObject { object_ref, document });
        held.record.phase =
            TaskPhase::Terminating { grace_ms, since_ms: now_ms(), has_result: result.is_some(), unconfirmed: next };
        if let Some(result) = result {
            held.set_result(result);
        }
        self.store.save(held).await
    }

    /// Terminates the objects of a task. When they are gone, the task ends with its result or becomes a tombstone.
    pub(crate) async fn terminate(&self, held: &mut VersionedRecord) -> Result<ReconcileAction, ReconcileError> {
        let TaskPhase::Terminating { grace_ms, since_ms, has_result: concluded, .. } = held.record.phase else {
            return Ok(ReconcileAction::RequeueNow);
        };
        let mut remaining = self.resolve_unconfirmed(held, since_ms).await?;
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        if let Some(why) = self.terminate_objects(held, &spec, grace_ms).await? {
            remaining = Some(why);
        }
        // A success is kept even if the task was cancelled, because its undo needs the outputs.
        let result = if held.result.is_some() { Some(held.result()?) } else { None };
        let came_through = result.as_ref().is_some_and(|it| it.status == CallbackStatus::Succeeded);
        let result = result.filter(|_| concluded || came_through);
        if let Some(why) = remaining {
            // After this time the result is `lost`, so that the control plane learns of a lost node or of an
            // undeletable object.
            let is_stuck = now_ms().saturating_sub(since_ms) > grace_ms.saturating_add(STUCK_MS);
            if !is_stuck {
                return Ok(ReconcileAction::Requeue(POLL_INTERVAL));
            }
            let lost = || {
                let why = format!("the task did not terminate in time: {why}");
                Callback::failed(ReasonCode::Lost, &why)
            };
            return self.finish(held, result.unwrap_or_else(lost)).await;
        }
        if !spec.objects.keep
            && let Some(spec) = &mut held.record.spec
        {
            spec.applied.clear();
        }
        match result {
            Some(result) => self.finish(held, result).await,
            None => {
                held.make_tombstone();
                self.store.save(held).await?;
                Ok(ReconcileAction::Done)
            }
        }
    }

    /// Finds out if an unconfirmed object exists. Returns the reason if that is not known yet.
    async fn resolve_unconfirmed(
        &self,
        held: &mut VersionedRecord,
        since_ms: u64,
    ) -> Result<Option<String>, ReconcileError> {
        let TaskPhase::Terminating { unconfirmed, .. } = &mut held.record.phase else {
            return Ok(None);
        };
        let Some(UnconfirmedObject { object_ref, document }) = unconfirmed.clone() else { return Ok(None) };
        // Checked before the read: a request that has not taken effect by now never will.
        let is_expired =
            now_ms().saturating_sub(since_ms) > crate::settings::millis(self.settings.api_server_request_timeout);
        let existing = match self.read(&object_ref).await {
            Ok(existing) => existing,
            Err(error) => return refusal_message(error).map(|why| Some(format!("{object_ref}: {why}"))),
        };
        let own = existing.filter(|object| objects::owner(object).as_ref() == Some(&held.record.name));
        if own.is_none() && !is_expired {
            return Ok(Some(format!("{object_ref} may still be created")));
        }
        *unconfirmed = None;
        if let (Some(object), Some(spec)) = (own, &mut held.record.spec) {
            let uid = objects::uid(&object).to_owned();
            spec.applied.push(AppliedObject { object_ref, uid, document });
        }
        self.store.save(held).await?;
        Ok(None)
    }

    /// Deletes all objects that are not kept. Returns the reason if one still exists.
    async fn terminate_objects(
        &self,
        held: &VersionedRecord,
        spec: &TaskSpec,
        grace_ms: u64,
    ) -> Result<Option<String>, ReconcileError> {
        let name = &held.record.name;
        let mut remaining = None;
        let job = spec.manifests().next().filter(|_| spec.container().is_some());
        let to_delete = spec.applied.iter().rev().filter(|it| !spec.objects.keep || Some(*it) == job);
        for applied in to_delete {
            match self.delete(name, applied).await {
                Ok(DeleteOutcome::Gone) => {}
                Ok(DeleteOutcome::Pending(why)) => remaining = Some(why),
                Err(ReconcileError::Api(error)) => {
                    remaining = Some(format!("{}: {}", applied.object_ref, refusal_message(error)?));
                }
                Err(error) => return Err(error),
            }
        }
        if job.is_none() {
            return Ok(remaining);
        }
        let pods = match self.pods(spec).await {
            Ok(pods) => pods,
            Err(ReconcileError::Api(error)) => {
                return Ok(Some(format!("its pods: {}", refusal_message(error)?)));
            }
            Err(error) => return Err(error),
        };
        for pod in &pods {
            remaining = Some(format!("Pod {} still exists", pod.name_any()));
            match self.terminate_pod(pod, grace_ms).await {
                Err(ReconcileError::Api(error)) => {
                    remaining = Some(format!("Pod {}: {}", pod.name_any(), refusal_message(error)?));
                }
                ended => ended?,
            }
        }
        Ok(remaining)
    }

    async fn terminate_pod(&self, pod: &Pod, grace_ms: u64) -> Result<(), ReconcileError> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        // 0 would remove the pod from the list while it still runs.
        let seconds = u32::try_from(grace_ms.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let same = Preconditions { uid: pod.uid(), resource_version: None };
        let how = DeleteParams::default().grace_period(seconds).preconditions(same);
        match api.delete(&pod.name_any(), &how).await {
            Err(error) if !matches!(status(&error), Some(404 | 409)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns the message of a refusal, or the error itself if the API server did not respond.
fn refusal_message(error: kube::Error) -> Result<String, ReconcileError> {
    match status(&error) {
        Some(_) => Ok(error_message(&error)),
        None => Err(error.into()),
    }
}
