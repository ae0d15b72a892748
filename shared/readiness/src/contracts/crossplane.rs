//! Crossplane: packages and definitions. Managed resources and composites are of any group; they are known by their
//! condition `Synced` (see `unknown`).
//!
//! Source: crossplane-runtime `apis/common/v1/condition.go`, crossplane `apis/pkg/v1`, `apis/apiextensions/v1`.

use crate::conditions;
use crate::object::Object;
use crate::table::{By, Row};
use crate::verdict::Verdict;

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "crossplane-package",
        group: "pkg.crossplane.io",
        kinds: &["Configuration", "Function", "Provider"],
        by: By::Conditions(&["Installed", "Healthy"], &[]),
    },
    Row {
        name: "crossplane-definition",
        group: "apiextensions.crossplane.io",
        kinds: &["CompositeResourceDefinition"],
        by: By::Own(definition),
    },
    Row {
        name: "applied",
        group: "apiextensions.crossplane.io",
        kinds: &["Composition", "EnvironmentConfig"],
        by: By::Applied,
    },
    Row {
        name: "applied",
        group: "pkg.crossplane.io",
        kinds: &["DeploymentRuntimeConfig", "ImageConfig"],
        by: By::Applied,
    },
    Row {
        name: "applied",
        group: "*.crossplane.io",
        kinds: &["ClusterProviderConfig", "ProviderConfig"],
        by: By::Applied,
    },
    Row {
        name: "applied",
        group: "*.upbound.io",
        kinds: &["ClusterProviderConfig", "ProviderConfig"],
        by: By::Applied,
    },
];

/// Offered as well where claims are named.
fn definition(object: Object<'_>) -> Verdict {
    let wanted: &[&str] = match object.at("spec.claimNames") {
        Some(_) => &["Established", "Offered"],
        None => &["Established"],
    };
    conditions::judge(object, wanted, &[])
}

/// `Synced` (the last reconcile went well) **and** `Ready` (it is available). Neither has a final value: `Synced` false
/// is `ReconcileError`, tried again, or `ReconcilePaused`; `Ready` false is `Creating`, `Deleting` or `Unavailable`.
pub(crate) fn managed(object: Object<'_>) -> Verdict {
    if object.annotation("crossplane.io/paused") == Some("true") {
        return Verdict::pending("the annotation `crossplane.io/paused` holds it");
    }
    conditions::judge(object, &["Synced", "Ready"], &[])
}
