//! Verdicts from conditions (Kubernetes API conventions, *Typical status properties*).

use crate::object::{ObjectView, StatusCondition};
use crate::object_readiness::ObjectReadiness;

/// A condition that ends the waiting.
pub(crate) struct TerminalCondition {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    /// Only with one of these reasons; with any if there are none.
    pub(crate) reasons: &'static [&'static str],
}

/// Failed by one of the ends or by `Stalled`, pending while `Reconciling`, ready when all of `wanted` are true. Each has
/// to be about this generation.
pub(crate) fn judge(object: ObjectView<'_>, wanted: &[&str], ends: &[TerminalCondition]) -> ObjectReadiness {
    ended(object, ends)
        .or_else(|| abnormal(object))
        .or_else(|| first_missing(object, object.conditions(), wanted))
        .unwrap_or(ObjectReadiness::Ready)
}

/// Failed if a condition says so. What is said of an older generation does not count.
pub(crate) fn ended(object: ObjectView<'_>, ends: &[TerminalCondition]) -> Option<ObjectReadiness> {
    ends.iter().find_map(|end| {
        let condition = object.condition(end.kind).filter(|condition| condition.is(end.status))?;
        let meant = end.reasons.is_empty() || end.reasons.contains(&condition.reason);
        (meant && !condition.is_stale(object)).then(|| failed(condition))
    })
}

/// The two conditions of kstatus that are only there when something is not as it should be.
pub(crate) fn abnormal(object: ObjectView<'_>) -> Option<ObjectReadiness> {
    let current = |kind| object.condition(kind).filter(|it| it.is("True") && !it.is_stale(object));
    if let Some(stalled) = current("Stalled") {
        return Some(failed(stalled));
    }
    current("Reconciling")
        .map(|reconciling| ObjectReadiness::pending(format!("the condition {}", reconciling.describe())))
}

/// Pending on the first of the wanted conditions that is not true for this generation. *Invariant: a condition that is
/// not there is pending.*
pub(crate) fn first_missing<'a>(
    object: ObjectView<'_>,
    conditions: impl Iterator<Item = StatusCondition<'a>>,
    wanted: &[&str],
) -> Option<ObjectReadiness> {
    let conditions: Vec<_> = conditions.collect();
    wanted.iter().find_map(|kind| {
        let Some(condition) = conditions.iter().find(|condition| condition.kind == *kind) else {
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
    let there: Vec<_> = conditions.iter().map(StatusCondition::describe).collect();
    ObjectReadiness::pending(format!("the condition `{kind}` is not there yet; {}", there.join("; ")))
}

pub(crate) fn failed(condition: StatusCondition<'_>) -> ObjectReadiness {
    let reason = if condition.reason.is_empty() { condition.kind } else { condition.reason };
    ObjectReadiness::failed(reason, condition.message)
}
