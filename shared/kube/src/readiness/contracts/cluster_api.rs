//! Cluster API, contracts v1beta1 and v1beta2.
//!
//! Source: *Provider contracts* of the Cluster API book. The status shows the contract: `status.initialization` is
//! v1beta2; `status.ready` and `status.initialized` are v1beta1, which ends in April 2027. All of these are
//! **latches**: they stay true once the object was initialized, even if it is not ready now. `failureReason` and
//! `failureMessage` are terminal in v1beta1. v1beta2 has no terminal failures and keeps them below
//! `status.deprecated.v1beta1`.

use crate::readiness::conditions;
use crate::readiness::object::{ObjectReadiness, ObjectView};

/// Judges by a latch: `status.initialization.NEW`, or in v1beta1 the field `old`, is true, and the field `also` exists.
pub(super) fn latched(object: ObjectView<'_>, new: &str, old: &str, also: Option<&str>) -> ObjectReadiness {
    if let Some(verdict) = ended(object).or_else(|| paused(object)) {
        return verdict;
    }
    let field = match object.at("status.initialization").is_some() || object.version() == "v1beta2" {
        true => format!("status.initialization.{new}"),
        false => old.to_owned(),
    };
    if !object.says(&field) {
        return not_yet(object, &field);
    }
    match also.filter(|also| object.text(also).is_empty()) {
        Some(also) => ObjectReadiness::pending(format!("`{also}` does not exist yet")),
        None => ObjectReadiness::Ready,
    }
}

/// Returns pending, with the message of the object's own `Ready` if it is not true.
fn not_yet(object: ObjectView<'_>, field: &str) -> ObjectReadiness {
    let ready = object.condition("Ready").filter(|ready| !ready.is("True"));
    let more = ready.map(|ready| format!("; {}", ready.describe())).unwrap_or_default();
    ObjectReadiness::pending(format!("`{field}` is not true yet{more}"))
}

/// Judges an IPAM claim. It is ready when it has an address.
pub(super) fn address(object: ObjectView<'_>) -> ObjectReadiness {
    let field = "status.addressRef.name";
    let missing = object.text(field).is_empty().then(|| not_yet(object, field));
    paused(object).or(missing).unwrap_or(ObjectReadiness::Ready)
}

/// Judges an object of Cluster API itself by its current state: `Available` of v1beta2 (in `status.v1beta2` while the
/// API is v1beta1), otherwise `Ready` and the phase.
pub(super) fn core(object: ObjectView<'_>) -> ObjectReadiness {
    if let Some(verdict) = ended(object).or_else(|| paused(object)) {
        return verdict;
    }
    let phase = object.text("status.phase");
    if phase == "Failed" {
        return ObjectReadiness::failed("Failed", "`status.phase` is `Failed`");
    }
    let path = match object.version() == "v1beta2" {
        true => Some("status.conditions"),
        false => object.at("status.v1beta2.conditions").map(|_| "status.v1beta2.conditions"),
    };
    if let Some(path) = path {
        let missing = conditions::first_missing(object, object.conditions_at(path), &["Available"]);
        return missing.unwrap_or(ObjectReadiness::Ready);
    }
    let wanted = if object.kind() == "Cluster" { "Provisioned" } else { "Running" };
    if !phase.is_empty() && phase != wanted {
        return ObjectReadiness::awaits("status.phase", phase, wanted);
    }
    conditions::judge(object, &["Ready"])
}

fn ended(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    let [reason, message] = ["status.failureReason", "status.failureMessage"].map(|field| object.text(field));
    if reason.is_empty() && message.is_empty() {
        return None;
    }
    Some(ObjectReadiness::failed(if reason.is_empty() { "Failed" } else { reason }, message))
}

/// Returns pending for a paused object, whose status is stale. Any value of the annotation counts.
fn paused(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    let held = object.annotation("cluster.x-k8s.io/paused").is_some()
        || object.says("spec.paused")
        || object.condition("Paused").is_some_and(|paused| paused.is("True"));
    held.then(|| ObjectReadiness::pending("it is paused"))
}
