//! Observes a container through the pods of its Job.

use ebb_kube::contract::{self, ContractTable, DocumentRules, ObjectReadiness};
use ebb_protocol::FailureReason;
use ebb_protocol::limits::message;
use serde_json::{Value, json};

use crate::observe::blockers::{self, StartBlocker, millis_at};

/// Milliseconds after the grace period until a pod counts as stuck, because its node is lost.
pub(crate) const STUCK_MS: u64 = 120_000;

#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "camelCase"))]
pub(crate) enum PodObservation {
    /// The container has not started. The reason is that of a pod that has failed, or it is found later (`blockers`).
    Waiting(Option<StartBlocker>),
    Running,
    /// The exit code is -1 for the end of a pod without that of its container.
    Terminated(Value),
    /// No pod exists, and none will be created.
    Gone,
}

/// Observes a container of a Job by contracts. `job` is `None` if it was deleted. `pods` are sorted by age, the newest last.
pub(crate) fn observe(
    contracts: &ContractTable,
    job: Option<&Value>,
    pods: &[Value],
    container: &str,
) -> PodObservation {
    let Some(pod) = pods.last() else {
        return match contract::judge(contracts, job, None, DocumentRules::default()) {
            ObjectReadiness::Pending { .. } => PodObservation::Waiting(None),
            _ => PodObservation::Gone,
        };
    };
    let status = &pod["status"];
    let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
    let state = containers.find(|it| it["name"] == container).map_or(&Value::Null, |it| &it["state"]);
    if state["terminated"].is_object() {
        return PodObservation::Terminated(state["terminated"].clone());
    }
    // A pod can fail before its containers end, or without them.
    if status["phase"] == "Failed" {
        let text = |key: &str| status[key].as_str().unwrap_or_default();
        let end = || json!({"exitCode": -1, "reason": text("reason"), "message": text("message")});
        let init = blockers::find(contracts, "init", pod, &[], &[], Value::Null);
        return init.map_or_else(|| PodObservation::Terminated(end()), |init| PodObservation::Waiting(Some(init)));
    }
    if state["running"].is_object() { PodObservation::Running } else { PodObservation::Waiting(None) }
}

/// Returns why a pod is being deleted, or why it has failed before its containers.
pub(crate) fn early_failure(contracts: &ContractTable, pod: &Value) -> Option<FailureReason> {
    let found = blockers::find(contracts, "early", pod, &[], &[], Value::Null)?;
    Some(FailureReason { code: found.code, message: message(&found.message) })
}

/// Returns true if the pod has ended with all its containers.
pub(crate) fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns true if a pod still exists long after the end of its grace period, because its node does not respond.
pub(crate) fn is_stuck(pod: &Value, now_ms: u64) -> bool {
    let deleted_ms = millis_at(&pod["metadata"]["deletionTimestamp"]);
    deleted_ms > 0 && deleted_ms.saturating_add(STUCK_MS) <= now_ms
}

#[cfg(test)]
mod tests {
    use ebb_kube::contract::built_in;
    use ebb_protocol::ReasonCode;

    use super::*;
    use crate::test_api::rows;

    /// Observations that a test cluster of one node cannot produce.
    #[test]
    fn rare_observations() {
        for (status, expected) in rows::<(Value, Option<ReasonCode>)>("early_failures") {
            let pod = json!({"metadata": {"name": "p"}, "status": status});
            assert_eq!(early_failure(built_in(), &pod).map(|it| it.code), expected, "{status}");
        }
        for (mut job, pods, expected) in rows::<(Option<Value>, Vec<Value>, PodObservation)>("rare_observations") {
            if let Some(job) = &mut job {
                (job["apiVersion"], job["kind"]) = ("batch/v1".into(), "Job".into());
            }
            assert_eq!(observe(built_in(), job.as_ref(), &pods, "main"), expected, "{job:?} {pods:?}");
        }
    }
}
