//! Argo: workflows, applications, rollouts.

use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::table::{ContractRow, ContractRule, PhaseField};

const GROUP: &str = "argoproj.io";

pub(crate) const ROWS: &[ContractRow] = &[
    // WorkflowPhase: empty or Pending before the start, then Succeeded, Failed (a step) or Error (the controller).
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
    // RolloutPhase: Progressing, Paused, Healthy; Degraded if aborted, invalid or too slow.
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

/// Argo CD: synced **and** healthy, as in `argocd app wait`. A failed sync may be repeated by its policy, and a
/// degraded application may recover, so both are pending. The compared revision is the application's, not a
/// generation.
fn application(object: ObjectView<'_>) -> ObjectReadiness {
    let operation = object.text("status.operationState.phase");
    if ["Failed", "Error"].contains(&operation) && object.text("status.sync.status") != "Synced" {
        let message = object.text("status.operationState.message");
        return ObjectReadiness::pending(format!("its last sync is `{operation}`: {message}"));
    }
    if operation == "Running" || object.at("operation").is_some() {
        return ObjectReadiness::pending("a sync is in progress");
    }
    for (field, wanted) in [("status.sync.status", "Synced"), ("status.health.status", "Healthy")] {
        if object.text(field) != wanted {
            return ObjectReadiness::awaits(field, object.text(field), wanted);
        }
    }
    ObjectReadiness::Ready
}
