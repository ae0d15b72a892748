//! Other controllers whose objects people wait for: Flux, Gateway API, Tekton, operators of clouds.

use crate::conditions::{self, End};
use crate::generation::unobserved;
use crate::object::Object;
use crate::table::{By, Row};
use crate::verdict::Verdict;

const FLUX: &str = "*.toolkit.fluxcd.io";

pub(crate) const ROWS: &[Row] = &[
    // Flux made these two static in notification API v1beta3; a status that is there is of an older version.
    Row { name: "flux", group: FLUX, kinds: &["Alert", "Provider"], by: By::Own(flux_static) },
    Row { name: "flux", group: FLUX, kinds: &["HelmRepository"], by: By::Own(flux_repository) },
    Row { name: "flux", group: FLUX, kinds: &["*"], by: By::Own(flux) },
    // Gateway API GatewayConditionType, GatewayClassConditionType.
    Row {
        name: "gateway",
        group: "gateway.networking.k8s.io",
        kinds: &["Gateway"],
        by: By::Conditions(&["Accepted", "Programmed"], &[]),
    },
    Row {
        name: "gateway",
        group: "gateway.networking.k8s.io",
        kinds: &["GatewayClass"],
        by: By::Conditions(&["Accepted"], &[]),
    },
    // Tekton: one condition that is Unknown while it runs.
    Row {
        name: "tekton",
        group: "tekton.dev",
        kinds: &["CustomRun", "PipelineRun", "TaskRun"],
        by: By::Conditions(&["Succeeded"], &[End { kind: "Succeeded", status: "False", reasons: &[] }]),
    },
    Row { name: "applied", group: "tekton.dev", kinds: &["Pipeline", "StepAction", "Task"], by: By::Applied },
    // ORC `api/v1alpha1/conditions.go`: done when both are said of this generation; two reasons are terminal.
    Row {
        name: "orc",
        group: "openstack.k-orc.cloud",
        kinds: &["*"],
        by: By::Conditions(
            &["Available"],
            &[End {
                kind: "Progressing",
                status: "False",
                reasons: &["InvalidConfiguration", "UnrecoverableError"],
            }],
        ),
    },
    // AWS Controllers for Kubernetes, `runtime/apis/core/v1alpha1/conditions.go`.
    Row {
        name: "ack",
        group: "*.services.k8s.aws",
        kinds: &["*"],
        by: By::Conditions(
            &["ACK.ResourceSynced"],
            &[End { kind: "ACK.Terminal", status: "True", reasons: &[] }],
        ),
    },
    // Azure Service Operator, *Conditions*: severity `Error` means that it has given up.
    Row { name: "azure", group: "*.azure.com", kinds: &["*"], by: By::Own(azure) },
];

/// Flux API conventions: `Ready` of this generation, `Stalled` when it has given up, `Reconciling` while it works.
/// `flux` itself compares `status.observedGeneration`, which is -1 at first.
fn flux(object: Object<'_>) -> Verdict {
    let verdict = unobserved(object).unwrap_or_else(|| conditions::judge(object, &["Ready"], &[]));
    match verdict {
        Verdict::Pending { why } if object.says("spec.suspend") => {
            Verdict::pending(format!("it is suspended; {why}"))
        }
        verdict => verdict,
    }
}

fn flux_static(object: Object<'_>) -> Verdict {
    if object.conditions().next().is_some() { flux(object) } else { Verdict::Ready }
}

/// A repository of the type `oci` is only read by others, and has no status.
fn flux_repository(object: Object<'_>) -> Verdict {
    if object.text("spec.type") == "oci" { flux_static(object) } else { flux(object) }
}

fn azure(object: Object<'_>) -> Verdict {
    match object.condition("Ready") {
        Some(ready) if ready.is("False") && ready.severity == "Error" && !ready.is_stale(object) => {
            conditions::failed(ready)
        }
        _ => conditions::judge(object, &["Ready"], &[]),
    }
}
