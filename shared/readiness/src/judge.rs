//! The order of the questions.

use serde_json::Value;

use crate::generation;
use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table;

/// A rule of the document, over this observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleState {
    #[default]
    Absent,
    Holds,
    /// It does not hold, or reads fields that are not there yet.
    DoesNotHold,
}

/// What a document says of its object. `ready` replaces the contract of the kind as a whole, its failures too: who
/// writes one writes `fail` beside it, or relies on the deadline. `fail` alone only adds to what the contract calls
/// failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentRules {
    pub ready: RuleState,
    /// When it has failed; asked first.
    pub fail: RuleState,
}

/// What an observation of an applied object says. `object` is what the API server answered, `None` for not found;
/// `uid` the one that the apply returned, `None` where nobody knows it.
pub fn judge(object: Option<&Value>, uid: Option<&str>, rules: DocumentRules) -> ObjectReadiness {
    let Some(object) = present(object, uid) else { return ObjectReadiness::Gone };
    if object.at("metadata.deletionTimestamp").is_some() {
        return ObjectReadiness::failed("Terminating", "it is being deleted");
    }
    if rules.fail == RuleState::Holds {
        return ObjectReadiness::failed("FailRule", "its `fail` holds");
    }
    match rules.ready {
        RuleState::Absent => generation::stale(object).unwrap_or_else(|| table::judge(object)),
        RuleState::Holds => generation::stale_for_rules(object).unwrap_or(ObjectReadiness::Ready),
        RuleState::DoesNotHold => generation::stale_for_rules(object)
            .unwrap_or_else(|| ObjectReadiness::pending("its `ready` does not hold yet")),
    }
}

/// What an observation of a deleted object says: gone, or pending on its finalizers. `uid` as in [`judge`]; another
/// object of the same name is not the one that was deleted.
pub fn deletion(object: Option<&Value>, uid: Option<&str>) -> ObjectReadiness {
    let Some(object) = present(object, uid) else { return ObjectReadiness::Gone };
    if object.at("metadata.deletionTimestamp").is_none() {
        return ObjectReadiness::pending("its deletion has not begun");
    }
    let finalizers: Vec<_> = object.list("metadata.finalizers").iter().filter_map(Value::as_str).collect();
    if finalizers.is_empty() {
        return ObjectReadiness::pending("it is ending");
    }
    ObjectReadiness::pending(format!("finalizers hold it: {}", finalizers.join(", ")))
}

fn present<'a>(object: Option<&'a Value>, uid: Option<&str>) -> Option<ObjectView<'a>> {
    let object = ObjectView(object?);
    uid.is_none_or(|uid| object.text("metadata.uid") == uid).then_some(object)
}
