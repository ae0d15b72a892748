//! Verdicts from conditions (Kubernetes API conventions, *Typical status properties*).

use crate::object::{Condition, Object};
use crate::verdict::Verdict;

/// A condition that ends the waiting.
pub(crate) struct End {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    /// Only with one of these reasons; with any if there are none.
    pub(crate) reasons: &'static [&'static str],
}

/// Failed by one of the ends or by `Stalled`, pending while `Reconciling`, ready when all of `wanted` are true. Each has
/// to be about this generation.
pub(crate) fn judge(object: Object<'_>, wanted: &[&str], ends: &[End]) -> Verdict {
    ended(object, ends)
        .or_else(|| abnormal(object))
        .or_else(|| first_missing(object, object.conditions(), wanted))
        .unwrap_or(Verdict::Ready)
}

/// Failed if a condition says so. What is said of an older generation does not count.
pub(crate) fn ended(object: Object<'_>, ends: &[End]) -> Option<Verdict> {
    ends.iter().find_map(|end| {
        let condition = object.condition(end.kind).filter(|condition| condition.is(end.status))?;
        let meant = end.reasons.is_empty() || end.reasons.contains(&condition.reason);
        (meant && !condition.is_stale(object)).then(|| failed(condition))
    })
}

/// The two conditions of kstatus that are only there when something is not as it should be.
pub(crate) fn abnormal(object: Object<'_>) -> Option<Verdict> {
    let current = |kind| object.condition(kind).filter(|it| it.is("True") && !it.is_stale(object));
    if let Some(stalled) = current("Stalled") {
        return Some(failed(stalled));
    }
    current("Reconciling")
        .map(|reconciling| Verdict::pending(format!("the condition {}", reconciling.said())))
}

/// Pending on the first of the wanted conditions that is not true for this generation. *Invariant: a condition that is
/// not there is pending.*
pub(crate) fn first_missing<'a>(
    object: Object<'_>,
    conditions: impl Iterator<Item = Condition<'a>>,
    wanted: &[&str],
) -> Option<Verdict> {
    let conditions: Vec<_> = conditions.collect();
    wanted.iter().find_map(|kind| {
        let Some(condition) = conditions.iter().find(|condition| condition.kind == *kind) else {
            return Some(absent(kind, &conditions));
        };
        if condition.is_stale(object) {
            let seen = condition.observed.unwrap_or_default();
            let now = object.generation().unwrap_or_default();
            return Some(Verdict::pending(format!(
                "the condition `{kind}` is about generation {seen}, {now} is not observed yet"
            )));
        }
        (!condition.is("True")).then(|| Verdict::pending(format!("the condition {}", condition.said())))
    })
}

fn absent(kind: &str, conditions: &[Condition<'_>]) -> Verdict {
    if conditions.is_empty() {
        return Verdict::pending(format!("there are no conditions yet, `{kind}` is awaited"));
    }
    let there: Vec<_> = conditions.iter().map(Condition::said).collect();
    Verdict::pending(format!("the condition `{kind}` is not there yet; {}", there.join("; ")))
}

pub(crate) fn failed(condition: Condition<'_>) -> Verdict {
    let reason = if condition.reason.is_empty() { condition.kind } else { condition.reason };
    Verdict::failed(reason, condition.message)
}
