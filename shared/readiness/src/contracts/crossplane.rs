//! Crossplane: packages and definitions. Managed resources and composites can have any group; they are recognized by
//! the condition `Synced` (see `unknown`).
//!
//! Source: crossplane-runtime `apis/common/v1/condition.go`, crossplane `apis/pkg/v1`, `apis/apiextensions/v1`.

use crate::conditions;
use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table::{ContractRow, ContractRule};

pub(crate) const ROWS: &[ContractRow] = &[
    ContractRow {
        name: "crossplane-package",
        group: "pkg.crossplane.io",
        kinds: &["Configuration", "Function", "Provider"],
        rule: ContractRule::Conditions(&["Installed", "Healthy"], &[]),
    },
    ContractRow {
        name: "crossplane-definition",
        group: "apiextensions.crossplane.io",
        kinds: &["CompositeResourceDefinition"],
        rule: ContractRule::Own(definition),
    },
    ContractRow {
        name: "applied",
        group: "apiextensions.crossplane.io",
        kinds: &["Composition", "EnvironmentConfig"],
        rule: ContractRule::Applied,
    },
    ContractRow {
        name: "applied",
        group: "pkg.crossplane.io",
        kinds: &["DeploymentRuntimeConfig", "ImageConfig"],
        rule: ContractRule::Applied,
    },
    ContractRow {
        name: "applied",
        group: "*.crossplane.io",
        kinds: &["ClusterProviderConfig", "ProviderConfig"],
        rule: ContractRule::Applied,
    },
    ContractRow {
        name: "applied",
        group: "*.upbound.io",
        kinds: &["ClusterProviderConfig", "ProviderConfig"],
        rule: ContractRule::Applied,
    },
];

/// A definition with claim names must also be offered.
fn definition(object: ObjectView<'_>) -> ObjectReadiness {
    let wanted: &[&str] = match object.at("spec.claimNames") {
        Some(_) => &["Established", "Offered"],
        None => &["Established"],
    };
    conditions::judge(object, wanted, &[])
}

/// `Synced` (the last reconcile succeeded) **and** `Ready` (available). Neither has a terminal value: `Synced` false
/// is `ReconcileError`, which is retried, or `ReconcilePaused`; `Ready` false is `Creating`, `Deleting` or
/// `Unavailable`.
pub(crate) fn managed(object: ObjectView<'_>) -> ObjectReadiness {
    if object.annotation("crossplane.io/paused") == Some("true") {
        return ObjectReadiness::pending("paused by the annotation `crossplane.io/paused`");
    }
    conditions::judge(object, &["Synced", "Ready"], &[])
}
