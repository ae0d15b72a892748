//! Checks that the status of an object describes its current spec.
//!
//! The API server increments `metadata.generation` with every change of the spec. A controller writes the observed one
//! to `status.observedGeneration` (Kubernetes API conventions, *Typical status properties*). Only equality counts, as
//! in kstatus: a number from before a restore may be higher.

use serde_json::Value;

use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// Returns pending if the whole status describes another generation.
pub(crate) fn stale(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    let now = object.generation()?;
    let seen = observed(object)?;
    (seen != now).then(|| unseen(seen, now))
}

/// Returns pending if this generation is not observed yet. Without a number of the status, the newest condition
/// counts. Used for rules of a document, which may read any field.
pub(crate) fn stale_for_rules(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    if observed(object).is_some() {
        return stale(object);
    }
    let now = object.generation()?;
    let seen = object.conditions().filter_map(|condition| condition.observed).max()?;
    (seen != now).then(|| unseen(seen, now))
}

/// Returns pending if the controller must write an observed generation and has not.
pub(crate) fn unobserved(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    if observed(object).is_none() {
        return Some(ObjectReadiness::pending(
            "`status.observedGeneration` does not exist yet: no controller has observed the object",
        ));
    }
    stale(object)
}

/// Returns the observed generation. Argo Rollouts writes the number as text, and a hash in versions before 1.0.
fn observed(object: ObjectView<'_>) -> Option<i64> {
    match object.at("status.observedGeneration")? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn unseen(seen: i64, now: i64) -> ObjectReadiness {
    ObjectReadiness::pending(format!("generation {now} is not observed yet, the status is about {seen}"))
}
