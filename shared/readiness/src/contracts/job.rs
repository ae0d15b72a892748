//! Jobs.

use crate::conditions;
use crate::object::Object;
use crate::table::{By, Row};
use crate::verdict::Verdict;

pub(crate) const ROWS: &[Row] = &[Row { name: "job", group: "batch", kinds: &["Job"], by: By::Own(job) }];

/// batch/v1 JobConditionType. Only `Complete` and `Failed` are ends: `SuccessCriteriaMet` and `FailureTarget` say which
/// end it will be while pods are still running (*Job termination and cleanup*). A Job has no `observedGeneration`; what
/// can be changed of one does not undo an end.
fn job(object: Object<'_>) -> Verdict {
    let holds = |kind| object.condition(kind).filter(|condition| condition.is("True"));
    if let Some(failed) = holds("Failed").filter(|failed| !failed.is_stale(object)) {
        return conditions::failed(failed);
    }
    if let Some(complete) = holds("Complete") {
        if complete.is_stale(object) {
            return Verdict::pending("the condition `Complete` is about an older generation");
        }
        return Verdict::Ready;
    }
    for coming in ["FailureTarget", "SuccessCriteriaMet"] {
        if let Some(coming) = holds(coming) {
            return Verdict::pending(format!("the condition {}; pods are still ending", coming.said()));
        }
    }
    if object.says("spec.suspend") || holds("Suspended").is_some() {
        return Verdict::pending("it is suspended");
    }
    let [active, succeeded, failed] =
        ["status.active", "status.succeeded", "status.failed"].map(|field| object.count(field));
    Verdict::pending(format!(
        "the condition `Complete` is not there yet; pods: {active} active, {succeeded} succeeded, {failed} failed"
    ))
}
