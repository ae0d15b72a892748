//! Workloads.
//!
//! Source: apps/v1 of the Kubernetes API reference, and the rules of `kubectl rollout status`
//! (`k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go`) plus availability. All of these write
//! `observedGeneration`, so a missing one is pending: its replica counts are not from a controller yet.

use crate::readiness::conditions::{failed, unobserved};
use crate::readiness::object::{ObjectReadiness, ObjectView};

pub(super) fn deployment(object: ObjectView<'_>) -> ObjectReadiness {
    // The rollout exceeded `spec.progressDeadlineSeconds`.
    let late = object.condition("Progressing").filter(|it| it.is("False") && it.reason == "ProgressDeadlineExceeded");
    let late = late.filter(|it| !it.is_stale(object)).map(failed);
    let wanted = replicas(object);
    let older = object.count("status.replicas").saturating_sub(object.count("status.updatedReplicas"));
    let missing = at_least(object, "updatedReplicas", wanted)
        .or_else(|| (older > 0).then(|| format!("{older} replicas of an older template still exist")))
        .or_else(|| first_below(object, &["readyReplicas", "availableReplicas"], wanted))
        .map(|missing| pending(object, missing));
    unobserved(object).or(late).or(missing).unwrap_or(ObjectReadiness::Ready)
}

/// Judges a StatefulSet. With `OnDelete`, pods of an older revision are not replaced. With a partition, pods below it
/// are not replaced. In both cases, the rollout is not awaited.
pub(super) fn stateful_set(object: ObjectView<'_>) -> ObjectReadiness {
    let on_delete = object.text("spec.updateStrategy.type") == "OnDelete";
    let (wanted, delayed) = (replicas(object), object.count("spec.minReadySeconds") > 0);
    let missing = first_below(object, &["replicas", "readyReplicas"], wanted)
        // `availableReplicas` exists since Kubernetes 1.22. It differs from readiness only with `minReadySeconds`.
        .or_else(|| delayed.then(|| at_least(object, "availableReplicas", wanted)).flatten())
        .or_else(|| (!on_delete).then(|| rolled(object, wanted)).flatten())
        .map(ObjectReadiness::pending);
    unobserved(object).or(missing).unwrap_or(ObjectReadiness::Ready)
}

fn rolled(object: ObjectView<'_>, wanted: i64) -> Option<String> {
    let partition = object.count("spec.updateStrategy.rollingUpdate.partition");
    if partition > 0 {
        return at_least(object, "updatedReplicas", wanted.saturating_sub(partition));
    }
    let [current, update] = ["status.currentRevision", "status.updateRevision"].map(|field| object.text(field));
    let updated = object.count("status.updatedReplicas");
    (current != update).then(|| format!("revision `{update}` is rolling out: {updated} of {wanted} replicas"))
}

/// Judges a DaemonSet. Its counts are always written, so a missing count is not known yet.
pub(super) fn daemon_set(object: ObjectView<'_>) -> ObjectReadiness {
    if let Some(verdict) = unobserved(object) {
        return verdict;
    }
    let Some(wanted) = object.number("status.desiredNumberScheduled") else {
        return ObjectReadiness::pending("`status.desiredNumberScheduled` does not exist yet");
    };
    let counts: &[&str] = match object.text("spec.updateStrategy.type") {
        "OnDelete" => &["numberReady", "numberAvailable"],
        _ => &["updatedNumberScheduled", "numberReady", "numberAvailable"],
    };
    first_below(object, counts, wanted).map_or(ObjectReadiness::Ready, ObjectReadiness::pending)
}

pub(super) fn replica_set(object: ObjectView<'_>) -> ObjectReadiness {
    let (wanted, all) = (replicas(object), object.count("status.replicas"));
    let missing = first_below(object, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], wanted)
        .or_else(|| (all > wanted).then(|| format!("`status.replicas` is {all}, {wanted} are awaited")))
        .map(|missing| pending(object, missing));
    unobserved(object).or(missing).unwrap_or(ObjectReadiness::Ready)
}

fn replicas(object: ObjectView<'_>) -> i64 {
    object.number("spec.replicas").unwrap_or(1)
}

/// Adds the reason of a delay: a quota that rejects pods, or a pause.
fn pending(object: ObjectView<'_>, missing: String) -> ObjectReadiness {
    if let Some(refused) = object.condition("ReplicaFailure").filter(|condition| condition.is("True")) {
        return ObjectReadiness::pending(format!("{missing}; the condition {}", refused.describe()));
    }
    if object.says("spec.paused") {
        return ObjectReadiness::pending(format!("{missing}; it is paused"));
    }
    ObjectReadiness::pending(missing)
}

fn first_below(object: ObjectView<'_>, fields: &[&str], wanted: i64) -> Option<String> {
    fields.iter().find_map(|field| at_least(object, field, wanted))
}

fn at_least(object: ObjectView<'_>, field: &str, wanted: i64) -> Option<String> {
    let now = object.count(&format!("status.{field}"));
    (now < wanted).then(|| format!("`status.{field}` is {now}, {wanted} are awaited"))
}
