//! Argo: workflows, applications, rollouts.

use crate::object::Object;
use crate::table::{By, Phase, Row};
use crate::verdict::Verdict;

const GROUP: &str = "argoproj.io";

pub(crate) const ROWS: &[Row] = &[
    // WorkflowPhase: "" and Pending before it runs, Succeeded, Failed (a step did), Error (the controller could not).
    Row {
        name: "argo-workflow",
        group: GROUP,
        kinds: &["Workflow"],
        by: By::Phase(Phase {
            path: "status.phase",
            ready: &["Succeeded"],
            failed: &["Failed", "Error"],
            message: "status.message",
        }),
    },
    Row { name: "argo-application", group: GROUP, kinds: &["Application"], by: By::Own(application) },
    // RolloutPhase: Progressing, Paused, Healthy, and Degraded when it was aborted, is invalid or too slow.
    Row {
        name: "argo-rollout",
        group: GROUP,
        kinds: &["Rollout"],
        by: By::Phase(Phase {
            path: "status.phase",
            ready: &["Healthy"],
            failed: &["Degraded"],
            message: "status.message",
        }),
    },
    Row {
        name: "applied",
        group: GROUP,
        kinds: &["AppProject", "ClusterWorkflowTemplate", "CronWorkflow", "WorkflowTemplate"],
        by: By::Applied,
    },
];

/// Argo CD: synced **and** healthy, as `argocd app wait` has it. A sync that failed is tried again only if the policy
/// says so, and a degraded application may heal: both stay pending with their words. The revision that was compared is
/// the application's, not a generation.
fn application(object: Object<'_>) -> Verdict {
    let operation = object.text("status.operationState.phase");
    if ["Failed", "Error"].contains(&operation) && object.text("status.sync.status") != "Synced" {
        let message = object.text("status.operationState.message");
        return Verdict::pending(format!("its last sync is `{operation}`: {message}"));
    }
    if operation == "Running" || object.at("operation").is_some() {
        return Verdict::pending("a sync is under way");
    }
    for (field, wanted) in [("status.sync.status", "Synced"), ("status.health.status", "Healthy")] {
        if object.text(field) != wanted {
            return Verdict::awaits(field, object.text(field), wanted);
        }
    }
    Verdict::Ready
}
