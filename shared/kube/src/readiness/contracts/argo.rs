//! Argo: workflows, applications, rollouts.

use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// Argo CD: synced **and** healthy, as in `argocd app wait`. A failed sync may be repeated by its policy, and a
/// degraded application may recover, so both are pending. The compared revision is the application's, not a
/// generation.
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
