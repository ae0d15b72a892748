//! Judges Kubernetes objects: pending, ready, failed or gone.
//!
//! [`judge`] judges an applied object, [`deletion`] describes a deleted one. Both are pure functions of one observation. The
//! caller handles deadlines and retries, reads the object, and evaluates the document's own `ready` and `fail`, which
//! arrive as [`DocumentRules`].
//!
//! The checks in their order:
//!
//! 1. The object is missing or has another UID: gone.
//! 2. It has a `metadata.deletionTimestamp`: failed.
//! 3. The document's `fail` is true: failed.
//! 4. Its generation is not observed yet, by the status or by a condition: pending.
//! 5. The document has a `ready`: ready if it is true, otherwise pending.
//! 6. The contract of its group and kind. Without a contract: `Stalled` is failed, `Reconciling` is pending, `Ready` is
//!    ready.
//!
//! Intended differences from kstatus:
//!
//! - **An object without a status or conditions is pending.** kstatus calls it current. Only the kinds whose
//!   contracts have no rules are ready at once.
//! - A running or suspended Job is pending. A failed Pod is failed.
//! - A load balancer without an address is pending.
//! - An unschedulable Pod is pending, because a node may become available.
//! - `Ready: False` is pending, because it does not distinguish slow from failed.
mod causes;
mod conditions;
mod facts;
mod object;
mod rules;

pub use causes::{CauseEnd, ObjectCause};
pub use object::{MAX_TEXT, ObjectReadiness};
pub use rules::{ContractTable, PodOwner, built_in};

use serde_json::Value;

use object::{ObjectView, shown};

/// The results of the rules of a document, `None` without the rule. A rule that reads fields that do not exist yet is false.
/// `ready` replaces the contract of the kind, including its failures, so the author adds `fail` or relies on the deadline.
/// `fail` without `ready` adds to the failures of the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentRules {
    pub ready: Option<bool>,
    /// Checked first.
    pub fail: Option<bool>,
}

/// The reason of an object whose rule `fail` holds.
pub const FAIL_RULE: &str = "FailRule";
/// The reason of an object whose rule `ready` does not hold.
pub const READY_RULE: &str = "its `ready` is not true yet";

/// Judges an applied object, if the API server has found it. `uid` is the UID from the apply, if it is known.
pub fn judge(
    contracts: &ContractTable,
    object: Option<&Value>,
    uid: Option<&str>,
    rules: DocumentRules,
) -> ObjectReadiness {
    let object = object.map(ObjectView);
    let present = object.filter(|object| uid.is_none_or(|uid| object.text("metadata.uid") == uid));
    let Some(object) = present else { return ObjectReadiness::Gone };
    if object.at("metadata.deletionTimestamp").is_some() {
        return ObjectReadiness::failed("Terminating", "it is being deleted");
    }
    if rules.fail == Some(true) {
        return ObjectReadiness::failed(FAIL_RULE, "its `fail` is true");
    }
    match rules.ready {
        None => conditions::stale(object).unwrap_or_else(|| contracts.judge(object)),
        Some(true) => conditions::stale_for_rules(object).unwrap_or(ObjectReadiness::Ready),
        Some(false) => conditions::stale_for_rules(object).unwrap_or_else(|| ObjectReadiness::pending(READY_RULE)),
    }
}

/// Returns true for an object that runs once and has failed.
pub fn is_failed_run(contracts: &ContractTable, object: &Value) -> bool {
    let readiness = || judge(contracts, Some(object), None, DocumentRules::default());
    contracts.runs_once(ObjectView(object)) && matches!(readiness(), ObjectReadiness::Failed { .. })
}

/// Describes what an object that is being deleted waits for: its finalizers, and the content of a namespace.
pub fn deletion(object: &Value) -> String {
    let object = ObjectView(object);
    let finalizers = object.list("metadata.finalizers").iter().filter_map(Value::as_str);
    let finalizers: Vec<_> = finalizers.map(|finalizer| describe_finalizer(object, finalizer)).collect();
    let ending = match finalizers.is_empty() {
        true => "it is terminating".to_owned(),
        false => format!("waiting for {}", finalizers.join(", and ")),
    };
    let content = object.conditions().filter(|it| object.kind() == "Namespace" && it.is("True"));
    shown(&content.fold(ending, |ending, it| format!("{ending}; {}", it.message)))
}

/// Describes a finalizer with the client that set it, because that client or its user can remove it.
fn describe_finalizer(object: ObjectView<'_>, finalizer: &str) -> String {
    if finalizer == "foregroundDeletion" {
        return "the deletion of the objects that it owns".to_owned();
    }
    let key = format!("v:{}", Value::from(finalizer));
    let is_setter = |entry: &&Value| !entry["fieldsV1"]["f:metadata"]["f:finalizers"][&key].is_null();
    match object.list("metadata.managedFields").iter().find(is_setter).and_then(|entry| entry["manager"].as_str()) {
        Some(manager) => format!("the finalizer `{finalizer}`, which `{manager}` set"),
        None => format!("the finalizer `{finalizer}`"),
    }
}

#[cfg(test)]
mod tests;
