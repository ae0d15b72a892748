//! Waits for the end of a container. Sources in order of precedence: the report of the entrypoint, its termination
//! message, the status from the kubelet.

use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::callback::{Callback, CallbackStatus, FailureReason, ReasonCode};
use ebb_protocol::entrypoint::TerminationResult;
use ebb_protocol::limits::message;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::clock::now_ms;
use crate::error::ReconcileError;
use crate::logs;
use crate::objects;
use crate::pod::{self, BlockerKind, ContainerExit, PodObservation, StartBlocker};
use crate::reconcile::ReconcileAction;
use crate::reconciler::Reconciler;
use crate::record::TaskSpec;
use crate::settings::millis;
use crate::store::VersionedRecord;
use crate::terminate::STUCK_MS;

/// The pause between two checks of a Job without a pod. Events are not watched.
const NO_POD: Duration = Duration::from_secs(5);

const TOO_LITTLE_MEMORY: &str = "the container exceeded its memory limit";

enum WaitOutcome {
    /// The result. Nothing runs that could change it.
    Finished(Callback),
    /// The result, but a container may still start.
    MustTerminate(Callback),
    /// No result yet.
    Pending(ReconcileAction),
}

impl Reconciler {
    /// Observes a container once. `removing` is the reason why objects to remove still exist.
    pub(crate) async fn wait_for_container(
        self: &Arc<Self>,
        held: &mut VersionedRecord,
        removing: Option<String>,
    ) -> Result<ReconcileAction, ReconcileError> {
        match self.observe(held).await? {
            WaitOutcome::Finished(result) if removing.is_none() || result.status != CallbackStatus::Succeeded => {
                self.finish(held, result).await
            }
            WaitOutcome::Finished(_) => {
                let deadline = held.record.spec.as_ref().map_or(0, |spec| spec.deadline_ms);
                match removing {
                    Some(why) if now_ms() >= deadline => self.finish(held, deadline_failure(held, &why)).await,
                    _ => Ok(ReconcileAction::Requeue(NO_POD)),
                }
            }
            WaitOutcome::MustTerminate(result) => self.terminate_with_result(held, result).await,
            WaitOutcome::Pending(next) => Ok(next),
        }
    }

    async fn observe(self: &Arc<Self>, held: &mut VersionedRecord) -> Result<WaitOutcome, ReconcileError> {
        let Some(spec) = held.record.spec.clone() else {
            return Ok(WaitOutcome::Pending(ReconcileAction::Done));
        };
        let (Some(job), Some(container)) = (spec.manifests().next(), spec.container()) else {
            return Ok(WaitOutcome::Pending(ReconcileAction::Done));
        };
        let reported = if spec.reported { Some(held.result()?) } else { None };
        if let Some(result) = reported.as_ref().filter(|it| it.status == CallbackStatus::Succeeded) {
            return Ok(WaitOutcome::Finished(result.clone()));
        }
        for kind in [(&*job.object_ref.api_version, "Job"), ("v1", "Pod")] {
            if let Some(kind) = self.discovery.find(&self.client, kind.0, kind.1).await? {
                self.watch(&kind, job.object_ref.namespace.as_deref());
            }
        }
        let object = self.read(&job.object_ref).await?.filter(|it| objects::uid(it) == job.uid);
        let pods = self.pods(&spec).await?;
        let observation = match &object {
            Some(object) => pod::observe(object, &pods, container),
            None if pods.is_empty() => PodObservation::Gone,
            None => pod::observe(&Value::Null, &pods, container),
        };
        self.record_early_failure(held, pods.last(), &observation).await?;
        let early_failure = held.record.spec.as_ref().and_then(|spec| spec.early_failure.clone());
        let failure =
            || early_failure.clone().map(|it| Callback::failed(it.code, &it.message)).unwrap_or_else(lost_pod);
        if let PodObservation::Running = observation {
            self.registry.record_pending(&held.record.name, None);
        }
        match observation {
            PodObservation::Terminated(end) => {
                let mut result = match reported {
                    Some(result) => result,
                    None => {
                        let said = from_termination_message(&end);
                        let by_entrypoint = said.is_some();
                        let mut result = said.unwrap_or_else(|| from_kubelet(&end));
                        if let Some(pod) = pods.last() {
                            let log = self.log(pod, container).await;
                            result.log = Some(if by_entrypoint { logs::script_part(&log).to_owned() } else { log });
                        }
                        result
                    }
                };
                refine_reason(&mut result, &end, early_failure.as_ref().map(|it| (it.code, it.message.as_str())));
                Ok(WaitOutcome::Finished(result))
            }
            PodObservation::Gone => Ok(WaitOutcome::Finished(match reported {
                Some(mut result) => {
                    let known = early_failure.as_ref().map(|it| (it.code, it.message.as_str()));
                    refine_reason(
                        &mut result,
                        &ContainerExit { exit_code: 0, reason: String::new(), message: String::new() },
                        known,
                    );
                    result
                }
                None => failure(),
            })),
            // The node does not respond.
            PodObservation::Running if pods.last().is_some_and(is_stuck) => Ok(WaitOutcome::MustTerminate(failure())),
            PodObservation::Running => self.by_deadline(held, &spec, &pods, container, reported, None).await,
            PodObservation::Waiting(blocker) => {
                self.by_start_blocker(held, &spec, &pods, container, reported, blocker).await
            }
            PodObservation::NoPod => {
                let blocker = self.pod_creation_failure(&spec, object.as_ref()).await?;
                let next = self.by_start_blocker(held, &spec, &pods, container, reported, blocker).await?;
                Ok(match next {
                    WaitOutcome::Pending(ReconcileAction::Requeue(rest)) => {
                        WaitOutcome::Pending(ReconcileAction::Requeue(rest.min(NO_POD)))
                    }
                    other => other,
                })
            }
        }
    }

    /// Fails a container that cannot start, at once or after its grace time.
    async fn by_start_blocker(
        &self,
        held: &VersionedRecord,
        spec: &TaskSpec,
        pods: &[Pod],
        container: &str,
        reported: Option<Callback>,
        blocker: Option<StartBlocker>,
    ) -> Result<WaitOutcome, ReconcileError> {
        let why = blocker.as_ref().map(|blocker| blocker.message.as_str());
        self.registry.record_pending(&held.record.name, why);
        let until = blocker.as_ref().and_then(|it| match it.kind {
            BlockerKind::Permanent => Some(0),
            BlockerKind::Transient(since) => Some(since.saturating_add(millis(self.settings.pod_start_timeout))),
            BlockerKind::Unschedulable(since) => {
                self.settings.scheduling_timeout.map(|most| since.saturating_add(millis(most)))
            }
        });
        match (blocker, until) {
            (Some(blocker), Some(until)) if until <= now_ms() => {
                Ok(WaitOutcome::MustTerminate(Callback::failed(blocker.code, &blocker.message)))
            }
            (blocker, Some(until)) => {
                let known = self.by_deadline(held, spec, pods, container, reported, blocker).await?;
                Ok(match (known, ReconcileAction::requeue_at(until)) {
                    (WaitOutcome::Pending(ReconcileAction::Requeue(a)), ReconcileAction::Requeue(b)) => {
                        WaitOutcome::Pending(ReconcileAction::Requeue(a.min(b)))
                    }
                    (known, _) => known,
                })
            }
            (blocker, None) => self.by_deadline(held, spec, pods, container, reported, blocker).await,
        }
    }

    async fn by_deadline(
        &self,
        held: &VersionedRecord,
        spec: &TaskSpec,
        pods: &[Pod],
        container: &str,
        reported: Option<Callback>,
        blocker: Option<StartBlocker>,
    ) -> Result<WaitOutcome, ReconcileError> {
        if now_ms() < spec.deadline_ms {
            return Ok(WaitOutcome::Pending(ReconcileAction::requeue_at(spec.deadline_ms)));
        }
        let took = spec.deadline_ms.saturating_sub(spec.received_ms);
        let mut result = match (reported, blocker) {
            (Some(result), _) => result,
            (None, Some(blocker)) => Callback::failed(blocker.code, &blocker.message),
            (None, None) => Callback::failed(ReasonCode::Timeout, &format!("it took longer than {took} ms")),
        };
        if let (None, Some(pod)) = (&result.log, pods.last()) {
            result.log = Some(self.log(pod, container).await);
        }
        tracing::info!(unit = held.record.name.unit, "a task reached its deadline");
        Ok(WaitOutcome::MustTerminate(result))
    }

    /// Records why a pod is being deleted. The reason can only be read before the deletion.
    async fn record_early_failure(
        &self,
        held: &mut VersionedRecord,
        pod: Option<&Pod>,
        observation: &PodObservation,
    ) -> Result<(), ReconcileError> {
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
        job: Option<&Value>,
    ) -> Result<Option<StartBlocker>, ReconcileError> {
        let Some(applied) = spec.manifests().next() else { return Ok(None) };
        let namespace = applied.object_ref.namespace.as_ref().unwrap_or(&spec.namespace);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let selector = format!("involvedObject.uid={},reason=FailedCreate", applied.uid);
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
        let created = job.and_then(|job| job["metadata"]["creationTimestamp"].as_str());
        let created = created.and_then(|it| serde_json::from_value(Value::from(it)).ok());
        Ok(Some(StartBlocker { code, message, kind: BlockerKind::Transient(pod::millis(created.as_ref())) }))
    }
}

/// Returns true if a pod should have disappeared long ago, because its node does not respond.
pub(crate) fn is_stuck(pod: &Pod) -> bool {
    let should_be_gone = pod.metadata.deletion_timestamp.as_ref();
    should_be_gone.is_some_and(|time| pod::millis(Some(time)).saturating_add(STUCK_MS) <= now_ms())
}

/// Returns the failure of a task whose deadline has passed.
pub(crate) fn deadline_failure(held: &VersionedRecord, why: &str) -> Callback {
    let times = held.record.spec.as_ref().map(|spec| spec.deadline_ms.saturating_sub(spec.received_ms));
    let took = times.unwrap_or_default();
    Callback::failed(ReasonCode::Timeout, &format!("it took longer than {took} ms: {why}"))
}

fn lost_pod() -> Callback {
    Callback::failed(ReasonCode::Lost, "the Job or its pod was deleted")
}

/// Parses the result from the termination message of the entrypoint.
fn from_termination_message(end: &ContainerExit) -> Option<Callback> {
    let TerminationResult { mut result, report, .. } = serde_json::from_str(&end.message).ok()?;
    // Only a relay may refer to Secrets.
    result.secrets.clear();
    match (result.status, report) {
        (CallbackStatus::Succeeded, Some(_)) => {
            let why = "the script succeeded, but the report with its outputs did not arrive";
            Some(Callback { duration_ms: result.duration_ms, ..Callback::failed(ReasonCode::Lost, why) })
        }
        (CallbackStatus::Succeeded | CallbackStatus::Failed, _) => Some(result),
        _ => None,
    }
}

/// Derives a result from the status of the kubelet. The message may be the end of the log, which is not a reason.
fn from_kubelet(end: &ContainerExit) -> Callback {
    let ContainerExit { exit_code, reason, message } = end;
    let (code, what) = match reason.as_str() {
        "OOMKilled" => (ReasonCode::OutOfMemory, TOO_LITTLE_MEMORY.to_owned()),
        // The kubelet was stopped during the start and does not know the outcome.
        "ContainerCannotRun" | "StartError" if pod::interrupted(message) => {
            (ReasonCode::Lost, format!("the start of the container was interrupted on its node: {message}"))
        }
        "ContainerCannotRun" | "StartError" => {
            (ReasonCode::NotStartable, format!("the container cannot be started: {message}"))
        }
        "DeadlineExceeded" => (ReasonCode::Timeout, format!("the pod exceeded its deadline: {message}")),
        "Evicted" => (ReasonCode::Evicted, format!("the pod was evicted: {message}")),
        "ContainerStatusUnknown" => (ReasonCode::Lost, "the kubelet does not know how the container ended".to_owned()),
        _ if *exit_code < 0 => (ReasonCode::Lost, format!("the pod has failed: {reason}: {message}")),
        _ if *exit_code == 0 => (ReasonCode::Failed, "the container exited with 0 and without a result".to_owned()),
        _ => (ReasonCode::Exit, format!("the container exited with {exit_code} and without a result")),
    };
    Callback::failed(code, &what)
}

/// Replaces the reason of a killed entrypoint, which does not know why it was killed.
fn refine_reason(result: &mut Callback, end: &ContainerExit, early_failure: Option<(ReasonCode, &str)>) {
    let Some(reason) = &mut result.reason else { return };
    let died = matches!(reason.code, ReasonCode::Exit | ReasonCode::Lost);
    if end.reason == "OOMKilled" && died {
        reason.code = ReasonCode::OutOfMemory;
        reason.message = TOO_LITTLE_MEMORY.to_owned();
    } else if let Some((code, message)) = early_failure
        && reason.code == ReasonCode::Lost
    {
        reason.code = code;
        reason.message = message.to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kubelet_says() {
        let shim = "failed to create containerd task: failed to create shim task: ";
        for (code, reason, message, expected) in [
            (128, "StartError", format!("{shim}exec: \"/none\": no such file"), ReasonCode::NotStartable),
            (128, "StartError", format!("{shim}context canceled: unknown"), ReasonCode::Lost),
            (137, "OOMKilled", String::new(), ReasonCode::OutOfMemory),
            (255, "ContainerStatusUnknown", String::new(), ReasonCode::Lost),
            (7, "Error", String::new(), ReasonCode::Exit),
            (0, "Completed", String::new(), ReasonCode::Failed),
        ] {
            let said = from_kubelet(&ContainerExit { exit_code: code, reason: reason.to_owned(), message });
            assert_eq!(said.reason.map(|it| it.code), Some(expected), "{reason}");
        }
    }

    /// An early failure explains a failure and does not affect a success.
    #[test]
    fn early_failures_explain_the_end() {
        let end = |reason: &str| ContainerExit { exit_code: 137, reason: reason.to_owned(), message: String::new() };
        let early_failure = Some((ReasonCode::Evicted, "the pod was evicted"));
        for (reason, said, expected) in [
            ("Error", None, None),
            ("OOMKilled", None, None),
            ("Error", Some(ReasonCode::Lost), Some(ReasonCode::Evicted)),
            ("Error", Some(ReasonCode::Exit), Some(ReasonCode::Exit)),
            ("OOMKilled", Some(ReasonCode::Exit), Some(ReasonCode::OutOfMemory)),
        ] {
            let mut result = Callback::new(CallbackStatus::Succeeded);
            if let Some(code) = said {
                result = Callback::failed(code, "m");
            }
            refine_reason(&mut result, &end(reason), early_failure);
            assert_eq!(result.reason.map(|it| it.code), expected, "{reason} {said:?}");
        }
    }
}
