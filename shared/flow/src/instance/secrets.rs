//! Releases the sensitive outputs of ended instances in their clusters.
//!
//! The write that makes the target gone records the release. The release follows the notification, or the next due time
//! of the target. No other step waits for it. If a relay does not respond, the release is retried without a limit.

use ebb_documents::plan::Plan;
use ebb_engine::TargetPhase;
use ebb_store::{SecretRelease, TargetHead};
use futures::future::BoxFuture;

use crate::instance::due;
use crate::{Env, FlowError, FlowResult, RelayError, Run};

/// Records the release for an instance in the target that has its name, for each cluster that holds its values.
pub(crate) fn schedule_release(target: &mut TargetHead, plan: &Plan, instance: &str) {
    for cluster in plan.secret_clusters() {
        let uid = plan.cluster_uid(cluster).map(str::to_owned);
        let release = SecretRelease { instance: instance.to_owned(), cluster: cluster.map(str::to_owned), uid };
        if !target.release.contains(&release) {
            target.release.push(release);
        }
    }
}

/// Records the release again for the ended instance of `run`, because clusters may hold new values of it. The release
/// is stored in the target that has the name now. An instance that has not ended records its release at its end. The
/// call can be repeated.
pub(crate) async fn schedule_late_release(env: &Env, run: &Run) -> FlowResult<()> {
    let (facts, plan) = (&run.facts, &run.loaded.plan);
    if plan.secret_clusters().is_empty() {
        return Ok(());
    }
    let is_teardown = run.hook().is_teardown();
    let ended_instance = facts.instance_key();
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(facts.target_key()).await? else { return Ok(()) };
        if seen.uid == facts.uid && (is_teardown || seen.phase != TargetPhase::Gone) {
            return Ok(());
        }
        let transition = seen.update(|target| {
            schedule_release(target, plan, &ended_instance);
            // The back-off of earlier releases does not apply to this one.
            let soon = env.now().plus(env.settings.first_sweep_delay);
            target.due = Some(due::next_due(env, target).map_or(soon, |due| due.min(soon)));
        });
        if transition.target.release == seen.release || env.store.move_target(&transition).await? {
            return Ok(());
        }
    }
    Err(FlowError::Contended(facts.target_key().to_string()))
}

/// Releases the recorded instances by the requests of `release`. Returns those that have to be repeated.
pub(crate) async fn release_secrets<'a>(
    target: &TargetHead,
    release: impl Fn(SecretRelease) -> BoxFuture<'a, Result<(), RelayError>>,
) -> Vec<SecretRelease> {
    let own = target.instance_key();
    let mut remaining = Vec::new();
    for one in &target.release {
        if one.instance == own && target.phase != TargetPhase::Gone {
            // A late success has reopened the instance.
            remaining.push(one.clone());
            continue;
        }
        match release(one.clone()).await {
            Ok(()) => {}
            Err(RelayError::Unreachable(reason) | RelayError::Busy(reason)) => {
                tracing::info!(instance = one.instance, reason, "cannot release sensitive outputs; trying again later");
                remaining.push(one.clone());
            }
            // This happens, for example, if the cluster is no longer connected.
            Err(RelayError::Refused(reason)) => {
                tracing::warn!(instance = one.instance, reason, "sensitive outputs remain in their cluster");
            }
        }
    }
    remaining
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ebb_documents::plan::{HookPlan, UnitPlan};
    use ebb_engine::{Hook, Timestamp};
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn releases_without_a_response_are_repeated() {
        let mut target = TargetHead::new("sandbox", "a", "u", Timestamp(1));
        let own = target.instance_key();
        let of = |instance: &str, cluster: Option<&str>| SecretRelease {
            instance: instance.to_owned(),
            cluster: cluster.map(str::to_owned),
            uid: None,
        };
        target.release = vec![of("before", None), of("lost", Some("gone")), of("later", Some("down")), of(&own, None)];
        for (phase, requested, remaining) in [
            (TargetPhase::Gone, &["before", "lost", "later", &own][..], vec![of("later", Some("down"))]),
            (TargetPhase::Stopping, &["before", "lost", "later"], vec![of("later", Some("down")), of(&own, None)]),
        ] {
            let asked = Mutex::new(Vec::<String>::new());
            target.phase = phase;
            let left = release_secrets(&target, |one| {
                asked.lock().unwrap().push(one.instance.clone());
                let response = match one.cluster.as_deref() {
                    Some("down") => Err(RelayError::Unreachable("down".to_owned())),
                    Some("gone") => Err(RelayError::Refused("no relay is connected".to_owned())),
                    _ => Ok(()),
                };
                std::future::ready(response).boxed()
            });
            assert_eq!(left.await, remaining, "{phase:?}");
            assert_eq!(*asked.lock().unwrap(), requested, "{phase:?}");
        }
    }

    #[test]
    fn a_release_is_recorded_once_per_cluster() {
        for (sensitive, expected) in [(true, 2), (false, 0)] {
            let outputs = serde_json::json!({"o": {"from": {"expression": "object.x"}, "sensitive": sensitive}});
            let outputs = serde_json::from_value(outputs).unwrap();
            let unit = UnitPlan { outputs, ..UnitPlan::default() };
            let elsewhere = UnitPlan { cluster: Some("eu".to_owned()), ..unit.clone() };
            let hook = HookPlan { hook: Hook::PreStart, units: vec![unit.clone(), unit, elsewhere] };
            let plan = Plan { hooks: vec![hook], ..Plan::empty() };
            let mut target = TargetHead::new("sandbox", "a", "u", Timestamp(1));
            schedule_release(&mut target, &plan, "instance");
            schedule_release(&mut target, &plan, "instance");
            assert_eq!(target.release.len(), expected, "{sensitive}");
        }
    }
}
