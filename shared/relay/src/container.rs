//! Waits for the end of a container.

use std::sync::Arc;

use ebb_protocol::callback::{CallbackStatus, FailureReason, ReasonCode};
use ebb_protocol::limits::message;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::decide::{ContainerStep, LogPart, ObservedContainer};
use crate::error::Result;
use crate::logs;
use crate::objects;
use crate::pod::{self, BlockerKind, PodObservation, StartBlocker};
use crate::reconcile::ReconcileAction;
use crate::reconciler::Reconciler;
use crate::record::{AppliedObject, TaskSpec};
use crate::settings::now_ms;
use crate::store::VersionedRecord;

impl Reconciler {
    /// Observes a container once. `removing` is the reason why objects to remove still exist.
    pub(crate) async fn wait_for_container(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        removing: Option<String>,
    ) -> Result<ReconcileAction> {
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        let (Some(job), Some(container)) = (spec.manifests().next(), spec.container()) else {
            return Ok(ReconcileAction::Done);
        };
        let reported = if spec.reported { Some(held.result()?) } else { None };
        let (pods, observation) = match &reported {
            Some(result) if result.status == CallbackStatus::Succeeded => (Vec::new(), PodObservation::Gone),
            _ => self.observe(&spec, job, container).await?,
        };
        self.record_early_failure(held, pods.last(), &observation).await?;
        match &observation {
            PodObservation::Running => self.registry.record_pending(&held.record.name, None),
            PodObservation::Waiting(blocker) => {
                let why = blocker.as_ref().map(|blocker| blocker.message.as_str());
                self.registry.record_pending(&held.record.name, why);
            }
            PodObservation::Terminated(_) | PodObservation::Gone => {}
        }
        let early_failure = held.record.spec.as_ref().and_then(|spec| spec.early_failure.clone());
        let state = ObservedContainer { spec: &spec, observation, pod: pods.last(), reported, early_failure, removing };
        let (mut result, log, may_start) = match state.decide(&self.settings, now_ms()) {
            ContainerStep::Wait(until) => return Ok(ReconcileAction::requeue_at(until)),
            ContainerStep::Finish(result, log) => (result, log, false),
            ContainerStep::Terminate(result, log) => (result, log, true),
        };
        if let Some(pod) = pods.last().filter(|_| log != LogPart::Nothing) {
            let whole = self.log(pod, container).await;
            result.log = Some(if log == LogPart::Script { logs::script_part(&whole).to_owned() } else { whole });
        }
        if may_start { self.terminate_with(held, *result).await } else { self.finish(held, *result).await }
    }

    /// Returns the pods of a Job, the newest last, and the state of its container.
    async fn observe(
        self: &Arc<Self>,
        spec: &TaskSpec,
        job: &AppliedObject,
        container: &str,
    ) -> Result<(Vec<Pod>, PodObservation)> {
        for (version, kind) in [(&*job.object_ref.api_version, "Job"), ("v1", "Pod")] {
            self.watch(version, kind, job.object_ref.namespace.as_deref()).await?;
        }
        let object = self.read(&job.object_ref).await?.filter(|it| objects::uid(it) == job.uid);
        let pods = self.pods(spec).await?;
        let observation = match pod::observe(object.as_ref(), &pods, container) {
            PodObservation::Waiting(None) if pods.is_empty() => {
                PodObservation::Waiting(self.pod_creation_failure(spec, job, object.as_ref()).await?)
            }
            observation => observation,
        };
        Ok((pods, observation))
    }

    /// Records why a pod is being deleted. The reason can only be read before the deletion.
    async fn record_early_failure(
        &self,
        held: &mut VersionedRecord,
        pod: Option<&Pod>,
        observation: &PodObservation,
    ) -> Result<()> {
        let Some(seen) = pod.and_then(pod::early_failure) else { return Ok(()) };
        let Some(spec) = &mut held.record.spec else { return Ok(()) };
        // An eviction is a better reason than the deletion that follows it.
        let known = spec.early_failure.as_ref();
        if known.is_some_and(|known| known.code == seen.code || known.code == ReasonCode::Evicted) {
            return Ok(());
        }
        spec.early_failure = Some(FailureReason { code: seen.code, message: message(&seen.message) });
        // A terminated container is evaluated in this step.
        if !matches!(observation, PodObservation::Terminated(_)) {
            self.store.save(held).await?;
        }
        Ok(())
    }

    /// Returns the reason why a Job has no pod, from the events of its controller.
    async fn pod_creation_failure(
        &self,
        spec: &TaskSpec,
        job: &AppliedObject,
        object: Option<&Value>,
    ) -> Result<Option<StartBlocker>> {
        let namespace = job.object_ref.namespace.as_ref().unwrap_or(&spec.namespace);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let selector = format!("involvedObject.uid={},reason=FailedCreate", job.uid);
        let list = events.list(&ListParams::default().fields(&selector)).await?;
        let Some(message) = list.items.into_iter().next_back().and_then(|event| event.message) else {
            return Ok(None);
        };
        let code = if message.contains("exceeded quota") {
            ReasonCode::Quota
        } else if message.contains("is forbidden") || message.contains("denied the request") {
            ReasonCode::Denied
        } else {
            ReasonCode::NotStartable
        };
        let created = object.and_then(|job| serde_json::from_value(job["metadata"]["creationTimestamp"].clone()).ok());
        Ok(Some(StartBlocker { code, message, kind: BlockerKind::Transient(pod::millis(created.as_ref())) }))
    }
}
