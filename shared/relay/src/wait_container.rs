//! Waiting for the end of a container: what the entrypoint reported, what its termination message says, what the kubelet
//! says of it, in this order.

use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::callback::{Callback, CallbackStatus, FailureReason, ReasonCode};
use ebb_protocol::entrypoint::TerminationResult;
use ebb_protocol::limits::message;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::error::ReconcileError;
use crate::logs;
use crate::objects;
use crate::pod::{self, BlockerKind, ContainerExit, PodObservation, StartBlocker};
use crate::reconcile::ReconcileAction;
use crate::record::TaskSpec;
use crate::relay::Reconciler;
use crate::settings::millis;
use crate::store::{VersionedRecord, now_ms};
use crate::terminate::STUCK_MS;

/// Between two looks for why there is no pod: events are not watched.
const NO_POD: Duration = Duration::from_secs(5);

const TOO_LITTLE_MEMORY: &str = "it needed more memory than it may have";

/// What is known of an awaited end.
enum WaitOutcome {
    /// This is the result, and nothing runs that could change it.
    Finished(Callback),
    /// This is the result, but something may still start.
    MustTerminate(Callback),
    /// To be looked at again, then at the latest.
    Pending(ReconcileAction),
}

impl Reconciler {
    /// One look at a container whose end is waited for; `removing`: what must be gone first, if it is not.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
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
        let sight = match &object {
            Some(object) => pod::observe(object, &pods, container),
            None if pods.is_empty() => PodObservation::Gone,
            None => pod::observe(&Value::Null, &pods, container),
        };
        self.record_early_failure(held, pods.last(), &sight).await?;
        let early_failure = held.record.spec.as_ref().and_then(|spec| spec.early_failure.clone());
        let failure =
            || early_failure.clone().map(|it| Callback::failed(it.code, &it.message)).unwrap_or_else(lost_pod);
        if let PodObservation::Running = sight {
            self.registry.record_pending(&held.record.name, None);
        }
        match sight {
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
            // Its node does not answer: it should have been gone for long.
            PodObservation::Running if pods.last().is_some_and(is_stuck) => Ok(WaitOutcome::MustTerminate(failure())),
            PodObservation::Running => self.by_deadline(held, &spec, &pods, container, reported, None).await,
            PodObservation::Waiting(trouble) => {
                self.by_start_blocker(held, &spec, &pods, container, reported, trouble).await
            }
            PodObservation::NoPod => {
                let trouble = self.pod_creation_failure(&spec, object.as_ref()).await?;
                let next = self.by_start_blocker(held, &spec, &pods, container, reported, trouble).await?;
                Ok(match next {
                    WaitOutcome::Pending(ReconcileAction::Requeue(rest)) => {
                        WaitOutcome::Pending(ReconcileAction::Requeue(rest.min(NO_POD)))
                    }
                    other => other,
                })
            }
        }
    }

    /// What keeps it from starting ends it, at once or after a time.
    async fn by_start_blocker(
        &self,
        held: &VersionedRecord,
        spec: &TaskSpec,
        pods: &[Pod],
        container: &str,
        reported: Option<Callback>,
        trouble: Option<StartBlocker>,
    ) -> Result<WaitOutcome, ReconcileError> {
        let why = trouble.as_ref().map(|trouble| trouble.message.as_str());
        self.registry.record_pending(&held.record.name, why);
        let until = trouble.as_ref().and_then(|it| match it.kind {
            BlockerKind::Permanent => Some(0),
            BlockerKind::Transient(since) => Some(since.saturating_add(millis(self.settings.pod_start_timeout))),
            BlockerKind::Unschedulable(since) => {
                self.settings.scheduling_timeout.map(|most| since.saturating_add(millis(most)))
            }
        });
        match (trouble, until) {
            (Some(trouble), Some(until)) if until <= now_ms() => {
                Ok(WaitOutcome::MustTerminate(Callback::failed(trouble.code, &trouble.message)))
            }
            (trouble, Some(until)) => {
                let known = self.by_deadline(held, spec, pods, container, reported, trouble).await?;
                Ok(match (known, ReconcileAction::requeue_at(until)) {
                    (WaitOutcome::Pending(ReconcileAction::Requeue(a)), ReconcileAction::Requeue(b)) => {
                        WaitOutcome::Pending(ReconcileAction::Requeue(a.min(b)))
                    }
                    (known, _) => known,
                })
            }
            (trouble, None) => self.by_deadline(held, spec, pods, container, reported, trouble).await,
        }
    }

    async fn by_deadline(
        &self,
        held: &VersionedRecord,
        spec: &TaskSpec,
        pods: &[Pod],
        container: &str,
        reported: Option<Callback>,
        trouble: Option<StartBlocker>,
    ) -> Result<WaitOutcome, ReconcileError> {
        if now_ms() < spec.deadline_ms {
            return Ok(WaitOutcome::Pending(ReconcileAction::requeue_at(spec.deadline_ms)));
        }
        let took = spec.deadline_ms.saturating_sub(spec.received_ms);
        let mut result = match (reported, trouble) {
            (Some(result), _) => result,
            (None, Some(trouble)) => Callback::failed(trouble.code, &trouble.message),
            (None, None) => Callback::failed(ReasonCode::Timeout, &format!("it took longer than {took} ms")),
        };
        if let (None, Some(pod)) = (&result.log, pods.last()) {
            result.log = Some(self.log(pod, container).await);
        }
        tracing::info!(unit = held.record.name.unit, "its time is over");
        Ok(WaitOutcome::MustTerminate(result))
    }

    /// Why a pod goes is seen while it goes, and by nobody later.
    async fn record_early_failure(
        &self,
        held: &mut VersionedRecord,
        pod: Option<&Pod>,
        sight: &PodObservation,
    ) -> Result<(), ReconcileError> {
        let Some(seen) = pod.and_then(pod::early_failure) else { return Ok(()) };
        let Some(spec) = &mut held.record.spec else { return Ok(()) };
        // What is known of an eviction is more than that the pod was deleted, which comes after.
        let known = spec.early_failure.as_ref();
        if known.is_some_and(|known| known.code == seen.code || known.code == ReasonCode::Evicted) {
            return Ok(());
        }
        spec.early_failure = Some(FailureReason { code: seen.code, message: message(&seen.message) });
        // One that has ended is judged right now.
        if !matches!(sight, PodObservation::Terminated(_)) {
            self.store.save(held).await?;
        }
        Ok(())
    }

    /// Why a Job has no pod, as its controller says in events.
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
        let made = job.and_then(|job| job["metadata"]["creationTimestamp"].as_str());
        let made = made.and_then(|it| serde_json::from_value(Value::from(it)).ok());
        Ok(Some(StartBlocker { code, message, kind: BlockerKind::Transient(pod::millis(made.as_ref())) }))
    }
}

/// Returns true if a pod should have been gone for long: its node does not answer.
pub(crate) fn is_stuck(pod: &Pod) -> bool {
    let should_be_gone = pod.metadata.deletion_timestamp.as_ref();
    should_be_gone.is_some_and(|time| pod::millis(Some(time)).saturating_add(STUCK_MS) <= now_ms())
}

/// It has no time left for what is still pending.
pub(crate) fn deadline_failure(held: &VersionedRecord, why: &str) -> Callback {
    let times = held.record.spec.as_ref().map(|spec| spec.deadline_ms.saturating_sub(spec.received_ms));
    let took = times.unwrap_or_default();
    Callback::failed(ReasonCode::Timeout, &format!("it took longer than {took} ms: {why}"))
}

fn lost_pod() -> Callback {
    Callback::failed(ReasonCode::Lost, "its Job or its pod is not there any more")
}

/// What the entrypoint has left in the termination message.
fn from_termination_message(end: &ContainerExit) -> Option<Callback> {
    let TerminationResult { mut result, report, .. } = serde_json::from_str(&end.message).ok()?;
    // Only a relay names Secrets.
    result.secrets.clear();
    match (result.status, report) {
        (CallbackStatus::Succeeded, Some(_)) => {
            let why = "it has succeeded, and its outputs were in a report that did not arrive";
            Some(Callback { duration_ms: result.duration_ms, ..Callback::failed(ReasonCode::Lost, why) })
        }
        (CallbackStatus::Succeeded | CallbackStatus::Failed, _) => Some(result),
        _ => None,
    }
}

/// What the kubelet says of a container that has left no message of the entrypoint's. What it has left instead may be the
/// end of its log, which is no text for a reason.
fn from_kubelet(end: &ContainerExit) -> Callback {
    let ContainerExit { exit_code, reason, message } = end;
    let (code, what) = match reason.as_str() {
        "OOMKilled" => (ReasonCode::OutOfMemory, TOO_LITTLE_MEMORY.to_owned()),
        // Whoever was starting it went away: the kubelet has ended, and knows no more of it when it is back.
        "ContainerCannotRun" | "StartError" if pod::interrupted(message) => {
            (ReasonCode::Lost, format!("its start was interrupted on its node: {message}"))
        }
        "ContainerCannotRun" | "StartError" => (ReasonCode::NotStartable, format!("it cannot be started: {message}")),
        "DeadlineExceeded" => (ReasonCode::Timeout, format!("its pod took longer than it may: {message}")),
        "Evicted" => (ReasonCode::Evicted, format!("the pod was evicted: {message}")),
        "ContainerStatusUnknown" => (ReasonCode::Lost, "nobody knows how it has ended".to_owned()),
        _ if *exit_code < 0 => (ReasonCode::Lost, format!("the pod has failed: {reason}: {message}")),
        _ if *exit_code == 0 => (ReasonCode::Failed, "it has ended with 0 and without a result".to_owned()),
        _ => (ReasonCode::Exit, format!("it has ended with {exit_code} and without a result")),
    };
    Callback::failed(code, &what)
}

/// An entrypoint knows that it was killed or asked to end; why, is known outside.
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

    /// Why a pod went says something of a failure, and nothing of a success.
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
