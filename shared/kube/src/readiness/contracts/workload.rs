//! Workloads.
//!
//! Source: apps/v1 of the Kubernetes API reference, and the rules of `kubectl rollout status`
//! (`k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go`) plus availability. All of these write
//! `observedGeneration`, so a missing one is pending: its replica counts are not from a controller yet.

use crate::readiness::conditions::{TerminalCondition, ended};
use crate::readiness::generation::unobserved;
use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// The rollout exceeded `spec.progressDeadlineSeconds`.
const TOO_SLOW: TerminalCondition =
    TerminalCondition { kind: "Progressing", status: "False", reasons: &["ProgressDeadlineExceeded"] };

pub(super) fn deployment(object: ObjectView<'_>) -> ObjectReadiness {
    if let Some(verdict) = unobserved(object).or_else(|| ended(object, &[TOO_SLOW])) {
        return verdict;
    }
    let wanted = object.number("spec.replicas").unwrap_or(1);
    let updated = object.count("status.updatedReplicas");
    let all = object.count("status.replicas");
    let missing = if updated < wanted {
        at_least("updatedReplicas", updated, wanted)
    } else if all > updated {
        Some(format!("{} replicas of an older template still exist", all.saturating_sub(updated)))
    } else {
        at_least("readyReplicas", object.count("status.readyReplicas"), wanted)
            .or_else(|| at_least("availableReplicas", object.count("status.availableReplicas"), wanted))
    };
    let Some(missing) = missing else { return ObjectReadiness::Ready };
    pending(object, missing)
}

/// Judges a StatefulSet. With `OnDelete`, pods of an older revision are not replaced. With a partition, pods below it
/// are not replaced. In both cases, the rollout is not awaited.
pub(super) fn stateful_set(object: ObjectView<'_>) -> ObjectReadiness {
    if let Some(verdict) = unobserved(object) {
        return verdict;
    }
    let on_delete = object.text("spec.updateStrategy.type") == "OnDelete";
    let wanted = object.number("spec.replicas").unwrap_or(1);
    let missing = at_least("replicas", object.count("status.replicas"), wanted)
        .or_else(|| at_least("readyReplicas", object.count("status.readyReplicas"), wanted))
        .or_else(|| available(object, wanted))
        .or_else(|| (!on_delete).then(|| rolled(object, wanted)).flatten());
    missing.map_or(ObjectReadiness::Ready, ObjectReadiness::pending)
}

/// Describes missing available replicas. `availableReplicas` exists since Kubernetes 1.22. It differs from readiness
/// only with `minReadySeconds`.
fn available(object: ObjectView<'_>, wanted: i64) -> Option<String> {
    if object.count("spec.minReadySeconds") <= 0 {
        return None;
    }
    at_least("availableReplicas", object.count("status.availableReplicas"), wanted)
}

fn rolled(object: ObjectView<'_>, wanted: i64) -> Option<String> {
    let partition = object.count("spec.updateStrategy.rollingUpdate.partition");
    let updated = object.count("status.updatedReplicas");
    if partition > 0 {
        return at_least("updatedReplicas", updated, wanted.saturating_sub(partition));
    }
    let [current, update] = ["status.currentRevision", "status.updateRevision"].map(|field| object.text(field));
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
    let on_delete = object.text("spec.updateStrategy.type") == "OnDelete";
    let updated = object.count("status.updatedNumberScheduled");
    let missing = (!on_delete)
        .then(|| at_least("updatedNumberScheduled", updated, wanted))
        .flatten()
        .or_else(|| at_least("numberReady", object.count("status.numberReady"), wanted))
        .or_else(|| at_least("numberAvailable", object.count("status.numberAvailable"), wanted));
    missing.map_or(ObjectReadiness::Ready, ObjectReadiness::pending)
}

pub(super) fn replica_set(object: ObjectView<'_>) -> ObjectReadiness {
    if let Some(verdict) = unobserved(object) {
        return verdict;
    }
    let wanted = object.number("spec.replicas").unwrap_or(1);
    let all = object.count("status.replicas");
    let missing = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
        .into_iter()
        .find_map(|field| at_least(field, object.count(&format!("status.{field}")), wanted))
        .or_else(|| (all > wanted).then(|| format!("`status.replicas` is {all}, {wanted} are awaited")));
    let Some(missing) = missing else { return ObjectReadiness::Ready };
    pending(object, missing)
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

fn at_least(field: &str, now: i64, wanted: i64) -> Option<String> {
    (now < wanted).then(|| format!("`status.{field}` is {now}, {wanted} are awaited"))
}
