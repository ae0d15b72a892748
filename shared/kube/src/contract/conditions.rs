//! Evaluates conditions and observed generations (Kubernetes API conventions, *Typical status properties*).
//!
//! The API server increments `metadata.generation` with every change of the spec. A controller writes the observed one
//! to `status.observedGeneration`. Only equality counts, as in kstatus: a number from before a restore may be higher.

use serde_json::Value;

use crate::contract::object::{ObjectReadiness, ObjectView, StatusCondition};

/// Evaluates the two conditions of kstatus that exist only in an abnormal state: `Stalled` is failed, `Reconciling` pending.
pub(crate) fn abnormal(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    let current = |kind| object.condition(kind).filter(|it| it.is("True") && !it.is_stale(object));
    let stalled = current("Stalled").map(|it| ObjectReadiness::failed(it.word(), it.message));
    let reconciling = || current("Reconciling").map(|it| format!("the condition {}", it.describe()));
    stalled.or_else(|| reconciling().map(ObjectReadiness::pending))
}

/// Returns pending for the first expected condition that is not true for this generation, or *(invariant)* missing.
pub(crate) fn first_missing<'a>(
    object: ObjectView<'_>,
    conditions: impl Iterator<Item = StatusCondition<'a>>,
    wanted: &[impl AsRef<str>],
) -> Option<ObjectReadiness> {
    let conditions: Vec<_> = conditions.collect();
    wanted.iter().map(AsRef::as_ref).find_map(|kind| {
        let Some(condition) = conditions.iter().find(|condition| condition.kind == kind) else {
            return Some(absent(kind, &conditions));
        };
        if condition.is_stale(object) {
            let seen = condition.observed.unwrap_or_default();
            let now = object.generation().unwrap_or_default();
            return Some(ObjectReadiness::pending(format!(
                "the condition `{kind}` is about generation {seen}, {now} is not observed yet"
            )));
        }
        (!condition.is("True")).then(|| ObjectReadiness::pending(format!("the condition {}", condition.describe())))
    })
}

fn absent(kind: &str, conditions: &[StatusCondition<'_>]) -> ObjectReadiness {
    if conditions.is_empty() {
        return ObjectReadiness::pending(format!("there are no conditions yet, `{kind}` is awaited"));
    }
    let existing: Vec<_> = conditions.iter().map(StatusCondition::describe).collect();
    ObjectReadiness::pending(format!("the condition `{kind}` does not exist yet; {}", existing.join("; ")))
}

/// Returns pending if the whole status describes another generation.
pub(crate) fn stale(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    unless_current(object, observed(object)?)
}

/// Returns pending if this generation is not observed yet. Without a number of the status, the newest condition
/// counts. Used for rules of a document, which may read any field.
pub(crate) fn stale_for_rules(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    let newest = || object.conditions().filter_map(|condition| condition.observed).max();
    unless_current(object, observed(object).or_else(newest)?)
}

/// Returns the observed generation. Argo Rollouts writes the number as text, and a hash in versions before 1.0.
fn observed(object: ObjectView<'_>) -> Option<i64> {
    match object.at("status.observedGeneration")? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn unless_current(object: ObjectView<'_>, seen: i64) -> Option<ObjectReadiness> {
    let now = object.generation().filter(|now| *now != seen)?;
    Some(ObjectReadiness::pending(format!("generation {now} is not observed yet, the status is about {seen}")))
}
