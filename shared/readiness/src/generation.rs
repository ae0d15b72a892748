//! Whether what an object says is about what it was asked for.
//!
//! The API server counts `metadata.generation` up with every change of the spec; a controller notes in
//! `status.observedGeneration` which one it has seen (Kubernetes API conventions, *Typical status properties*). Equal is
//! the only answer that counts: kstatus compares so, and a number from before a restore may be higher.

use serde_json::Value;

use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;

/// Pending if the status as a whole is about another generation.
pub(crate) fn stale(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    let now = object.generation()?;
    let seen = observed(object)?;
    (seen != now).then(|| unseen(seen, now))
}

/// Pending if nobody has looked at this generation yet, as far as anybody says: where the status has no number of its
/// own, the newest of the conditions'. For rules of a document, of which nobody knows what they read.
pub(crate) fn stale_for_rules(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    if observed(object).is_some() {
        return stale(object);
    }
    let now = object.generation()?;
    let seen = object.conditions().filter_map(|condition| condition.observed).max()?;
    (seen != now).then(|| unseen(seen, now))
}

/// Pending if the controller has to say what it has seen and has not said it.
pub(crate) fn unobserved(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    if observed(object).is_none() {
        return Some(ObjectReadiness::pending("`status.observedGeneration` is not there yet: nobody has looked at it"));
    }
    stale(object)
}

/// Argo Rollouts writes its number as text, and a hash in versions before 1.0.
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
