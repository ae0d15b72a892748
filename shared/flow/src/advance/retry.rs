//! Retries the failed units of a failed or stuck target.

use ebb_engine::{Hook, RunPhase, TargetPhase, Unit, UnitProgress, in_flight, lets_pass};
use ebb_protocol::{ErrorCode, RetryResponse, TargetKey};

use crate::advance::reopen::{ReopenCause, reopen};
use crate::instance::history::{self, Decision};
use crate::run::removal::possible_resources::override_reason;
use crate::{Env, FlowResult, Rejection, Run, missing_instance};

/// The units that run again. It is refused if no unit has to be retried, and for another instance.
pub type RetryOutcome = Result<RetryResponse, Rejection>;

/// Retries the units without a further attempt in the last run of a failed or stuck target: of any instance, or only of that
/// with the identity `uid`. The history gets the `decision`. `None` continues an interrupted retry.
pub async fn retry(
    env: &Env,
    (key, uid): (TargetKey<'_>, Option<&str>),
    decision: Option<Decision<'_>>,
) -> FlowResult<RetryOutcome> {
    let nothing =
        |text: String| -> FlowResult<RetryOutcome> { Ok(Err(Rejection::Refused(ErrorCode::NothingFailed, text))) };
    let Some(target) = env.instance((key, uid)).await? else { return Ok(Err(missing_instance(key, uid))) };
    let Some(hook) = target.hook.filter(|_| target.phase != TargetPhase::Gone) else {
        return nothing(format!("{key} has nothing to retry"));
    };
    if let Hook::Event(event) = hook {
        return nothing(format!("{key} is ready; to run `{}` again, send the event again", event.as_str()));
    }
    let Some((run, head)) = Run::load_with_head(env, &target.run(hook)).await? else {
        return nothing(format!("{key} has no run"));
    };
    // A resource that an update has removed is not made again. Its undo is needed.
    let present = env.plan_of(&target).await?;
    let is_needed = |unit: Unit| !run.is_former(unit, &present);
    let failed = run.graph().units().filter(|&unit| head.status(unit) == UnitProgress::Failed && is_needed(unit));
    let mut failed: Vec<Unit> = failed.collect();
    // An update of a ready target waits for no tolerated unit.
    if target.phase == TargetPhase::Ready {
        failed.retain(|&unit| !run.graph().tolerates(unit));
    }
    // A verification fails because its undo did not remove the resource, and an undo because another one has left a part.
    let undos: Vec<Unit> = failed.iter().flat_map(|&unit| earlier_undos(&run, unit)).collect();
    // The decision of an operator about an undo stays.
    let records = env.store.read_records(&run.id, &undos).await?;
    let is_overridden = |undo: Unit| {
        override_reason(records.iter().filter(|(of, ..)| *of == undo).map(|(.., record)| record)).is_some()
    };
    let is_done = |&undo: &Unit| head.status(undo) == UnitProgress::Done && !is_overridden(undo);
    failed.extend(undos.into_iter().filter(is_done));
    failed.sort_unstable();
    failed.dedup();
    let closed = head.phase == RunPhase::Closed;
    let has_failed = matches!(target.phase, TargetPhase::Failed | TargetPhase::Stuck);
    // An interrupted retry leaves a moving target with a closed run, or with open units in it. A target that is ready can
    // have a closed run in which no unit has failed.
    let moving = !has_failed && (target.phase != TargetPhase::Ready || !failed.is_empty());
    // An interrupted override can leave a stuck target whose run is closed, with every unit done.
    let is_over = has_failed && run.graph().units().all(|unit| lets_pass(run.graph(), &head, unit));
    let is_incomplete = closed && (moving || is_over || !in_flight(run.graph(), &head).is_empty());
    if !is_incomplete && (failed.is_empty() || !has_failed) {
        return nothing(format!("{key} is neither failed nor stuck: no unit of run {} has to be retried", run.id));
    }
    tracing::info!(kind = key.kind, name = key.name, run = %run.id, units = failed.len(), "failed units are retried");
    let units: Vec<String> = failed.iter().filter_map(|&unit| Some(run.unit(unit)?.key.clone())).collect();
    if let Some(decision) = decision {
        Box::pin(history::note_decision(env, &target, decision, units.iter().cloned())).await?;
    }
    if !reopen(env, &run.id, &failed, ReopenCause::Retry).await? {
        return nothing(format!("{key} is being deleted"));
    }
    let (uid, run) = (Some(target.uid), run.id.to_string());
    Ok(Ok(RetryResponse { uid, run, units, ..RetryResponse::default() }))
}

/// Returns the units of a run for which an undo or a verification waits, also through others, and that undo the same.
fn earlier_undos(run: &Run, unit: Unit) -> Vec<Unit> {
    let Some(undo) = run.unit(unit).filter(|plan| !plan.undoes.is_empty()) else { return Vec::new() };
    let (mut all, mut next) = (Vec::new(), vec![unit]);
    while let Some(unit) = next.pop() {
        for &before in run.graph().dependencies(unit) {
            let is_same = run.unit(before).is_some_and(|plan| plan.undoes == undo.undoes);
            if is_same && !all.contains(&before) {
                all.push(before);
                next.push(before);
            }
        }
    }
    all
}
