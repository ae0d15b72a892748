//! Waits for the end of a container.

use std::sync::Arc;

use ebb_kube::contract::{ContractTable, built_in};
use ebb_protocol::{CallbackStatus, FailureReason, ReasonCode, TaskWait};
use serde_json::Value;

use crate::observe::blockers::StartBlocker;
use crate::observe::pod::{self, PodObservation};
use crate::reasons::logs;
use crate::reconcile::ReconcileAction;
use crate::task::decide::{self, ContainerStep, LogPart, ObservedContainer};
use crate::{AppliedObject, Reconciler, Result, TaskSpec, VersionedRecord, now_ms, objects, task_waits};

impl Reconciler {
    /// Observes a container once. `removing` are objects to remove that still exist.
    pub(crate) async fn wait_for_container(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        removing: Vec<TaskWait>,
    ) -> Result<ReconcileAction> {
        let Some(spec) = held.record.spec.clone() else { return Ok(ReconcileAction::Done) };
        let (Some(job), Some(container)) = (spec.manifests().next(), spec.container()) else {
            return Ok(ReconcileAction::Done);
        };
        let contracts = built_in();
        let reported = if spec.reported { Some(held.result()?) } else { None };
        let (pods, observation) = match &reported {
            Some(result) if result.status == CallbackStatus::Succeeded => (Vec::new(), PodObservation::Gone),
            _ => self.observe(contracts, &spec, job, container).await?,
        };
        let early = pods.last().and_then(|pod| pod::early_failure(contracts, pod));
        self.record_early_failure(held, early, &observation).await?;
        let left = task_waits::first_text(&removing);
        let mut waits = removing;
        if let PodObservation::Waiting(Some(blocker)) = &observation {
            let (wait, now_ms) = (task_waits::wait(&job.object_ref, ""), now_ms());
            let fails_in_ms = decide::blocker_ends_at(blocker, &self.settings).map(|at| at.saturating_sub(now_ms));
            waits.insert(0, TaskWait { fails_in_ms, ..task_waits::blocked(wait, None, blocker, now_ms) });
        }
        self.registry.record_waits(&held.record.name, waits);
        let early_failure = held.record.spec.as_ref().and_then(|spec| spec.early_failure.clone());
        let silence = match observation {
            PodObservation::Running => {
                self.registry.silence(&held.record.name, self.settings.lost_after(), spec.taken_over)
            }
            _ => None,
        };
        let failed = match &observation {
            PodObservation::Waiting(Some(StartBlocker { log: Some((failed, _)), .. })) => Some(failed.clone()),
            _ => None,
        };
        let pod = pods.last();
        let (spec, removing) = (&spec, left);
        let state = ObservedContainer { contracts, spec, observation, pod, reported, early_failure, removing, silence };
        let (mut result, log, may_start) = match state.decide(&self.settings, now_ms()) {
            ContainerStep::Wait(until) => return Ok(ReconcileAction::requeue_at(until)),
            ContainerStep::Finish(result, log) => (result, log, false),
            ContainerStep::Terminate(result, log) => (result, log, true),
        };
        if let Some(pod) = pods.last().filter(|_| log != LogPart::Nothing) {
            let failed = failed.as_deref().filter(|_| log == LogPart::FailedInit);
            let whole = self.log(pod, failed.unwrap_or(container)).await;
            result.log = Some(if log == LogPart::Script { logs::script_part(&whole).to_owned() } else { whole });
        }
        if may_start { self.terminate_with(held, *result).await } else { self.finish(held, *result).await }
    }

    /// Returns the pods of a Job, the newest last, and the state of its container.
    async fn observe(
        self: &Arc<Self>,
        contracts: &ContractTable,
        spec: &TaskSpec,
        job: &AppliedObject,
        container: &str,
    ) -> Result<(Vec<Value>, PodObservation)> {
        for (version, kind) in [(&*job.object_ref.api_version, "Job"), ("v1", "Pod")] {
            self.watch(version, kind, job.object_ref.namespace.as_deref()).await?;
        }
        let object = self.read(&job.object_ref).await?.filter(|it| objects::uid(it) == job.uid);
        let pods = self.pods(spec).await?;
        let observation = match pod::observe(contracts, object.as_ref(), &pods, container) {
            PodObservation::Waiting(None) => {
                let warnings = self.warnings(job.object_ref.namespace.as_ref().unwrap_or(&spec.namespace)).await;
                PodObservation::Waiting(match pods.last() {
                    Some(pod) => self.blocker("pod", pod, &[], &warnings, 0),
                    None => self.blocker("controller", &object.unwrap_or_default(), &[], &warnings, 0),
                })
            }
            observation => observation,
        };
        Ok((pods, observation))
    }

    /// Records why a pod is being deleted. The reason can only be read before the deletion.
    async fn record_early_failure(
        &self,
        held: &mut VersionedRecord,
        seen: Option<FailureReason>,
        observation: &PodObservation,
    ) -> Result<()> {
        let (Some(seen), Some(spec)) = (seen, &mut held.record.spec) else { return Ok(()) };
        // An eviction is a better reason than the deletion that follows it.
        let known = spec.early_failure.as_ref();
        if known.is_some_and(|known| known.code == seen.code || known.code == ReasonCode::Evicted) {
            return Ok(());
        }
        spec.early_failure = Some(seen);
        // A terminated container is evaluated in this step.
        if !matches!(observation, PodObservation::Terminated(_)) {
            self.store.save(held).await?;
        }
        Ok(())
    }
}
