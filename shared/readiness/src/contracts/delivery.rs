//! Further controllers: Flux, Gateway API, Tekton, cloud operators.

use crate::conditions::{self, TerminalCondition};
use crate::generation::unobserved;
use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table::{ContractRow, ContractRule};

const FLUX: &str = "*.toolkit.fluxcd.io";

pub(crate) const ROWS: &[ContractRow] = &[
    // Flux made these two static in notification API v1beta3. A status is left from an older version.
    ContractRow { name: "flux", group: FLUX, kinds: &["Alert", "Provider"], rule: ContractRule::Own(flux_static) },
    ContractRow { name: "flux", group: FLUX, kinds: &["HelmRepository"], rule: ContractRule::Own(flux_repository) },
    ContractRow { name: "flux", group: FLUX, kinds: &["*"], rule: ContractRule::Own(flux) },
    // Gateway API GatewayConditionType, GatewayClassConditionType.
    ContractRow {
        name: "gateway",
        group: "gateway.networking.k8s.io",
        kinds: &["Gateway"],
        rule: ContractRule::Conditions(&["Accepted", "Programmed"], &[]),
    },
    ContractRow {
        name: "gateway",
        group: "gateway.networking.k8s.io",
        kinds: &["GatewayClass"],
        rule: ContractRule::Conditions(&["Accepted"], &[]),
    },
    // Tekton: one condition, Unknown while it runs.
    ContractRow {
        name: "tekton",
        group: "tekton.dev",
        kinds: &["CustomRun", "PipelineRun", "TaskRun"],
        rule: ContractRule::Conditions(
            &["Succeeded"],
            &[TerminalCondition { kind: "Succeeded", status: "False", reasons: &[] }],
        ),
    },
    ContractRow {
        name: "applied",
        group: "tekton.dev",
        kinds: &["Pipeline", "StepAction", "Task"],
        rule: ContractRule::Applied,
    },
    // ORC `api/v1alpha1/conditions.go`: complete when both conditions are of this generation. Two reasons are
    // terminal.
    ContractRow {
        name: "orc",
        group: "openstack.k-orc.cloud",
        kinds: &["*"],
        rule: ContractRule::Conditions(
            &["Available"],
            &[TerminalCondition {
                kind: "Progressing",
                status: "False",
                reasons: &["InvalidConfiguration", "UnrecoverableError"],
            }],
        ),
    },
    // AWS Controllers for Kubernetes, `runtime/apis/core/v1alpha1/conditions.go`.
    ContractRow {
        name: "ack",
        group: "*.services.k8s.aws",
        kinds: &["*"],
        rule: ContractRule::Conditions(
            &["ACK.ResourceSynced"],
            &[TerminalCondition { kind: "ACK.Terminal", status: "True", reasons: &[] }],
        ),
    },
    // Azure Service Operator, *Conditions*: the severity `Error` is terminal.
    ContractRow { name: "azure", group: "*.azure.com", kinds: &["*"], rule: ContractRule::Own(azure) },
];

/// Flux API conventions: `Ready` of this generation, `Stalled` after a terminal error, `Reconciling` during work.
/// `flux` itself compares `status.observedGeneration`, which is -1 at first.
fn flux(object: ObjectView<'_>) -> ObjectReadiness {
    let verdict = unobserved(object).unwrap_or_else(|| conditions::judge(object, &["Ready"], &[]));
    match verdict {
        ObjectReadiness::Pending { reason: why } if object.says("spec.suspend") => {
            ObjectReadiness::pending(format!("it is suspended; {why}"))
        }
        verdict => verdict,
    }
}

fn flux_static(object: ObjectView<'_>) -> ObjectReadiness {
    if object.conditions().next().is_some() { flux(object) } else { ObjectReadiness::Ready }
}

/// A repository of the type `oci` has no status.
fn flux_repository(object: ObjectView<'_>) -> ObjectReadiness {
    if object.text("spec.type") == "oci" { flux_static(object) } else { flux(object) }
}

fn azure(object: ObjectView<'_>) -> ObjectReadiness {
    match object.condition("Ready") {
        Some(ready) if ready.is("False") && ready.severity == "Error" && !ready.is_stale(object) => {
            conditions::failed(ready)
        }
        _ => conditions::judge(object, &["Ready"], &[]),
    }
}
