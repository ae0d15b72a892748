//! Ending what runs: the Job and its pods, and of a task that does not keep its objects all of them.

use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};

use crate::error::{ReconcileError, error_message, status};
use crate::objects::{self, DeleteOutcome};
use crate::reconcile::ReconcileAction;
use crate::record::{AppliedObject, TaskPhase, TaskSpec, UnconfirmedObject};
use crate::relay::Reconciler;
use crate::store::{VersionedRecord, now_ms};

/// Milliseconds that containers get which the relay ends by itself.
pub(crate) const GRACE_MS: u64 = 5_000;
/// Milliseconds after the grace period from when on a pod is not expected to go any more: its node is lost.
pub(crate) const STUCK_MS: u64 = 120_000;
/// Between two looks at what ends: watches do not see everything go.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

impl Reconciler {
    /// The task has this result. What may still run, or come to be, is ended first.
    ///
    /// # Errors
    /// When the record cannot be written.
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

    /// The task has this result, and nothing of it runs that could change it.
    ///
    /// # Errors
    /// When the record cannot be written.
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

    /// Whether a request may be under way that nobody knows the outcome of: of a relay that was killed, or that got no
    /// answer.
    fn may_be_in_flight(&self, held: &VersionedRecord) -> bool {
        held.record.phase == TaskPhase::Starting
            && !held.record.is_queued()
            && !held.confirmed
            && !self.registry.is_confirmed(&held.record.name, &held.resource_version)
    }

    /// Records that the task is to be terminated. A queued one is over at once.
    ///
    /// # Errors
    /// When the record cannot be written.
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
        let unsure = self.may_be_in_flight(held);
        let mut next = None;
        if let Some(spec) = &mut held.record.spec {
            // What was applied is noted before the next is, so there is one at most that was not.
            next = spec.object_refs().nth(spec.applied.len());
            spec.objects.apply.clear();
        }
        let next = next.filter(|_| unsure).map(|(place, document)| UnconfirmedObject { object_ref: place, document });
        held.record.phase =
            TaskPhase::Terminating { grace_ms, since_ms: now_ms(), has_result: result.is_some(), unconfirmed: next };
        if let Some(result) = result {
            held.set_result(result);
        }
        self.store.save(held).await
    }

    /// Ends what runs, and once it is gone says what became of the task.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
    pub(crate) async fn terminate(&self, held: &mut VersionedRecord) -> Result<ReconcileAction, ReconcileError> {
        let TaskPhase::Terminating { grace_ms, since_ms, has_result: concluded, .. } = held.record.phase else {
            return Ok(ReconcileAction::RequeueNow);
        };
        let mut left = self.resolve_unconfirmed(held, since_ms).await?;
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        if let Some(why) = self.terminate_objects(held, &spec, grace_ms).await? {
            left = Some(why);
        }
        // What came through although it was to be ended: what it has made is known, which is better.
        let result = if held.result.is_some() { Some(held.result()?) } else { None };
        let came_through = result.as_ref().is_some_and(|it| it.status == CallbackStatus::Succeeded);
        let result = result.filter(|_| concluded || came_through);
        if let Some(why) = left {
            // The control plane has to hear of a node that does not answer, and of objects that nobody can remove.
            let is_stuck = now_ms().saturating_sub(since_ms) > grace_ms.saturating_add(STUCK_MS);
            if !is_stuck {
                return Ok(ReconcileAction::Requeue(POLL_INTERVAL));
            }
            let lost = || {
                let why = format!("it was to be ended, and it is not known whether it has: {why}");
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

    /// Finds out whether an object came to be whose request may have been under way. `Some`: not yet known, and why.
    async fn resolve_unconfirmed(
        &self,
        held: &mut VersionedRecord,
        since_ms: u64,
    ) -> Result<Option<String>, ReconcileError> {
        let TaskPhase::Terminating { unconfirmed: unsure, .. } = &mut held.record.phase else {
            return Ok(None);
        };
        let Some(UnconfirmedObject { object_ref: place, document }) = unsure.clone() else { return Ok(None) };
        // Before it is read: what has not landed by then never will.
        let landed =
            now_ms().saturating_sub(since_ms) > crate::settings::millis(self.settings.api_server_request_timeout);
        let there = match self.read(&place).await {
            Ok(there) => there,
            Err(error) => return refusal_message(error).map(|why| Some(format!("{place}: {why}"))),
        };
        let own = there.filter(|object| objects::owner(object).as_ref() == Some(&held.record.name));
        if own.is_none() && !landed {
            return Ok(Some(format!("{place} may still come to be")));
        }
        *unsure = None;
        if let (Some(object), Some(spec)) = (own, &mut held.record.spec) {
            let uid = objects::uid(&object).to_owned();
            spec.applied.push(AppliedObject { object_ref: place, uid, document });
        }
        self.store.save(held).await?;
        Ok(None)
    }

    /// Ends what runs and is not to be kept. `Some`: something is still there, and why.
    async fn terminate_objects(
        &self,
        held: &VersionedRecord,
        spec: &TaskSpec,
        grace_ms: u64,
    ) -> Result<Option<String>, ReconcileError> {
        let name = &held.record.name;
        let mut left = None;
        let job = spec.manifests().next().filter(|_| spec.container().is_some());
        let doomed = spec.applied.iter().rev().filter(|it| !spec.objects.keep || Some(*it) == job);
        for applied in doomed {
            match self.delete(name, applied).await {
                Ok(DeleteOutcome::Gone) => {}
                Ok(DeleteOutcome::Pending(why)) => left = Some(why),
                Err(ReconcileError::Api(error)) => {
                    left = Some(format!("{}: {}", applied.object_ref, refusal_message(error)?));
                }
                Err(error) => return Err(error),
            }
        }
        if job.is_none() {
            return Ok(left);
        }
        let pods = match self.pods(spec).await {
            Ok(pods) => pods,
            Err(ReconcileError::Api(error)) => {
                return Ok(Some(format!("its pods: {}", refusal_message(error)?)));
            }
            Err(error) => return Err(error),
        };
        for pod in &pods {
            left = Some(format!("Pod {} is still there", pod.name_any()));
            match self.terminate_pod(pod, grace_ms).await {
                Err(ReconcileError::Api(error)) => {
                    left = Some(format!("Pod {}: {}", pod.name_any(), refusal_message(error)?));
                }
                ended => ended?,
            }
        }
        Ok(left)
    }

    async fn terminate_pod(&self, pod: &Pod, grace_ms: u64) -> Result<(), ReconcileError> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        // 0 would take the pod out of the list while it still runs.
        let seconds = u32::try_from(grace_ms.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let same = Preconditions { uid: pod.uid(), resource_version: None };
        let how = DeleteParams::default().grace_period(seconds).preconditions(same);
        match api.delete(&pod.name_any(), &how).await {
            Err(error) if !matches!(status(&error), Some(404 | 409)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// What the API server says against something, which may be the same for ever.
///
/// # Errors
/// When it has said nothing.
fn refusal_message(error: kube::Error) -> Result<String, ReconcileError> {
    match status(&error) {
        Some(_) => Ok(error_message(&error)),
        None => Err(error.into()),
    }
}
