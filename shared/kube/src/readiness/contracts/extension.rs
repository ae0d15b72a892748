//! Extensions of the Kubernetes API.

use crate::readiness::object::ObjectView;
use crate::readiness::object_readiness::ObjectReadiness;

/// certificates.k8s.io/v1: approved, then signed. `Denied` and `Failed` are terminal.
pub(super) fn signing(object: ObjectView<'_>) -> ObjectReadiness {
    for end in ["Denied", "Failed"] {
        if let Some(condition) = object.condition(end).filter(|condition| condition.is("True")) {
            return ObjectReadiness::failed(end, condition.message);
        }
    }
    if object.text("status.certificate").is_empty() {
        return ObjectReadiness::pending("`status.certificate` does not exist yet");
    }
    ObjectReadiness::Ready
}
