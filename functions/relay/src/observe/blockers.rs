//! Finds the reason why a pod or another object does not start, is not ready or is not created. All functions are pure.
//!
//! Sources: reasons of waiting containers are those of the kubelet (`pkg/kubelet/images/types.go`,
//! `kuberuntime_container.go`, `kubelet_pods.go`), those of its warnings are in `pkg/kubelet/events/event.go`.

use ebb_protocol::limits::message;
use ebb_protocol::{ReasonCode, WaitResolution};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::observe::pod::{BlockerKind, StartBlocker, condition, is_over, millis};
use WaitResolution::{Itself, Never, Person};

/// Milliseconds for which a warning about a pod counts. The kubelet repeats it every two minutes while its cause lasts.
const RECENT_MS: u64 = 300_000;
/// Milliseconds for which a container must run after a crash.
const STABLE_MS: u64 = 15_000;
/// Milliseconds in which a kubelet reports a pod that was assigned to its node. It usually takes less than 2 s.
const UNREPORTED_MS: u64 = 8_000;
/// The warning about a container that cannot be created. The kubelet sends it some seconds before the status of the pod.
const NOT_CREATED: &str = "Failed";
/// The prefix of the message of an event that stands for several (`client-go/tools/record`).
const COMBINED: &str = "(combined from similar events): ";
/// Messages of [`NOT_CREATED`] that another event or the status of the container explains.
const REPETITIONS: [&str; 4] =
    ["Error: ErrImagePull", "Error: ImagePullBackOff", "Error: ErrImageNeverPull", "Error: InvalidImageName"];
/// Warnings of a pod that has no container yet.
const PREPARATION: [&str; 6] =
    ["FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady", NOT_CREATED];

/// A warning about an object. Times are milliseconds since 1970 by the cluster's clock, or 0 if unknown.
#[derive(Clone, Debug)]
pub(crate) struct Warning {
    pub(crate) uid: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
}

impl From<Event> for Warning {
    fn from(event: Event) -> Self {
        let observed = event.event_time.map(|time| Time(time.0));
        let in_series = event.series.and_then(|series| series.last_observed_time).map(|time| Time(time.0));
        let first = event.first_timestamp.or_else(|| observed.clone()).or(event.metadata.creation_timestamp);
        let last = in_series.or(event.last_timestamp).or(observed).or_else(|| first.clone());
        let said = event.message.unwrap_or_default();
        Self {
            uid: event.involved_object.uid.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: message(said.strip_prefix(COMBINED).unwrap_or(&said)),
            first_ms: millis(first.as_ref()),
            last_ms: millis(last.as_ref()),
        }
    }
}

/// Returns the reason why a pod has failed, does not start or is not ready. `warnings` may be about other objects, too.
/// `cluster` is the name of the cluster in commands.
pub(crate) fn of_pod(pod: &Pod, warnings: &[Warning], now_ms: u64, cluster: &str) -> Option<StartBlocker> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let own: Vec<_> = warnings.iter().filter(|warning| warning.uid == uid && !uid.is_empty()).collect();
    let found = unscheduled(pod).or_else(|| failed(pod)).or_else(|| blocked(pod, &own, cluster));
    found.or_else(|| warned(pod, &own, now_ms)).or_else(|| initializing(pod)).or_else(|| unreported(pod, now_ms))
}

/// Returns the newest warning about an object that is not a pod.
pub(crate) fn of_object(uid: &str, warnings: &[Warning], now_ms: u64) -> Option<StartBlocker> {
    let own: Vec<_> = warnings.iter().filter(|warning| warning.uid == uid && !uid.is_empty()).collect();
    newest(ReasonCode::Timeout, &own, |_| true, now_ms)
}

/// Returns the reason why the controller `uid` creates no pods, from its warnings since its newest pod. `created_ms` is
/// the time at which the controller was created. Times are milliseconds since 1970 by the cluster's clock.
pub(crate) fn of_controller(
    uid: &str,
    created_ms: u64,
    newest_pod_ms: u64,
    warnings: &[Warning],
) -> Option<StartBlocker> {
    let own = warnings.iter().filter(|it| it.uid == uid && it.reason == "FailedCreate" && it.last_ms > newest_pod_ms);
    let newest = own.clone().max_by_key(|it| it.last_ms)?;
    let reason = |it: &Warning| refused_creation(&it.message, created_ms, it.first_ms);
    let found = reason(newest);
    // Each try to create a pod, with its random name, can be an event of its own.
    let same = own.map(reason).filter(|it| it.code == found.code);
    let since_ms = same.map(|it| it.since_ms).min().unwrap_or(found.since_ms).max(newest_pod_ms);
    Some(StartBlocker { since_ms, ..found })
}

/// Returns the reason in the message of a controller that cannot create a pod.
pub(crate) fn refused_creation(message: &str, created_ms: u64, since_ms: u64) -> StartBlocker {
    let has = |part: &str| message.contains(part);
    let (code, resolves) = if has("exceeded quota") {
        (ReasonCode::Quota, Person)
    } else if has("violates PodSecurity") {
        (ReasonCode::Denied, Never)
    } else if ["is forbidden", "denied the request", "ValidatingAdmissionPolicy"].into_iter().any(has) {
        // An operator can change a policy.
        (ReasonCode::Denied, Person)
    } else {
        (ReasonCode::NotStartable, Itself)
    };
    let message = without_pod_name(message);
    StartBlocker { code, message, kind: BlockerKind::Transient(created_ms), since_ms, resolves }
}

/// Removes the random name of the pod, because a text that changes with each try is a new one for people.
fn without_pod_name(message: &str) -> String {
    let cut = ["pods \"", "Pod \""].iter().find_map(|start| {
        let (before, rest) = message.split_once(start)?;
        let (_, after) = rest.split_once('"')?;
        Some(format!("{before}the pod{after}"))
    });
    cut.unwrap_or_else(|| message.to_owned())
}

fn unscheduled(pod: &Pod) -> Option<StartBlocker> {
    let said = condition(pod, "PodScheduled", "False")?;
    if said.reason.as_deref() != Some("Unschedulable") {
        return None;
    }
    let since_ms = millis(said.last_transition_time.as_ref().or(pod.metadata.creation_timestamp.as_ref()));
    let message = said.message.clone().unwrap_or_default();
    let kind = BlockerKind::Unschedulable;
    Some(StartBlocker { code: ReasonCode::Unschedulable, message, kind, since_ms, resolves: Person })
}

/// Returns the statuses of all containers, each with its role. Init containers run first.
fn containers(pod: &Pod) -> impl DoubleEndedIterator<Item = (&'static str, &ContainerStatus)> {
    let status = pod.status.as_ref();
    let inits = status.and_then(|it| it.init_container_statuses.as_deref()).unwrap_or_default();
    let others = status.and_then(|it| it.container_statuses.as_deref()).unwrap_or_default();
    let inits = inits.iter().map(|it| ("init container", it));
    inits.chain(others.iter().map(|it| ("container", it)))
}

/// Returns the end of a failed pod, which its controller may replace.
fn failed(pod: &Pod) -> Option<StartBlocker> {
    let status = pod.status.as_ref().filter(|it| it.phase.as_deref() == Some("Failed"))?;
    // The first end stops the other containers, such as sidecars.
    let ended = containers(pod).rev().filter_map(|(role, container)| {
        Some((role, container, container.state.as_ref()?.terminated.as_ref().filter(|end| end.exit_code != 0)?))
    });
    let ended = ended.min_by_key(|(_, _, end)| millis(end.finished_at.as_ref()));
    let (message, since_ms) = match (status.reason.as_deref(), ended) {
        (None, Some((role, container, end))) => {
            let (exit, name) = (exit_text(end), &container.name);
            let said = end.message.as_deref().unwrap_or_default();
            (format!("{role} `{name}` ended with {exit}: {said}"), millis(end.finished_at.as_ref()))
        }
        (reason, _) => {
            let said = status.message.as_deref().unwrap_or_default();
            (format!("it has failed: {}: {said}", reason.unwrap_or("Failed")), 0)
        }
    };
    let message = trimmed(&message);
    Some(StartBlocker { code: ReasonCode::Failed, message, kind: BlockerKind::Reported, since_ms, resolves: Itself })
}

fn exit_text(end: &ContainerStateTerminated) -> String {
    ebb_kube::contract::built_in().exit_text(end.exit_code.into(), end.reason.as_deref().unwrap_or_default())
}

/// Returns the container that has failed by the `blocker` of its pod, and true if its log is that of its former run.
pub(crate) fn failed_container<'a>(pod: &'a Pod, blocker: &StartBlocker) -> Option<(&'a str, bool)> {
    containers(pod).find_map(|(role, container)| {
        last_crash(container)?;
        let is_former = container.state.as_ref()?.terminated.is_none();
        let is_meant = blocker.message.starts_with(&format!("{role} `{}`", container.name));
        is_meant.then_some((container.name.as_str(), is_former))
    })
}

fn trimmed(message: &str) -> String {
    message.trim_end().trim_end_matches(':').to_owned()
}

fn blocked(pod: &Pod, own: &[&Warning], cluster: &str) -> Option<StartBlocker> {
    let started_ms = millis(pod.status.as_ref()?.start_time.as_ref());
    containers(pod).find_map(|(role, container)| {
        let waiting = container.state.as_ref()?.waiting.as_ref();
        let reason = waiting.and_then(|it| it.reason.as_deref()).unwrap_or_default();
        let said = waiting.and_then(|it| it.message.as_deref()).unwrap_or_default();
        let (code, kind, resolves) = match reason {
            "ErrImageNeverPull" | "InvalidImageName" => (ReasonCode::NotStartable, BlockerKind::Permanent, Never),
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => (ReasonCode::ImagePull, BlockerKind::Transient(started_ms), Person),
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                (ReasonCode::NotStartable, BlockerKind::Transient(started_ms), Person)
            }
            "PreStartHookError" | "PostStartHookError" => {
                (ReasonCode::NotStartable, BlockerKind::Transient(started_ms), Itself)
            }
            _ => return crashed(role, container, reason, started_ms, own),
        };
        let is_about_image = code == ReasonCode::ImagePull || kind == BlockerKind::Permanent;
        let is_meant = |warning: &&&Warning| match is_about_image {
            true => warning.message.contains("mage"),
            false => warning.message.contains(said),
        };
        let first = own.iter().filter(|it| it.reason != "BackOff").filter(is_meant).map(|it| it.first_ms).min();
        let image = image(pod, &container.name).filter(|_| is_about_image);
        let image = image.map(|image| format!(" (image `{image}`)")).unwrap_or_default();
        let message = trimmed(&format!("{role} `{}`{image}: {reason}: {said}", container.name));
        let message = message + &user_advice(pod, said, cluster);
        Some(StartBlocker { code, message, kind, since_ms: first.unwrap_or(started_ms), resolves })
    })
}

/// Returns what to do about an image that runs as root, or as a user without a number, where the pod must not.
fn user_advice(pod: &Pod, said: &str, cluster: &str) -> String {
    // The common part of both messages of the kubelet (`kuberuntime/security_context.go`).
    if !said.contains("runAsNonRoot and image") {
        return String::new();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("NAMESPACE");
    format!(
        ". Set `securityContext.runAsUser` in the podTemplate or manifest of the unit, or ask the operator of the cluster \
         for the level baseline in this namespace: ebb cluster connect {cluster} --apply --namespace {namespace}:baseline"
    )
}

/// Returns the image of a container. Its status has none before the image is pulled.
fn image<'a>(pod: &'a Pod, container: &str) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.find(|it| it.name == container)?.image.as_deref()
}

/// Returns the last end of a container that crashes. Between two crashes it runs and is not ready.
fn crashed(
    role: &str,
    container: &ContainerStatus,
    reason: &str,
    started_ms: u64,
    own: &[&Warning],
) -> Option<StartBlocker> {
    let last = last_crash(container);
    let kind = match reason {
        "CrashLoopBackOff" => BlockerKind::Transient(started_ms),
        "" if container.restart_count > 0 && !container.ready && last.is_some() => BlockerKind::Reported,
        _ => return None,
    };
    let first = own.iter().filter(|it| it.reason == "BackOff").map(|it| it.first_ms).min();
    let since_ms = first.or(last.map(|end| millis(end.finished_at.as_ref()))).unwrap_or(started_ms);
    let message = crash_text(role, container, last);
    Some(StartBlocker { code: ReasonCode::NotStartable, message, kind, since_ms, resolves: Itself })
}

/// Returns the present or last end of a container, unless it has succeeded.
fn last_crash(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let last = container.last_state.as_ref().and_then(|it| it.terminated.as_ref());
    container.state.as_ref()?.terminated.as_ref().or(last).filter(|end| end.exit_code != 0)
}

fn crash_text(role: &str, container: &ContainerStatus, last: Option<&ContainerStateTerminated>) -> String {
    let exit = last.map_or_else(|| "it ended".to_owned(), exit_text);
    let said = last.and_then(|end| end.message.as_deref()).unwrap_or_default();
    let (name, count) = (&container.name, container.restart_count);
    let restarts = if count == 1 { "restart" } else { "restarts" };
    trimmed(&format!("{role} `{name}`: CrashLoopBackOff: {exit}, {count} {restarts}: {said}"))
}

/// Returns the last crash of a container that runs for less than [`STABLE_MS`], or not at all. Its pod may be ready.
pub(crate) fn recent_crash(pod: &Pod, now_ms: u64) -> Option<StartBlocker> {
    if is_over(pod) {
        return None;
    }
    containers(pod).find_map(|(role, container)| {
        let last = last_crash(container).filter(|_| container.restart_count > 0)?;
        let running = container.state.as_ref()?.running.as_ref();
        let ran_ms = running.map_or(0, |it| now_ms.saturating_sub(millis(it.started_at.as_ref())));
        let (code, kind, resolves) = (ReasonCode::NotStartable, BlockerKind::Reported, Itself);
        let (message, since_ms) = (crash_text(role, container, Some(last)), millis(last.finished_at.as_ref()));
        (ran_ms < STABLE_MS).then_some(StartBlocker { code, message, kind, since_ms, resolves })
    })
}

/// Returns the newest warning about the volumes and the sandbox of a pod without containers, or about a probe.
fn warned(pod: &Pod, own: &[&Warning], now_ms: u64) -> Option<StartBlocker> {
    if condition(pod, "Ready", "True").is_some() {
        return None;
    }
    let ran_ms = |container: &ContainerStatus| {
        let state = container.state.as_ref()?;
        let started = state.running.as_ref().map(|running| running.started_at.as_ref());
        started.or(state.terminated.as_ref().map(|end| end.finished_at.as_ref())).map(millis)
    };
    let status = pod.status.as_ref()?;
    let has_run = status.container_statuses.iter().flatten().any(|container| ran_ms(container).is_some());
    let reasons: &[&str] = if has_run { &["Unhealthy"] } else { &PREPARATION };
    // An init container that runs or has ended shows that former warnings are over.
    let initialized_ms = status.init_container_statuses.iter().flatten().filter_map(ran_ms).max().unwrap_or(0);
    let own = own.iter().copied().filter(|it| it.last_ms >= initialized_ms);
    let own: Vec<_> = own.filter(|it| !REPETITIONS.contains(&it.message.as_str())).collect();
    let found = newest(ReasonCode::NotStartable, &own, |reason| reasons.contains(&reason), now_ms)?;
    let is_about_image = found.message.starts_with(NOT_CREATED) && found.message.contains("mage");
    // The status of the container, which follows, counts from the same time.
    let kind = BlockerKind::Transient(millis(status.start_time.as_ref()));
    Some(match is_about_image {
        true => StartBlocker { code: ReasonCode::ImagePull, kind, resolves: Person, ..found },
        false if lacks_source(pod, &found) => StartBlocker { kind: BlockerKind::Transient(found.since_ms), ..found },
        false => found,
    })
}

/// Returns the node of a pod if its kubelet has reported nothing since the assignment.
fn unreported(pod: &Pod, now_ms: u64) -> Option<StartBlocker> {
    let since_ms = millis(condition(pod, "PodScheduled", "True")?.last_transition_time.as_ref());
    if containers(pod).next().is_some() || is_over(pod) || now_ms.saturating_sub(since_ms) < UNREPORTED_MS {
        return None;
    }
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    let message = format!("node `{node}` has reported nothing about the pod: see `kubectl get node {node}`");
    let (code, kind, resolves) = (ReasonCode::NotStartable, BlockerKind::Reported, Person);
    Some(StartBlocker { code, message, kind, since_ms, resolves })
}

/// Returns true if the Secret or ConfigMap of a volume, or a key of it, is missing.
fn lacks_source(pod: &Pod, found: &StartBlocker) -> bool {
    let is_meant = |source: &&str| found.message.contains(*source);
    // The kubelet creates the sandbox after it has mounted all volumes.
    found.message.starts_with("FailedMount: ")
        && found.resolves == Person
        && ["secret \"", "configmap \"", "non-existent"].iter().any(is_meant)
        && condition(pod, "PodReadyToStartContainers", "True").is_none()
}

/// Returns the init container whose end the others await. They await only the start of a sidecar, which does not end.
fn initializing(pod: &Pod) -> Option<StartBlocker> {
    let statuses = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    let (name, since_ms) = statuses
        .filter(|it| it.started != Some(true) || !is_sidecar(pod, &it.name))
        .find_map(|it| Some((&it.name, millis(it.state.as_ref()?.running.as_ref()?.started_at.as_ref()))))?;
    let message = format!("init container `{name}` has not ended");
    let kind = BlockerKind::Reported;
    Some(StartBlocker { code: ReasonCode::NotStartable, message, kind, since_ms, resolves: Itself })
}

fn is_sidecar(pod: &Pod, container: &str) -> bool {
    let inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    inits.into_iter().any(|it| it.name == container && it.restart_policy.as_deref() == Some("Always"))
}

/// Returns the newest of the recent warnings with these reasons.
fn newest(code: ReasonCode, own: &[&Warning], is_meant: impl Fn(&str) -> bool, now_ms: u64) -> Option<StartBlocker> {
    let recent = own.iter().filter(|it| now_ms.saturating_sub(it.last_ms) < RECENT_MS);
    // A busy kubelet alternates between the cause and the end of its wait.
    let has_cause = |it: &Warning| !it.message.contains("timed out waiting for the condition");
    let newest = recent.filter(|it| is_meant(&it.reason)).max_by_key(|it| (has_cause(it), it.last_ms))?;
    let first = own.iter().filter(|it| it.reason == newest.reason).map(|it| it.first_ms).min();
    let is_missing = ["not found", "non-existent"].iter().any(|text| newest.message.contains(text));
    Some(StartBlocker {
        code,
        message: format!("{}: {}", newest.reason, newest.message),
        kind: BlockerKind::Reported,
        since_ms: first.unwrap_or(newest.first_ms),
        resolves: if is_missing { Person } else { Itself },
    })
}

#[cfg(test)]
mod tests;
