//! Kinds that the table does not name.

use super::{crossplane, kro};
use crate::conditions;
use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;

/// By what its status looks like: `Synced` is Crossplane's, `InstanceManaged` is kro's, the rest is judged by `Ready`,
/// `Stalled` and `Reconciling`. *Invariant: an object that says nothing is pending.* Of a kind without a status nobody
/// can tell that it has none, so its document says `ready: ${true}`.
pub(crate) fn judge(object: ObjectView<'_>) -> ObjectReadiness {
    if object.condition("Synced").is_some() {
        return crossplane::managed(object);
    }
    if object.condition("InstanceManaged").is_some() {
        return kro::instance(object);
    }
    if object.at("status").is_none() {
        return ObjectReadiness::pending(
            "it has no status yet; for a kind that never has one, the document says `ready: ${true}`",
        );
    }
    conditions::judge(object, &["Ready"], &[])
}
