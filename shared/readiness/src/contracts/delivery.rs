//! Other controllers whose objects people wait for: Flux, Gateway API, Tekton, operators of clouds.

use crate::conditions::{self, TerminalCondition};
use crate::generation::unobserved;
use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table::{ContractRow, ContractRule};

const FLUX: &str = "*.toolkit.fluxcd.io";

pub(crate) const ROWS: &[ContractRow] = &[
    // Flux made these two static in notification API v1beta3; a status that is there is of an older version.
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
    // Tekton: one condition that is Unknown while it runs.
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
    // ORC `api/v1alpha1/conditions.go`: done when both are said of this generation; two reasons are terminal.
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
    // Azure Service Operator, *Conditions*: severity `Error` means that it has given up.
    ContractRow { name: "azure", group: "*.azure.com", kinds: &["*"], rule: ContractRule::Own(azure) },
];

/// Flux API conventions: `Ready` of this generation, `Stalled` when it has given up, `Reconciling` while it works.
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

/// A repository of the type `oci` is only read by others, and has no status.
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
