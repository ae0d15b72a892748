//! Kinds without a contract.

use super::{crossplane, kro};
use crate::readiness::conditions;
use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// Judges by the shape of the status: `Synced` is Crossplane, `InstanceManaged` is kro, others are judged by `Ready`,
/// `Stalled` and `Reconciling`. *Invariant: an object without a status is pending.* A kind that never has a status
/// cannot be recognized, so its document sets `ready: ${true}`.
pub(super) fn judge(object: ObjectView<'_>) -> ObjectReadiness {
    if object.condition("Synced").is_some() {
        return crossplane::managed(object);
    }
    if object.condition("InstanceManaged").is_some() {
        return kro::instance(object);
    }
    if object.at("status").is_none() {
        return ObjectReadiness::pending(
            "it has no status yet; for a kind without a status, set `ready: ${true}` in the document",
        );
    }
    conditions::judge(object, &["Ready"], &[])
}
