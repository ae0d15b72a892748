use crate::readiness::conditions;
use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// Judges a definition. With claim names, it must also be offered.
pub(super) fn definition(object: ObjectView<'_>) -> ObjectReadiness {
    let wanted: &[&str] = match object.at("spec.claimNames") {
        Some(_) => &["Established", "Offered"],
        None => &["Established"],
    };
    conditions::judge(object, wanted, &[])
}

/// `Synced` (the last reconcile succeeded) **and** `Ready` (available). Neither has a terminal value: `Synced` false
/// is `ReconcileError`, which is retried, or `ReconcilePaused`; `Ready` false is `Creating`, `Deleting` or
/// `Unavailable`.
pub(super) fn managed(object: ObjectView<'_>) -> ObjectReadiness {
    if object.annotation("crossplane.io/paused") == Some("true") {
        return ObjectReadiness::pending("paused by the annotation `crossplane.io/paused`");
    }
    conditions::judge(object, &["Synced", "Ready"], &[])
}
