//! Further controllers: Flux, Gateway API, Tekton, cloud operators.

use crate::readiness::conditions;
use crate::readiness::generation::unobserved;
use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// Flux API conventions: `Ready` of this generation, `Stalled` after a terminal error, `Reconciling` during work.
/// `flux` itself compares `status.observedGeneration`, which is -1 at first.
pub(super) fn flux(object: ObjectView<'_>) -> ObjectReadiness {
    let verdict = unobserved(object).unwrap_or_else(|| conditions::judge(object, &["Ready"], &[]));
    match verdict {
        ObjectReadiness::Pending { reason: why } if object.says("spec.suspend") => {
            ObjectReadiness::pending(format!("it is suspended; {why}"))
        }
        verdict => verdict,
    }
}

pub(super) fn flux_static(object: ObjectView<'_>) -> ObjectReadiness {
    if object.conditions().next().is_some() { flux(object) } else { ObjectReadiness::Ready }
}

/// A repository of the type `oci` has no status.
pub(super) fn flux_repository(object: ObjectView<'_>) -> ObjectReadiness {
    if object.text("spec.type") == "oci" { flux_static(object) } else { flux(object) }
}

pub(super) fn azure(object: ObjectView<'_>) -> ObjectReadiness {
    match object.condition("Ready") {
        Some(ready) if ready.is("False") && ready.severity == "Error" && !ready.is_stale(object) => {
            conditions::failed(ready)
        }
        _ => conditions::judge(object, &["Ready"], &[]),
    }
}
