use serde_json::Value;

use crate::readiness::conditions;
use crate::readiness::object::{ObjectReadiness, ObjectView};

/// The number of restarts after which a crash-looping container has failed: 2.5 minutes with kubelet's back-off (10 s,
/// doubled). kstatus fails at the first restart, which is too early for a pod that waits for its database.
const CRASHES: i64 = 5;

/// core/v1 PodPhase, PodCondition, ContainerStatus; *Pod Lifecycle* of the Kubernetes documentation.
///
/// With the `restartPolicy` `Always`, a pod is ready when its condition `Ready` is true, which includes probes and
/// readiness gates. With `OnFailure` and `Never`, it is ready when all containers have succeeded. Why a pod waits is not in
/// its contract: the relay explains it from the states of its containers and from warnings.
pub(super) fn pod(object: ObjectView<'_>) -> ObjectReadiness {
    match object.text("status.phase") {
        "Succeeded" => return ObjectReadiness::Ready,
        "Failed" => return failed(object),
        _ => {}
    }
    if let Some(verdict) = states(object).find_map(hopeless) {
        return verdict;
    }
    match object.text("spec.restartPolicy") {
        "OnFailure" | "Never" => ObjectReadiness::awaits("status.phase", object.text("status.phase"), "Succeeded"),
        _ => conditions::first_missing(object, object.conditions(), &["Ready"]).unwrap_or(ObjectReadiness::Ready),
    }
}

/// Returns the failure of a pod, with the reason of the pod (`Evicted`, `DeadlineExceeded`), otherwise of the container
/// that failed first. Its end stops the others, such as sidecars.
fn failed(object: ObjectView<'_>) -> ObjectReadiness {
    let reason = object.text("status.reason");
    let ended = states(object).rev().filter_map(|container| {
        let end = container.at("state.terminated").map(ObjectView)?;
        let exit = exit_text(end.number("exitCode").filter(|code| *code != 0)?, end.text("reason"));
        let message = format!("container `{}` ended with {exit}: {}", container.text("name"), end.text("message"));
        Some((end.text("finishedAt"), end.text("reason"), message))
    });
    match ended.min_by_key(|(finished, ..)| *finished) {
        _ if !reason.is_empty() => ObjectReadiness::failed(reason, object.text("status.message")),
        Some((_, reason, message)) => {
            let message = message.trim_end().trim_end_matches(':');
            ObjectReadiness::failed(if reason.is_empty() { "Error" } else { reason }, message)
        }
        None => ObjectReadiness::failed("Failed", object.text("status.message")),
    }
}

/// Signals that end containers. A container runtime reports 128 and the number as the exit code, with the reason `Error`.
const SIGNALS: [(i64, &str); 9] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (15, "SIGTERM"),
];

/// Describes the end of a container by its exit code and its `reason`, which may be empty: `exit code 143 (SIGTERM)`.
pub fn exit_text(code: i64, reason: &str) -> String {
    let signal = SIGNALS.iter().find(|(number, _)| code == 128 + number).map(|(_, name)| *name);
    match signal.filter(|_| ["", "Error"].contains(&reason)).unwrap_or(reason) {
        "" => format!("exit code {code}"),
        why => format!("exit code {code} ({why})"),
    }
}

/// Returns the failure of a container in a terminal state: an invalid image name, or repeated crashes. A failed image pull
/// is not terminal, because registries recover.
fn hopeless(container: ObjectView<'_>) -> Option<ObjectReadiness> {
    let waiting = container.at("state.waiting").map(ObjectView)?;
    let crashes = container.count("restartCount");
    match waiting.text("reason") {
        "InvalidImageName" => Some(ObjectReadiness::failed("InvalidImageName", waiting.text("message"))),
        "CrashLoopBackOff" if crashes >= CRASHES => {
            let last = container.at("lastState.terminated").map(ObjectView);
            let code = last.and_then(|last| last.number("exitCode"));
            let code = code.map_or_else(String::new, |code| format!(", last with {code}"));
            let message = format!("container `{}` ended {crashes} times{code}", container.text("name"));
            Some(ObjectReadiness::failed("CrashLoopBackOff", message))
        }
        _ => None,
    }
}

fn states(object: ObjectView<'_>) -> impl DoubleEndedIterator<Item = ObjectView<'_>> {
    let lists = ["status.initContainerStatuses", "status.containerStatuses"];
    lists.into_iter().flat_map(move |list| object.list(list).iter()).map(|state: &Value| ObjectView(state))
}
