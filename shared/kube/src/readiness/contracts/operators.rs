//! Operators: Argo, Crossplane, kro, Flux, and kinds without a contract.

use crate::readiness::conditions::{self, unobserved};
use crate::readiness::object::{ObjectReadiness, ObjectView};

/// Argo CD: synced **and** healthy, as in `argocd app wait`. A failed sync may be repeated by its policy, and a
/// degraded application may recover, so both are pending. The compared revision is not a generation.
pub(super) fn application(object: ObjectView<'_>) -> ObjectReadiness {
    let operation = object.text("status.operationState.phase");
    if ["Failed", "Error"].contains(&operation) && object.text("status.sync.status") != "Synced" {
        let message = object.text("status.operationState.message");
        return ObjectReadiness::pending(format!("its last sync is `{operation}`: {message}"));
    }
    if operation == "Running" || object.at("operation").is_some() {
        return ObjectReadiness::pending("a sync is in progress");
    }
    for (field, wanted) in [("status.sync.status", "Synced"), ("status.health.status", "Healthy")] {
        if object.text(field) != wanted {
            return ObjectReadiness::awaits(field, object.text(field), wanted);
        }
    }
    ObjectReadiness::Ready
}

/// Judges a definition. With claim names, it must also be offered.
pub(super) fn crossplane_definition(object: ObjectView<'_>) -> ObjectReadiness {
    let wanted: &[&str] = match object.at("spec.claimNames") {
        Some(_) => &["Established", "Offered"],
        None => &["Established"],
    };
    conditions::judge(object, wanted)
}

/// `Synced` (the last reconcile succeeded) **and** `Ready` (available). Neither is terminal: `Synced` false is
/// `ReconcileError`, which is retried, or `ReconcilePaused`; `Ready` false is `Creating`, `Deleting` or `Unavailable`.
fn crossplane_managed(object: ObjectView<'_>) -> ObjectReadiness {
    if object.annotation("crossplane.io/paused") == Some("true") {
        return ObjectReadiness::pending("paused by the annotation `crossplane.io/paused`");
    }
    conditions::judge(object, &["Synced", "Ready"])
}

/// kro, `api/v1alpha1/{instance_state,resourcegraphdefinition_types}.go`. Instances have the group `kro.run` unless their
/// graph names another. Those are recognized by a condition (see [`unknown`]).
pub(super) fn kro_graph(object: ObjectView<'_>) -> ObjectReadiness {
    kro_stated(object, "Active")
}

/// Judges an instance. `ERROR` is retried, `FAILED` (before 0.5) is terminal.
pub(super) fn kro_instance(object: ObjectView<'_>) -> ObjectReadiness {
    if object.text("status.state") == "FAILED" {
        let message = object.conditions().find(|condition| condition.is("False")).map(|it| it.message);
        return ObjectReadiness::failed("FAILED", message.unwrap_or_default());
    }
    kro_stated(object, "ACTIVE")
}

/// The state has no generation, so a `Ready` of this generation must be true, which versions before 0.3 lack.
fn kro_stated(object: ObjectView<'_>, wanted: &str) -> ObjectReadiness {
    if object.conditions().next().is_some()
        && let Some(missing) = conditions::first_missing(object, object.conditions(), &["Ready"])
    {
        return missing;
    }
    let state = object.text("status.state");
    if state == wanted { ObjectReadiness::Ready } else { ObjectReadiness::awaits("status.state", state, wanted) }
}

/// Flux API conventions: `Ready` of this generation, `Stalled` after a terminal error, `Reconciling` during work.
/// `flux` itself compares `status.observedGeneration`, which is -1 at first.
pub(super) fn flux(object: ObjectView<'_>) -> ObjectReadiness {
    let verdict = unobserved(object).unwrap_or_else(|| conditions::judge(object, &["Ready"]));
    match verdict {
        ObjectReadiness::Pending { reason: why } if object.says("spec.suspend") => {
            ObjectReadiness::pending(format!("it is suspended; {why}"))
        }
        verdict => verdict,
    }
}

/// A repository of the type `oci` has no status.
pub(super) fn flux_static(object: ObjectView<'_>) -> ObjectReadiness {
    let is_static = object.kind() != "HelmRepository" || object.text("spec.type") == "oci";
    if is_static && object.conditions().next().is_none() { ObjectReadiness::Ready } else { flux(object) }
}

/// Judges a kind without a contract by the shape of the status: `Synced` is Crossplane, `InstanceManaged` is kro, others
/// are judged by `Ready`, `Stalled` and `Reconciling`. *Invariant: an object without a status is pending.* A kind that never
/// has a status cannot be recognized, so its document sets `ready: ${true}`.
pub(super) fn unknown(object: ObjectView<'_>) -> ObjectReadiness {
    if object.condition("Synced").is_some() {
        return crossplane_managed(object);
    }
    if object.condition("InstanceManaged").is_some() {
        return kro_instance(object);
    }
    if object.at("status").is_none() {
        return ObjectReadiness::pending(
            "it has no status yet; for a kind without a status, set `ready: ${true}` in the document",
        );
    }
    conditions::judge(object, &["Ready"])
}
