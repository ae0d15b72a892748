//! Extensions of the Kubernetes API.

use crate::conditions::TerminalCondition;
use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table::{ContractRow, ContractRule};

pub(crate) const ROWS: &[ContractRow] = &[
    // apiextensions.k8s.io/v1 CustomResourceDefinitionConditionType: served when names are accepted and it is
    // established. A conflict of names stays until the other definition is deleted.
    ContractRow {
        name: "definition",
        group: "apiextensions.k8s.io",
        kinds: &["CustomResourceDefinition"],
        rule: ContractRule::Conditions(
            &["NamesAccepted", "Established"],
            &[TerminalCondition { kind: "NamesAccepted", status: "False", reasons: &[] }],
        ),
    },
    // apiregistration.k8s.io/v1 APIServiceConditionType.
    ContractRow {
        name: "available",
        group: "apiregistration.k8s.io",
        kinds: &["APIService"],
        rule: ContractRule::Conditions(&["Available"], &[]),
    },
    ContractRow {
        name: "signing",
        group: "certificates.k8s.io",
        kinds: &["CertificateSigningRequest"],
        rule: ContractRule::Own(signing),
    },
];

/// certificates.k8s.io/v1: approved, then signed. `Denied` and `Failed` are terminal.
fn signing(object: ObjectView<'_>) -> ObjectReadiness {
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
