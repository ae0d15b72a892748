//! Decides the next step of tasks from their records and observations. All functions are pure.

use ebb_kube::contract::{self, CauseEnd, ContractTable, ObjectReadiness};
use ebb_protocol::entrypoint::TerminationResult;
use ebb_protocol::relay::{ReadyRules, TaskWait};
use ebb_protocol::{Callback, CallbackStatus, FailureReason, Millis, ReasonCode, TaskId, WaitResolution};
use serde_json::Value;

use crate::observe::blockers::{self, StartBlocker};
use crate::observe::pod::{self, PodObservation, STUCK_MS};
use crate::observe::ready_rules;
use crate::task::task_registry::Silence;
use crate::task::task_waits;
use crate::{AppliedObject, RelaySettings, TaskPhase, TaskRecord, TaskSpec, millis, status};

/// Milliseconds between two checks of what is not watched: warnings, pods of other controllers, objects to remove.
const UNWATCHED_MS: u64 = 3_000;
/// The pause of a task that has waited for minutes. Thousands of tasks may wait at the same time.
const MAX_UNWATCHED_MS: u64 = 30_000;
/// The part of its time so far after which a task checks again.
const PAUSE_PART: u64 = 8;

/// Milliseconds between two checks of objects that another task has applied.
const REMOVAL_MS: u64 = 1_000;

/// Returns the lower attempts of a unit that run or may start. If there are none, this attempt may start. Returns `None` if
/// a higher attempt exists: this one must not start.
pub(crate) fn open_lower_attempts(name: &TaskId, records: Vec<TaskRecord>) -> Option<Vec<TaskId>> {
    if records.iter().any(|other| other.name.attempt > name.attempt) {
        return None;
    }
    let lower = records.into_iter().filter(|other| other.name.attempt < name.attempt && other.phase.is_open());
    Some(lower.map(|other| other.name).collect())
}

#[derive(Debug, PartialEq)]
pub(crate) enum Termination {
    Pending,
    Ended(Box<Callback>),
    Cancelled,
}

/// Decides about a task that is terminating. `left` is the reason why one of its objects still exists.
pub(crate) fn terminated(
    phase: &TaskPhase,
    result: Option<Callback>,
    left: Option<String>,
    now_ms: u64,
) -> Termination {
    let TaskPhase::Terminating { grace_ms, since_ms, has_result, .. } = *phase else { return Termination::Pending };
    // A success is kept even if the task was cancelled, because its undo needs the outputs.
    let result = result.filter(|it| has_result || it.status == CallbackStatus::Succeeded);
    let is_stuck = now_ms.saturating_sub(since_ms) > grace_ms.saturating_add(STUCK_MS);
    match (left, result) {
        (Some(_), _) if !is_stuck => Termination::Pending,
        (_, Some(result)) => Termination::Ended(Box::new(result)),
        (None, None) => Termination::Cancelled,
        // The control plane must be informed about a lost node or an object that cannot be deleted.
        (Some(why), None) => {
            let why = format!("the task did not terminate in time: {why}");
            Termination::Ended(Box::new(Callback::failed(ReasonCode::Lost, &why)))
        }
    }
}

/// Returns true if no container of a task with a result runs.
pub(crate) fn is_slot_free(pods: kube::Result<Vec<Value>>, now_ms: u64) -> kube::Result<bool> {
    match pods {
        // The namespace and its rights were deleted. The relay can start nothing there.
        Err(error) if matches!(status(&error), Some(403 | 404)) => Ok(true),
        pods => Ok(pods?.iter().all(|pod| pod::is_over(pod) || pod::is_stuck(pod, now_ms))),
    }
}

pub(crate) fn deadline_failure(why: Option<&str>) -> Callback {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Callback::failed(ReasonCode::Timeout, &format!("it took longer than its timeout{why}"))
}

#[derive(Debug, PartialEq)]
pub(crate) enum ObjectsStep {
    /// All objects are ready, and all objects to remove are gone.
    Collect,
    /// The next check is at this time, in milliseconds since 1970.
    Wait(u64),
    Fail(Box<Callback>),
}

/// Decides about a task that waits for objects. A wait that fails in 0 ms ends the task.
pub(crate) fn objects(spec: &TaskSpec, waits: &[TaskWait], now_ms: u64) -> ObjectsStep {
    let Some(why) = task_waits::first_text(waits) else { return ObjectsStep::Collect };
    if let Some(wait) = waits.iter().find(|wait| task_waits::is_failure(wait)) {
        return ObjectsStep::Fail(Box::new(after_apply(spec, Callback::failed(wait.code, &wait.to_string()))));
    }
    if now_ms >= spec.deadline_ms {
        return ObjectsStep::Fail(Box::new(deadline_failure(Some(&why))));
    }
    // Objects of other tasks are watched by kind, but their records are not.
    let is_removing = !spec.objects.remove.is_empty() && waits.iter().any(|it| it.resolves == WaitResolution::Itself);
    let unwatched_ms = (now_ms.saturating_sub(spec.received_ms) / PAUSE_PART).clamp(UNWATCHED_MS, MAX_UNWATCHED_MS);
    let pause_ms = if is_removing { REMOVAL_MS } else { unwatched_ms };
    ObjectsStep::Wait(spec.deadline_ms.min(now_ms.saturating_add(pause_ms)))
}

/// Returns the failure of a task with objects. After `notStartable` and `render`, a teardown would leave the objects.
pub(crate) fn after_apply(spec: &TaskSpec, mut result: Callback) -> Callback {
    if spec.manifests().next().is_some()
        && let Some(reason) = &mut result.reason
        && matches!(reason.code, ReasonCode::NotStartable | ReasonCode::Render)
    {
        reason.code = ReasonCode::Failed;
    }
    result
}

/// Returns the milliseconds until a wait ends a task of objects before its deadline. The times are those of containers.
pub(crate) fn fails_in_ms(spec: &TaskSpec, wait: &TaskWait, settings: &RelaySettings) -> Option<u64> {
    if !spec.objects.fail_fast {
        return None;
    }
    let timeout = match wait.code {
        ReasonCode::Unschedulable => settings.scheduling_timeout,
        _ => Some(settings.pod_start_timeout),
    };
    match wait.resolves {
        WaitResolution::Never => Some(0),
        WaitResolution::Person => Some(millis(timeout?).saturating_sub(wait.since_ms?)),
        WaitResolution::Itself => None,
    }
}

/// Returns the time at which a blocker ends a task that waits for a container, in milliseconds since 1970. Returns `None`
/// if it ends none before the deadline.
pub(crate) fn blocker_ends_at(blocker: &StartBlocker, settings: &RelaySettings) -> Option<u64> {
    match blocker.ends {
        CauseEnd::AtOnce => Some(0),
        CauseEnd::PodStart => Some(blocker.from_ms.saturating_add(millis(settings.pod_start_timeout))),
        CauseEnd::Scheduling => Some(blocker.since_ms.saturating_add(millis(settings.scheduling_timeout?))),
        CauseEnd::Deadline => None,
    }
}

/// Judges an applied object by contracts. Returns what it waits for if it is not ready, or its failure if it can never become
/// ready.
pub(crate) fn judge(
    contracts: &ContractTable,
    applied: &AppliedObject,
    object: Option<&Value>,
    document_rules: Option<&ReadyRules>,
) -> Option<TaskWait> {
    let object_ref = &applied.object_ref;
    let failed = |code, why: &str| Some(task_waits::failure(object_ref, code, why));
    let rules = match document_rules.zip(object).map(|(rules, object)| ready_rules::judge(rules, object)).transpose() {
        Ok(rules) => rules.unwrap_or_default(),
        Err(why) => return failed(ReasonCode::Failed, &why),
    };
    let readiness = contract::judge(contracts, object, Some(&applied.uid), rules);
    match &readiness {
        ObjectReadiness::Ready => None,
        ObjectReadiness::Pending { reason } => {
            let ready = document_rules.and_then(|rules| rules.ready.as_deref());
            let (field, last) = object.and_then(|object| ready_rules::awaited(&readiness, ready, object)).unzip();
            let rule = ready.filter(|_| reason == contract::READY_RULE).map(|rule| format!(": `{rule}`"));
            let reason = format!("{reason}{}", rule.unwrap_or_default());
            Some(TaskWait { field, last, ..task_waits::wait(object_ref, &reason) })
        }
        ObjectReadiness::Failed { reason, message } => {
            let rule = document_rules.and_then(|rules| rules.fail.as_deref());
            match rule.filter(|_| reason == contract::FAIL_RULE) {
                Some(rule) => failed(ReasonCode::Failed, &format!("{message}: `{rule}`")),
                None => failed(ReasonCode::Failed, &format!("{reason}: {message}")),
            }
        }
        ObjectReadiness::Gone => failed(ReasonCode::Lost, "it was deleted or replaced"),
    }
}

/// The observation of a task that waits for the end of a container.
///
/// Sources of its result, the best first: the report of the entrypoint, its termination message, the kubelet's status.
pub(crate) struct ObservedContainer<'a> {
    pub(crate) contracts: &'a ContractTable,
    pub(crate) spec: &'a TaskSpec,
    pub(crate) observation: PodObservation,
    pub(crate) pod: Option<&'a Value>,
    /// The result in the report of the entrypoint.
    pub(crate) reported: Option<Callback>,
    /// The reason why the pod was deleted. It was recorded before the deletion.
    pub(crate) early_failure: Option<FailureReason>,
    /// The reason why objects to remove still exist.
    pub(crate) removing: Option<String>,
    /// The time without a report of the entrypoint, if its container runs.
    pub(crate) silence: Option<Silence>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ContainerStep {
    /// There is no result. The next check is at this time, in milliseconds since 1970.
    Wait(u64),
    /// The result is final, because no part of the task runs.
    Finish(Box<Callback>, LogPart),
    /// The result is known, but a container may still start.
    Terminate(Box<Callback>, LogPart),
}

/// The part of a container's log that a result needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPart {
    /// No part: the result has its log, or there is no container.
    Nothing,
    /// The log without the lines of the entrypoint.
    Script,
    Whole,
    /// The log of the init container that has failed the pod.
    FailedInit,
}

impl ObservedContainer<'_> {
    pub(crate) fn decide(self, settings: &RelaySettings, now_ms: u64) -> ContainerStep {
        let early = self.early_failure.clone();
        let lost = || match &early {
            Some(reason) => Callback::failed(reason.code, &reason.message),
            None => Callback::failed(ReasonCode::Lost, "the Job or its pod was deleted"),
        };
        let (result, log) = match self.observation {
            // The node does not respond.
            PodObservation::Running if self.pod.is_some_and(|pod| pod::is_stuck(pod, now_ms)) => {
                return ContainerStep::Terminate(Box::new(lost()), LogPart::Nothing);
            }
            PodObservation::Running => {
                let silence = self.silence.filter(|silence| silence.next_check.is_zero() && self.reported.is_none());
                let Some(silence) = silence else { return self.before_end(None, settings, now_ms) };
                let why = format!(
                    "the container runs, but its entrypoint has sent no heartbeat for {}: its process is stopped, or its \
                     node does not reach the relay",
                    Millis::from(silence.lasted)
                );
                return ContainerStep::Terminate(Box::new(Callback::failed(ReasonCode::Lost, &why)), LogPart::Script);
            }
            PodObservation::Waiting(ref blocker) => {
                let blocker = blocker.clone();
                return self.before_end(blocker, settings, now_ms);
            }
            PodObservation::Terminated(end) => {
                let seen = from_kubelet(self.contracts, &end);
                let (mut result, log) = match (self.reported, from_termination_message(&end)) {
                    (Some(result), _) => (result, LogPart::Nothing),
                    (None, Some(result)) => (result, LogPart::Script),
                    (None, None) => (Callback::failed(seen.code, &seen.message), LogPart::Whole),
                };
                refine_reason(&mut result, Some(seen), early.as_ref());
                (result, log)
            }
            PodObservation::Gone => {
                let mut result = self.reported.unwrap_or_else(lost);
                refine_reason(&mut result, None, early.as_ref());
                (result, LogPart::Nothing)
            }
        };
        match self.removing.filter(|_| result.status == CallbackStatus::Succeeded) {
            Some(_) if now_ms < self.spec.deadline_ms => ContainerStep::Wait(now_ms.saturating_add(UNWATCHED_MS)),
            Some(why) => ContainerStep::Finish(Box::new(deadline_failure(Some(&why))), LogPart::Nothing),
            None => ContainerStep::Finish(Box::new(result), log),
        }
    }

    /// Fails a container that cannot start, at once or after its grace time, and one that does not end in time.
    fn before_end(self, blocker: Option<StartBlocker>, settings: &RelaySettings, now_ms: u64) -> ContainerStep {
        let fails_at = blocker.as_ref().and_then(|blocker| blocker_ends_at(blocker, settings));
        let cannot_start = fails_at.is_some_and(|at| at <= now_ms);
        if !cannot_start && now_ms < self.spec.deadline_ms {
            let until = self.spec.deadline_ms.min(fails_at.unwrap_or(u64::MAX));
            let is_waiting = matches!(self.observation, PodObservation::Waiting(_));
            let unwatched = if is_waiting { now_ms.saturating_add(UNWATCHED_MS) } else { u64::MAX };
            let silence = self.silence.filter(|_| self.reported.is_none());
            let silent = silence.map_or(u64::MAX, |silence| now_ms.saturating_add(millis(silence.next_check)));
            return ContainerStep::Wait(until.min(unwatched).min(silent));
        }
        let has_ended = blocker.as_ref().is_some_and(|it| it.log.as_ref().is_some_and(|(_, is_former)| !is_former));
        let result = match (self.reported.filter(|_| !cannot_start), blocker) {
            (Some(result), _) => result,
            (None, Some(blocker)) if blocker.ends == CauseEnd::Deadline => deadline_failure(Some(&blocker.message)),
            (None, Some(blocker)) => Callback::failed(blocker.code, &blocker.message),
            (None, None) => deadline_failure(None),
        };
        let log = match cannot_start {
            true if has_ended => LogPart::FailedInit,
            false if result.log.is_none() => LogPart::Whole,
            _ => LogPart::Nothing,
        };
        ContainerStep::Terminate(Box::new(result), log)
    }
}

fn from_termination_message(end: &Value) -> Option<Callback> {
    let TerminationResult { mut result, report, .. } = serde_json::from_str(end["message"].as_str()?).ok()?;
    // Only a relay may refer to Secrets.
    result.secrets.clear();
    result.objects.clear();
    match (result.status, report) {
        (CallbackStatus::Succeeded, Some(_)) => {
            let why = "the script succeeded, but the report with its outputs did not arrive";
            Some(Callback { duration_ms: result.duration_ms, ..Callback::failed(ReasonCode::Lost, why) })
        }
        (CallbackStatus::Succeeded | CallbackStatus::Failed, _) => Some(result),
        _ => None,
    }
}

/// Returns how a container ended, from the status of the kubelet.
fn from_kubelet(contracts: &ContractTable, end: &Value) -> FailureReason {
    let found = blockers::find(contracts, "end", end, &[], &[], Value::Null);
    let (code, message) = found.map_or_else(Default::default, |found| (found.code, found.message));
    FailureReason { code, message }
}

/// Replaces the reason of a killed entrypoint, which does not know why it was killed.
fn refine_reason(result: &mut Callback, seen: Option<FailureReason>, early_failure: Option<&FailureReason>) {
    let Some(reason) = &mut result.reason else { return };
    let seen = seen.filter(|seen| seen.code == ReasonCode::OutOfMemory);
    if let Some(seen) = seen.filter(|_| matches!(reason.code, ReasonCode::Exit | ReasonCode::Lost)) {
        *reason = seen;
    } else if let Some(early) = early_failure.filter(|_| reason.code == ReasonCode::Lost) {
        *reason = early.clone();
    }
}

#[cfg(test)]
mod tests;
