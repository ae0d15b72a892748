//! What extends the API.

use crate::conditions::End;
use crate::object::Object;
use crate::table::{By, Row};
use crate::verdict::Verdict;

pub(crate) const ROWS: &[Row] = &[
    // apiextensions.k8s.io/v1 CustomResourceDefinitionConditionType: served once its names are accepted and it is
    // established; a conflict of names stays until another definition goes.
    Row {
        name: "definition",
        group: "apiextensions.k8s.io",
        kinds: &["CustomResourceDefinition"],
        by: By::Conditions(
            &["NamesAccepted", "Established"],
            &[End { kind: "NamesAccepted", status: "False", reasons: &[] }],
        ),
    },
    // apiregistration.k8s.io/v1 APIServiceConditionType.
    Row {
        name: "available",
        group: "apiregistration.k8s.io",
        kinds: &["APIService"],
        by: By::Conditions(&["Available"], &[]),
    },
    Row {
        name: "signing",
        group: "certificates.k8s.io",
        kinds: &["CertificateSigningRequest"],
        by: By::Own(signing),
    },
];

/// certificates.k8s.io/v1: approved by somebody, then signed; `Denied` and `Failed` are final.
fn signing(object: Object<'_>) -> Verdict {
    for end in ["Denied", "Failed"] {
        if let Some(condition) = object.condition(end).filter(|condition| condition.is("True")) {
            return Verdict::failed(end, condition.message);
        }
    }
    if object.text("status.certificate").is_empty() {
        return Verdict::pending("`status.certificate` is not there yet");
    }
    Verdict::Ready
}
