//! Overrides of failed teardown units: force-complete of one unit, and force delete of a target.
//!
//! The resources that an overridden unit removes may still exist. The override is recorded as the result of a further
//! attempt, and the resources remain in the list of possible resources.

use std::collections::BTreeMap;

use ebb_engine::{RunPhase, TargetPhase, Unit, UnitProgress, in_flight};
use ebb_protocol::{ErrorCode, FailureReason, HistoryChange, OverrideResponse, ReasonCode, TargetKey, limits};
use ebb_store::TargetHead;

use crate::advance::dispatch_all::drive;
use crate::advance::{Continuation, reopen};
use crate::instance::history::{self, Decision};
use crate::run::lease;
use crate::{Env, FlowResult, Rejection, Run, missing_instance};

const MAX_REASON: usize = 500;
/// Maximum characters of an operator's name.
pub const MAX_OPERATOR: usize = 100;

/// The units that were overridden. It is refused for another instance, if the target is not stuck or the unit has not failed,
/// and if a field of the request is missing or too long.
pub type OverrideOutcome = Result<OverrideResponse, Rejection>;

/// Marks the failed unit `named` in the teardown of a stuck target as complete, and the teardown continues. Without `named`,
/// marks all units of the stuck hook that are not done; the target is then gone, or continues with its next hook.
///
/// `by` is the operator that the request names, and `caller` the verified name. Logs a rejected request; the history has the
/// others.
pub async fn force(
    env: &Env,
    key @ (TargetKey { kind, name }, _): (TargetKey<'_>, Option<&str>),
    named: Option<&str>,
    (reason, by): (&str, Option<&str>),
    caller: Option<&str>,
) -> FlowResult<OverrideOutcome> {
    let Some(recorded) = recorded_reason(reason, by) else {
        let text = format!("`reason` must have 1 to {MAX_REASON} characters, and `by` at most {MAX_OPERATOR}");
        return Ok(Err(Rejection::Refused(ErrorCode::MissingField, text)));
    };
    let change = if named.is_some() { HistoryChange::ForceCompleted } else { HistoryChange::ForceDeleted };
    let decision = Decision { change, by: caller, reason: Some(&recorded.message) };
    let outcome = Box::pin(override_matching(env, key, &recorded, named, decision)).await?;
    if let Err(rejection) = &outcome {
        tracing::info!(kind, name, caller, by, reason, rejection = rejection.to_string(), "an override is rejected");
    }
    Ok(outcome)
}

fn recorded_reason(why: &str, by: Option<&str>) -> Option<FailureReason> {
    let (why, by) = (why.trim(), by.map(str::trim).filter(|by| !by.is_empty()));
    if why.is_empty() || why.chars().count() > MAX_REASON || by.is_some_and(|by| by.chars().count() > MAX_OPERATOR) {
        return None;
    }
    let message = match by {
        Some(by) => format!("overridden by {by}: {why}"),
        None => format!("overridden by an operator: {why}"),
    };
    Some(FailureReason { code: ReasonCode::Overridden, message: limits::message(&message) })
}

async fn override_matching(
    env: &Env,
    key: (TargetKey<'_>, Option<&str>),
    reason: &FailureReason,
    named: Option<&str>,
    decision: Decision<'_>,
) -> FlowResult<OverrideOutcome> {
    let Some(target) = env.instance(key).await? else { return Ok(Err(missing_instance(key.0, key.1))) };
    let torn_down = matches!(target.phase, TargetPhase::Stuck | TargetPhase::Stopping);
    let not_stuck = || Err(Rejection::Refused(ErrorCode::NotStuck, not_stuck(&target)));
    let Some(hook) = target.hook.filter(|hook| torn_down && hook.is_teardown()) else { return Ok(not_stuck()) };
    let id = target.run(hook);
    let Some((run, head)) = Run::load_with_head(env, &id).await? else { return Ok(not_stuck()) };
    // An interrupted force delete leaves a stopping target with a closed run, in which units may be open.
    let closed = head.phase == RunPhase::Closed;
    if target.phase != TargetPhase::Stuck && !closed {
        return Ok(not_stuck());
    }
    let open = in_flight(run.graph(), &head);
    let is_in_flight = |unit: Unit| open.iter().any(|(open, _)| *open == unit);
    let mut units = BTreeMap::new();
    for unit in run.graph().units() {
        let Some(plan) = run.unit(unit) else { continue };
        let is_open = match named {
            None => head.status(unit) != UnitProgress::Done,
            Some(named) if named != plan.key => false,
            Some(_) => head.status(unit) == UnitProgress::Failed || (closed && is_in_flight(unit)),
        };
        if is_open {
            units.insert(unit, plan.key.clone());
        }
    }
    // A force delete that was interrupted later leaves no open unit. Its repetition ends the run again.
    if units.is_empty() && (target.phase == TargetPhase::Stuck || !head.failed.is_empty()) {
        return Ok(Err(Rejection::Refused(ErrorCode::NotStuck, nothing_to_override(&run, &head, named))));
    }
    let list: Vec<Unit> = units.keys().copied().collect();
    Box::pin(history::note_decision(env, &target, decision, units.values().cloned())).await?;
    if !reopen::override_units(env, &run, &head, &list, reason).await? {
        return Ok(not_stuck());
    }
    // Other invocations assume that the units which waited for these are in progress, so they are dispatched here.
    let head = run.read_head(env).await?;
    let unsent = lease::unsent(env, &run, in_flight(run.graph(), &head)).await?;
    let ready: Vec<_> = unsent.iter().filter(|one| !one.is_postponed).map(|one| one.unit_attempt).collect();
    if !ready.is_empty() {
        drive(env, Continuation::dispatching(run, head.epoch, ready)).await?;
    }
    Ok(Ok(OverrideResponse { run: id.to_string(), units: units.into_values().collect() }))
}

/// Returns the reason why a target has no unit to override, and the fix.
fn not_stuck(target: &TargetHead) -> String {
    let why = match target.phase {
        TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Updating | TargetPhase::Failed => {
            "its teardown has not begun; only a teardown can be overridden"
        }
        TargetPhase::Stopping | TargetPhase::Stuck => {
            "units of its teardown may be running: wait until they have succeeded or failed; `ebb why` \
             says when it is stuck"
        }
        TargetPhase::Gone => "it is gone",
    };
    format!("{} is not stuck: {why}", target.target_key())
}

/// Returns the reason why no unit of a run can be overridden, with the units that can.
fn nothing_to_override(run: &Run, head: &ebb_engine::HeadState, named: Option<&str>) -> String {
    let failed = run.graph().units().filter(|&unit| head.status(unit) == UnitProgress::Failed);
    let failed: Vec<&str> = failed.filter_map(|unit| Some(run.unit(unit)?.key.as_str())).collect();
    let failed = if failed.is_empty() { "none".to_owned() } else { failed.join(", ") };
    match named {
        Some(named) => format!("`{named}` is not a failed unit of run {}; failed: {failed}", run.id),
        None => format!("run {} has no unit that is not done", run.id),
    }
}
