//! Observes a container through the pods of its Job.
//!
//! Source: reasons of the condition `DisruptionTarget` are in the documentation of pod disruptions.

use ebb_protocol::{FailureReason, ReasonCode, WaitResolution};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::Value;

/// Milliseconds after the grace period until a pod counts as stuck, because its node is lost.
pub(crate) const STUCK_MS: u64 = 120_000;

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub(crate) enum PodObservation {
    /// The container has not started. The reason is that of a pod that has failed, or it is found later (`blockers`).
    Waiting(Option<StartBlocker>),
    Running,
    /// The exit code is -1 for the end of a pod without that of its container.
    Terminated(ContainerStateTerminated),
    /// No pod exists, and none will be created.
    Gone,
}

/// The reason why a container does not start, or why a pod is not created or not ready.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub(crate) struct StartBlocker {
    pub(crate) code: ReasonCode,
    pub(crate) message: String,
    pub(crate) kind: BlockerKind,
    /// The first report of the reason in milliseconds since 1970 by the cluster's clock, or 0 if unknown.
    pub(crate) since_ms: u64,
    pub(crate) resolves: WaitResolution,
    /// The container that has failed, and true if its log is that of its former run.
    #[cfg_attr(test, serde(default))]
    pub(crate) log: Option<(String, bool)>,
}

/// The time at which a blocker ends a task that waits for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub(crate) enum BlockerKind {
    Permanent,
    /// It may pass. It exists since this time, in milliseconds since 1970 by the cluster's clock.
    Transient(u64),
    /// A node may become available. [`StartBlocker::since_ms`] counts.
    Unschedulable,
    /// It is reported, and only the deadline ends the task.
    Reported,
}

/// Observes a container of a Job. `job` is `None` if it was deleted. `pods` are sorted by age, the newest last.
pub(crate) fn observe(job: Option<&Value>, pods: &[Pod], container: &str) -> PodObservation {
    let Some(pod) = pods.last() else {
        let is_active = job.is_some_and(|job| {
            let conditions = job["status"]["conditions"].as_array();
            let mut ends = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
            let is_over = ends.any(|it| it["type"] == "Failed" || it["type"] == "Complete");
            !is_over && job["metadata"]["deletionTimestamp"].is_null()
        });
        return if is_active { PodObservation::Waiting(None) } else { PodObservation::Gone };
    };
    let status = pod.status.as_ref();
    let own = status.and_then(|it| it.container_statuses.iter().flatten().find(|it| it.name == container));
    if let Some(end) = own.and_then(|it| it.state.as_ref()?.terminated.clone()) {
        return PodObservation::Terminated(end);
    }
    // A pod can fail before its containers end, or without them.
    if let Some(status) = status.filter(|it| it.phase.as_deref() == Some("Failed")) {
        return match failed_init(pod) {
            Some((name, state)) if status.reason.as_deref().unwrap_or_default().is_empty() => {
                let said = state.message.as_deref().unwrap_or_default();
                let code = if interrupted(said) { ReasonCode::Lost } else { ReasonCode::NotStartable };
                let message = format!("the init container `{name}` ended with {}: {said}", state.exit_code);
                let message = message.trim_end_matches(": ").to_owned();
                let (kind, since_ms) = (BlockerKind::Permanent, millis(state.finished_at.as_ref()));
                let resolves = WaitResolution::Never;
                PodObservation::Waiting(Some(StartBlocker { code, message, kind, since_ms, resolves, log: None }))
            }
            _ => {
                let (reason, message) = (status.reason.clone(), status.message.clone());
                let end = ContainerStateTerminated { exit_code: -1, reason, message, ..Default::default() };
                PodObservation::Terminated(end)
            }
        };
    }
    if own.and_then(|it| it.state.as_ref()?.running.as_ref()).is_some() {
        return PodObservation::Running;
    }
    PodObservation::Waiting(None)
}

pub(crate) fn failed_init(pod: &Pod) -> Option<(&str, &ContainerStateTerminated)> {
    let status = pod.status.as_ref().filter(|it| it.phase.as_deref() == Some("Failed"))?;
    status.init_container_statuses.iter().flatten().find_map(|it| {
        Some((it.name.as_str(), it.state.as_ref()?.terminated.as_ref().filter(|end| end.exit_code != 0)?))
    })
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str, status: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_deref()?.iter().find(|it| it.type_ == kind && it.status == status)
}

/// Returns true if a message of Go's runtime reports a cancelled start.
pub(crate) fn interrupted(message: &str) -> bool {
    ["context canceled", "context deadline exceeded"].iter().any(|said| message.contains(said))
}

pub(crate) fn early_failure(pod: &Pod) -> Option<FailureReason> {
    let status = pod.status.as_ref()?;
    let failure = |code, why: &str, message: Option<&str>| {
        let message = format!("{why}: {}", message.unwrap_or_default());
        Some(FailureReason { code, message: ebb_protocol::limits::message(message.trim_end_matches(": ")) })
    };
    if let Some(disruption) = condition(pod, "DisruptionTarget", "True") {
        let message = disruption.message.as_deref();
        return match disruption.reason.as_deref().unwrap_or_default() {
            "DeletionByTaintManager" | "DeletionByPodGC" => {
                failure(ReasonCode::Lost, "the pod's node is lost", message)
            }
            _ => failure(ReasonCode::Evicted, "the pod was evicted", message),
        };
    }
    let message = status.message.as_deref();
    match status.reason.as_deref() {
        Some("Evicted" | "Preempting") => failure(ReasonCode::Evicted, "the pod was evicted", message),
        Some("DeadlineExceeded") => failure(ReasonCode::Timeout, "the pod exceeded its deadline", message),
        Some("NodeLost" | "NodeShutdown" | "Terminated" | "Shutdown") => {
            failure(ReasonCode::Lost, "the pod's node was shut down", message)
        }
        _ if pod.metadata.deletion_timestamp.is_some() => {
            failure(ReasonCode::Lost, "the pod was deleted", Some(&pod.name_any()))
        }
        _ => None,
    }
}

/// Returns true if the pod has ended with all its containers.
pub(crate) fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Returns true if a pod still exists long after the end of its grace period, because its node does not respond.
pub(crate) fn is_stuck(pod: &Pod, now_ms: u64) -> bool {
    pod.metadata.deletion_timestamp.as_ref().is_some_and(|time| millis(Some(time)).saturating_add(STUCK_MS) <= now_ms)
}

/// Returns milliseconds since 1970, or 0 if the time is unknown.
pub(crate) fn millis(time: Option<&Time>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.0.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_api::rows;

    /// Observations that a test cluster of one node cannot produce.
    #[test]
    fn rare_observations() {
        for (status, expected) in rows::<(Value, Option<ReasonCode>)>("early_failures") {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap();
            assert_eq!(early_failure(&pod).map(|it| it.code), expected, "{status}");
        }
        for (job, pods, expected) in rows::<(Option<Value>, Vec<Pod>, PodObservation)>("rare_observations") {
            assert_eq!(observe(job.as_ref(), &pods, "main"), expected, "{job:?} {pods:?}");
        }
    }
}
