use crate::readiness::conditions;
use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// batch/v1 JobConditionType. Only `Complete` and `Failed` are terminal: `SuccessCriteriaMet` and `FailureTarget`
/// announce the end while pods still run (*Job termination and cleanup*). A Job has no `observedGeneration`, and its
/// mutable fields cannot undo an end.
pub(super) fn job(object: ObjectView<'_>) -> ObjectReadiness {
    let holds = |kind| object.condition(kind).filter(|condition| condition.is("True"));
    if let Some(failed) = holds("Failed").filter(|failed| !failed.is_stale(object)) {
        return conditions::failed(failed);
    }
    if let Some(complete) = holds("Complete") {
        if complete.is_stale(object) {
            return ObjectReadiness::pending("the condition `Complete` is about an older generation");
        }
        return ObjectReadiness::Ready;
    }
    for coming in ["FailureTarget", "SuccessCriteriaMet"] {
        if let Some(coming) = holds(coming) {
            return ObjectReadiness::pending(format!("the condition {}; pods are still ending", coming.describe()));
        }
    }
    if object.says("spec.suspend") || holds("Suspended").is_some() {
        return ObjectReadiness::pending("it is suspended");
    }
    let [active, succeeded, failed] =
        ["status.active", "status.succeeded", "status.failed"].map(|field| object.count(field));
    ObjectReadiness::pending(format!(
        "the condition `Complete` does not exist yet; pods: {active} active, {succeeded} succeeded, {failed} failed"
    ))
}
