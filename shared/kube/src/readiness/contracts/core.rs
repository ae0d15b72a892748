//! Kinds of Kubernetes itself, except for pods and workloads.

use serde_json::Value;

use crate::readiness::conditions;
use crate::readiness::object::{ObjectReadiness, ObjectView};

/// core/v1 PersistentVolumeClaimPhase. A claim with `WaitForFirstConsumer` stays pending until a pod uses it. The
/// claim does not show this: its document sets `ready: ${true}` or comes after the pod.
pub(super) fn claim(object: ObjectView<'_>) -> ObjectReadiness {
    match object.text("status.phase") {
        "Bound" => ObjectReadiness::Ready,
        "Lost" => ObjectReadiness::failed("Lost", "its volume is gone"),
        // The API server sets the default class.
        "Pending" if object.text("spec.storageClassName").is_empty() => ObjectReadiness::pending(
            "`status.phase` is `Pending`, `Bound` is awaited; it has no storage class, and the cluster has no default one: set \
             `storageClassName`, or make a PersistentVolume that fits",
        ),
        "Pending" => ObjectReadiness::pending(
            "`status.phase` is `Pending`, `Bound` is awaited (a class that waits for the first consumer binds when a pod uses it)",
        ),
        other => ObjectReadiness::awaits("status.phase", other, "Bound"),
    }
}

/// Judges a service. Only a load balancer needs an address (core/v1 LoadBalancerStatus), unlike for kstatus.
pub(super) fn service(object: ObjectView<'_>) -> ObjectReadiness {
    if object.text("spec.type") == "LoadBalancer" { addressed(object) } else { ObjectReadiness::Ready }
}

pub(super) fn addressed(object: ObjectView<'_>) -> ObjectReadiness {
    let named = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    if object.list("status.loadBalancer.ingress").iter().any(|entry| named(entry, "ip") || named(entry, "hostname")) {
        return ObjectReadiness::Ready;
    }
    ObjectReadiness::pending("`status.loadBalancer.ingress` has no address yet")
}

/// batch/v1 JobConditionType. Only `Complete` and `Failed` are terminal: `SuccessCriteriaMet` and `FailureTarget` come
/// before the end of pods (*Job termination and cleanup*). A Job has no `observedGeneration`, and no change undoes an end.
pub(super) fn job(object: ObjectView<'_>) -> ObjectReadiness {
    let holds = |kind| object.condition(kind).filter(|condition| condition.is("True"));
    if let Some(failed) = holds("Failed").filter(|failed| !failed.is_stale(object)) {
        return conditions::failed(failed);
    }
    if let Some(complete) = holds("Complete") {
        if complete.is_stale(object) {
            return ObjectReadiness::pending("the condition `Complete` is about an older generation");
        }
        return ObjectReadiness::Ready;
    }
    for coming in ["FailureTarget", "SuccessCriteriaMet"] {
        if let Some(coming) = holds(coming) {
            return ObjectReadiness::pending(format!("the condition {}; pods are still ending", coming.describe()));
        }
    }
    if object.says("spec.suspend") || holds("Suspended").is_some() {
        return ObjectReadiness::pending("it is suspended");
    }
    let [active, succeeded, failed] =
        ["status.active", "status.succeeded", "status.failed"].map(|field| object.count(field));
    ObjectReadiness::pending(format!(
        "the condition `Complete` does not exist yet; pods: {active} active, {succeeded} succeeded, {failed} failed"
    ))
}

/// certificates.k8s.io/v1: approved, then signed. `Denied` and `Failed` are terminal.
pub(super) fn signing(object: ObjectView<'_>) -> ObjectReadiness {
    for end in ["Denied", "Failed"] {
        if let Some(condition) = object.condition(end).filter(|condition| condition.is("True")) {
            return ObjectReadiness::failed(end, condition.message);
        }
    }
    if object.text("status.certificate").is_empty() {
        return ObjectReadiness::pending("`status.certificate` does not exist yet");
    }
    ObjectReadiness::Ready
}
