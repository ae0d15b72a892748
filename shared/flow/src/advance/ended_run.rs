//! Reports the end of a run that leaves the phase of its target: of an event, and of `preStop`.

use ebb_engine::{Hook, RunOutcome, TargetChange};
use ebb_store::TargetHead;

use crate::instance::{due, outbox};
use crate::{Env, FlowError, FlowResult, Run};

/// Appends the notification of the end of `run` to its target, once. Returns true if it has written the target. Nothing is
/// written if neither the platform nor a subscription gets it. A cancelled run has no `outcome`, and is not reported.
pub(super) async fn report(env: &Env, run: &Run, outcome: Option<RunOutcome>) -> FlowResult<bool> {
    let change = match (run.hook(), outcome) {
        (Hook::Event(_), Some(RunOutcome::Succeeded)) => TargetChange::EventSucceeded,
        (Hook::Event(_), Some(RunOutcome::Failed)) => TargetChange::EventFailed,
        (Hook::PreStop, Some(RunOutcome::Succeeded)) => TargetChange::PreStopEnded,
        _ => return Ok(false),
    };
    let (key, rules) = (run.facts.target_key(), outbox::rules(env).await?);
    if rules.is_empty() && env.settings.platform_url.is_none() {
        return Ok(false);
    }
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(key).await?;
        let is_new = |seen: &TargetHead| seen.is_last_run(&run.id) && seen.reported.as_ref() != Some(&run.id);
        let Some(seen) = seen.filter(is_new) else { return Ok(false) };
        let loaded = env.plan_of(&seen).await?;
        let at = seen.change_time(env.now());
        let transition = seen.update(|after| {
            outbox::append(after, &rules, &loaded.plan.target, (change, at));
            outbox::append_end_for_platform(env, after, (change, at));
            after.reported = Some(run.id.clone());
            after.due = due::next_due(env, after);
        });
        if transition.target.outbox == seen.outbox {
            return Ok(false);
        }
        if env.store.move_target(&transition).await? {
            outbox::announce_any(env, &transition.target).await;
            return Ok(true);
        }
    }
    Err(FlowError::Contended(key.to_string()))
}
