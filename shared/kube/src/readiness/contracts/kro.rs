//! kro: graphs and their instances.
//!
//! Source: kro `api/v1alpha1/{instance_state,resourcegraphdefinition_types}.go`. Instances have the group `kro.run`
//! unless their graph names another. Those are recognized by a condition (see `unknown`).

use crate::readiness::conditions;
use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

pub(super) fn graph(object: ObjectView<'_>) -> ObjectReadiness {
    stated(object, "Active")
}

/// Judges an instance. `ERROR` is retried, `FAILED` (before 0.5) is terminal.
pub(super) fn instance(object: ObjectView<'_>) -> ObjectReadiness {
    if object.text("status.state") == "FAILED" {
        let message = object.conditions().find(|condition| condition.is("False")).map(|it| it.message);
        return ObjectReadiness::failed("FAILED", message.unwrap_or_default());
    }
    stated(object, "ACTIVE")
}

/// The state has no generation, so a `Ready` of this generation must be true too. Versions before 0.3 have only the
/// state.
fn stated(object: ObjectView<'_>, wanted: &str) -> ObjectReadiness {
    if object.conditions().next().is_some()
        && let Some(missing) = conditions::first_missing(object, object.conditions(), &["Ready"])
    {
        return missing;
    }
    let state = object.text("status.state");
    if state == wanted { ObjectReadiness::Ready } else { ObjectReadiness::awaits("status.state", state, wanted) }
}
