//! Argo: workflows, applications, rollouts.

use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table::{ContractRow, ContractRule, PhaseField};

const GROUP: &str = "argoproj.io";

pub(crate) const ROWS: &[ContractRow] = &[
    // WorkflowPhase: "" and Pending before it runs, Succeeded, Failed (a step did), Error (the controller could not).
    ContractRow {
        name: "argo-workflow",
        group: GROUP,
        kinds: &["Workflow"],
        rule: ContractRule::Phase(PhaseField {
            path: "status.phase",
            ready: &["Succeeded"],
            failed: &["Failed", "Error"],
            message: "status.message",
        }),
    },
    ContractRow {
        name: "argo-application",
        group: GROUP,
        kinds: &["Application"],
        rule: ContractRule::Own(application),
    },
    // RolloutPhase: Progressing, Paused, Healthy, and Degraded when it was aborted, is invalid or too slow.
    ContractRow {
        name: "argo-rollout",
        group: GROUP,
        kinds: &["Rollout"],
        rule: ContractRule::Phase(PhaseField {
            path: "status.phase",
            ready: &["Healthy"],
            failed: &["Degraded"],
            message: "status.message",
        }),
    },
    ContractRow {
        name: "applied",
        group: GROUP,
        kinds: &["AppProject", "ClusterWorkflowTemplate", "CronWorkflow", "WorkflowTemplate"],
        rule: ContractRule::Applied,
    },
];

/// Argo CD: synced **and** healthy, as `argocd app wait` has it. A sync that failed is tried again only if the policy
/// says so, and a degraded application may heal: both stay pending with their words. The revision that was compared is
/// the application's, not a generation.
fn application(object: ObjectView<'_>) -> ObjectReadiness {
    let operation = object.text("status.operationState.phase");
    if ["Failed", "Error"].contains(&operation) && object.text("status.sync.status") != "Synced" {
        let message = object.text("status.operationState.message");
        return ObjectReadiness::pending(format!("its last sync is `{operation}`: {message}"));
    }
    if operation == "Running" || object.at("operation").is_some() {
        return ObjectReadiness::pending("a sync is under way");
    }
    for (field, wanted) in [("status.sync.status", "Synced"), ("status.health.status", "Healthy")] {
        if object.text(field) != wanted {
            return ObjectReadiness::awaits(field, object.text(field), wanted);
        }
    }
    ObjectReadiness::Ready
}
