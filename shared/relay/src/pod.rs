//! What the pods of a Job say of one container.
//!
//! Sources: the reasons of waiting containers are those of the kubelet (`pkg/kubelet/images/types.go`,
//! `kuberuntime_container.go`, `kubelet_pods.go`), those of the condition `DisruptionTarget` are in the documentation of
//! pod disruptions.

use ebb_protocol::callback::{FailureReason, ReasonCode};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::Value;

/// What is seen of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodObservation {
    /// It has not started: what keeps it, if something does.
    Waiting(Option<StartBlocker>),
    Running,
    Terminated(ContainerExit),
    /// There is no pod, and there will be none.
    Gone,
    /// There is no pod yet.
    NoPod,
}

/// What keeps a container from starting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StartBlocker {
    pub(crate) code: ReasonCode,
    pub(crate) message: String,
    pub(crate) kind: BlockerKind,
}

/// How long a trouble may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockerKind {
    /// It never passes.
    Permanent,
    /// It may pass by itself. Milliseconds since 1970 from when on it is there, by the cluster's clock.
    Transient(u64),
    /// A node may come. As before.
    Unschedulable(u64),
}

/// How a container has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerExit {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What is seen of a container: `job` as it is, and its pods, the newest last.
pub(crate) fn observe(job: &Value, pods: &[Pod], container: &str) -> PodObservation {
    let Some(pod) = pods.last() else {
        let conditions = job["status"]["conditions"].as_array();
        let mut ends = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
        let over = ends.any(|it| it["type"] == "Failed" || it["type"] == "Complete");
        return if over || !job["metadata"]["deletionTimestamp"].is_null() {
            PodObservation::Gone
        } else {
            PodObservation::NoPod
        };
    };
    let status = pod.status.as_ref();
    let own = status.and_then(|it| find(it.container_statuses.as_deref(), container));
    if let Some(end) = own.and_then(container_exit) {
        return PodObservation::Terminated(end);
    }
    // The pod as a whole can end before its containers do, or without them.
    if let Some(status) = status.filter(|it| it.phase.as_deref() == Some("Failed")) {
        let reason = status.reason.clone().unwrap_or_default();
        let message = status.message.clone().unwrap_or_default();
        let inits = status.init_container_statuses.as_deref().unwrap_or_default();
        let failed = inits.iter().find_map(|it| {
            let state = it.state.as_ref()?.terminated.as_ref()?;
            (state.exit_code != 0).then(|| (it.name.clone(), state))
        });
        return match failed {
            Some((name, state)) if reason.is_empty() => {
                let said = state.message.as_deref().unwrap_or_default();
                let code = if interrupted(said) { ReasonCode::Lost } else { ReasonCode::NotStartable };
                let message = format!("the init container `{name}` ended with {}: {said}", state.exit_code);
                let message = message.trim_end_matches(": ").to_owned();
                PodObservation::Waiting(Some(StartBlocker { code, message, kind: BlockerKind::Permanent }))
            }
            _ => PodObservation::Terminated(ContainerExit { exit_code: -1, reason, message }),
        };
    }
    if own.and_then(|it| it.state.as_ref()?.running.as_ref()).is_some() {
        return PodObservation::Running;
    }
    PodObservation::Waiting(unscheduled(pod).or_else(|| blocked(pod)))
}

fn find<'a>(all: Option<&'a [ContainerStatus]>, name: &str) -> Option<&'a ContainerStatus> {
    all.into_iter().flatten().find(|it| it.name == name)
}

fn container_exit(status: &ContainerStatus) -> Option<ContainerExit> {
    let state = status.state.as_ref()?.terminated.as_ref()?;
    Some(ContainerExit {
        exit_code: state.exit_code,
        reason: state.reason.clone().unwrap_or_default(),
        message: state.message.clone().unwrap_or_default(),
    })
}

fn condition<'a>(pod: &'a Pod, kind: &str, status: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|it| it.type_ == kind && it.status == status)
}

fn unscheduled(pod: &Pod) -> Option<StartBlocker> {
    let said = condition(pod, "PodScheduled", "False")?;
    if said.reason.as_deref() != Some("Unschedulable") {
        return None;
    }
    let since = millis(said.last_transition_time.as_ref().or(pod.metadata.creation_timestamp.as_ref()));
    let message = said.message.clone().unwrap_or_default();
    Some(StartBlocker { code: ReasonCode::Unschedulable, message, kind: BlockerKind::Unschedulable(since) })
}

/// What keeps a container of the pod from starting, whichever: without its init containers none begins.
fn blocked(pod: &Pod) -> Option<StartBlocker> {
    let status = pod.status.as_ref()?;
    let since = millis(status.start_time.as_ref());
    let all = [&status.init_container_statuses, &status.container_statuses];
    all.into_iter().flatten().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let (code, lasts) = match reason {
            "ErrImageNeverPull" | "InvalidImageName" => (ReasonCode::NotStartable, BlockerKind::Permanent),
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => (ReasonCode::ImagePull, BlockerKind::Transient(since)),
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "PreStartHookError"
            | "PostStartHookError"
            | "CrashLoopBackOff" => (ReasonCode::NotStartable, BlockerKind::Transient(since)),
            _ => return None,
        };
        let message = waiting.message.as_deref().unwrap_or_default();
        let message = format!("container `{}`: {reason}: {message}", container.name);
        Some(StartBlocker { code, message, kind: lasts })
    })
}

/// Returns true if a start failed for somebody who waited for it no longer, as Go says that.
pub(crate) fn interrupted(message: &str) -> bool {
    ["context canceled", "context deadline exceeded"].iter().any(|said| message.contains(said))
}

/// What is known of why a pod is about to go.
pub(crate) fn early_failure(pod: &Pod) -> Option<FailureReason> {
    let status = pod.status.as_ref()?;
    let told = |code, why: &str, message: Option<&str>| {
        let message = format!("{why}: {}", message.unwrap_or_default());
        Some(FailureReason { code, message: ebb_protocol::limits::message(message.trim_end_matches(": ")) })
    };
    if let Some(said) = condition(pod, "DisruptionTarget", "True") {
        let message = said.message.as_deref();
        return match said.reason.as_deref().unwrap_or_default() {
            "DeletionByTaintManager" | "DeletionByPodGC" => told(ReasonCode::Lost, "the pod's node is lost", message),
            _ => told(ReasonCode::Evicted, "the pod was evicted", message),
        };
    }
    match status.reason.as_deref() {
        Some("Evicted" | "Preempting") => told(ReasonCode::Evicted, "the pod was evicted", status.message.as_deref()),
        Some("DeadlineExceeded") => {
            told(ReasonCode::Timeout, "the pod took longer than it may", status.message.as_deref())
        }
        Some("NodeLost" | "NodeShutdown" | "Terminated" | "Shutdown") => {
            told(ReasonCode::Lost, "the pod's node went away", status.message.as_deref())
        }
        _ if pod.metadata.deletion_timestamp.is_some() => {
            told(ReasonCode::Lost, "the pod was deleted", Some(&pod.name_any()))
        }
        _ => None,
    }
}

/// Milliseconds since 1970; 0: unknown, which is long ago.
pub(crate) fn millis(time: Option<&Time>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.0.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What one node of a test cluster does not do, as the API server would show it.
    #[test]
    fn ends_that_are_rare() {
        let disrupted = |reason: &str| json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}]});
        for (status, expected) in [
            (json!({}), None),
            (disrupted("DeletionByTaintManager"), Some(ReasonCode::Lost)),
            (disrupted("DeletionByPodGC"), Some(ReasonCode::Lost)),
            (disrupted("PreemptionByScheduler"), Some(ReasonCode::Evicted)),
            (disrupted("TerminationByKubelet"), Some(ReasonCode::Evicted)),
            (json!({"reason": "NodeShutdown"}), Some(ReasonCode::Lost)),
            (json!({"reason": "Evicted", "message": "memory"}), Some(ReasonCode::Evicted)),
        ] {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap();
            assert_eq!(early_failure(&pod).map(|it| it.code), expected, "{status}");
        }
        // Its container had ended before: that stands, whatever the rest of the pod comes to.
        let ended = json!([{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": "m"}}}]);
        for mut status in [
            json!({"phase": "Failed", "reason": "NodeLost"}),
            json!({"phase": "Failed", "reason": "Evicted"}),
            json!({"phase": "Unknown"}),
            disrupted("DeletionByPodGC"),
        ] {
            status["containerStatuses"] = ended.clone();
            let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
            let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap();
            let end = ContainerExit { exit_code: 0, reason: "Completed".to_owned(), message: "m".to_owned() };
            assert_eq!(observe(&Value::Null, &[pod], "main"), PodObservation::Terminated(end), "{status}");
        }
        let waiting = |list: &str, reason: &str| {
            json!({list: [{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason}}}]})
        };
        for (status, expected) in [
            (waiting("containerStatuses", "ContainerCreating"), None),
            (waiting("initContainerStatuses", "PodInitializing"), None),
            (
                waiting("initContainerStatuses", "ImagePullBackOff"),
                Some((ReasonCode::ImagePull, BlockerKind::Transient(0))),
            ),
            (
                waiting("containerStatuses", "RunContainerError"),
                Some((ReasonCode::NotStartable, BlockerKind::Transient(0))),
            ),
            (
                waiting("containerStatuses", "InvalidImageName"),
                Some((ReasonCode::NotStartable, BlockerKind::Permanent)),
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap();
            let PodObservation::Waiting(trouble) = observe(&Value::Null, &[pod], "main") else { panic!("{status}") };
            assert_eq!(trouble.map(|it| (it.code, it.kind)), expected, "{status}");
        }
        // A pod that has ended as a whole, before its containers have a status.
        let evicted = json!({"metadata": {}, "status": {"phase": "Failed", "reason": "Evicted", "message": "m"}});
        let evicted: Pod = serde_json::from_value(evicted).unwrap();
        let end = ContainerExit { exit_code: -1, reason: "Evicted".to_owned(), message: "m".to_owned() };
        assert_eq!(observe(&Value::Null, &[evicted], "main"), PodObservation::Terminated(end));
        let job = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
        for (kind, expected) in [("Failed", PodObservation::Gone), ("Suspended", PodObservation::NoPod)] {
            assert_eq!(observe(&job(kind), &[], "main"), expected);
        }
    }
}
