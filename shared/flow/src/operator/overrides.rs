//! Overrides by an operator: force-complete of one failed unit of a teardown, and force delete of a target.
//!
//! The resources that an overridden unit removes may still exist. The override is recorded as the result of an attempt of
//! its own, and the resources stay in the list of what may exist.

use std::collections::BTreeMap;

use ebb_engine::follow::in_flight;
use ebb_engine::{Hook, RunPhase, TargetPhase, Unit, UnitProgress};
use ebb_protocol::api::{ForceCompleteUnit, ForceDeleteTarget, OverrideResponse};
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::id::{self, RunId};
use ebb_protocol::limits;
use ebb_store::TargetHead;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::dispatch_all::drive;
use crate::run::head;
use crate::run::head::Run;
use crate::run::inputs::InvocationCache;
use crate::run::lease;
use crate::run::progress::Continuation;
use crate::run::reopen;

const MAX_REASON: usize = 500;
/// Longest name of an operator, in characters.
const MAX_OPERATOR: usize = 100;

/// The outcome of an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideOutcome {
    Overridden(OverrideResponse),
    /// There is no such target.
    NotFound,
    /// It cannot be overridden; why.
    NotStuck(String),
    /// The request lacks something; what.
    Incomplete(String),
}

/// Marks a unit as complete that has failed for good in the teardown of a stuck target. The teardown continues.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn force_complete(
    env: &Env,
    kind: &str,
    name: &str,
    asked: &ForceCompleteUnit,
) -> Result<OverrideOutcome, FlowError> {
    let Some(reason) = reason(&asked.reason, asked.by.as_deref()) else { return Ok(incomplete()) };
    let choose = |key: &str| if key == asked.unit { OverrideScope::Failed } else { OverrideScope::Nothing };
    let answer = override_matching(env, kind, name, &reason, Some(&asked.unit), choose).await?;
    log_request("force-complete", kind, name, asked.by.as_deref(), &asked.reason, &answer);
    Ok(answer)
}

/// Marks all units as complete that are not done in the hook whose teardown has given up. The target is gone then, or
/// continues with the hook after it.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn force_delete(
    env: &Env,
    kind: &str,
    name: &str,
    asked: &ForceDeleteTarget,
) -> Result<OverrideOutcome, FlowError> {
    let Some(reason) = reason(&asked.reason, asked.by.as_deref()) else { return Ok(incomplete()) };
    let answer = override_matching(env, kind, name, &reason, None, |_| OverrideScope::Open).await?;
    log_request("force-delete", kind, name, asked.by.as_deref(), &asked.reason, &answer);
    Ok(answer)
}

/// Logs what an operator asked for, and what became of it.
fn log_request(request: &str, kind: &str, name: &str, by: Option<&str>, reason: &str, answer: &OverrideOutcome) {
    match answer {
        OverrideOutcome::Overridden(OverrideResponse { run, units }) => {
            tracing::info!(kind, name, by, reason, run, ?units, "{request}: done");
        }
        OverrideOutcome::NotFound => {
            tracing::info!(kind, name, by, reason, "{request}: refused, the target is unknown")
        }
        OverrideOutcome::NotStuck(refusal) | OverrideOutcome::Incomplete(refusal) => {
            tracing::info!(kind, name, by, reason, refusal, "{request}: refused");
        }
    }
}

fn incomplete() -> OverrideOutcome {
    OverrideOutcome::Incomplete(format!(
        "`reason` has to say why, in 1 to {MAX_REASON} characters; `by` has at most {MAX_OPERATOR} characters"
    ))
}

fn reason(why: &str, by: Option<&str>) -> Option<FailureReason> {
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

/// The state in which a unit is overridden.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverrideScope {
    Nothing,
    Failed,
    /// When it is not done.
    Open,
}

async fn override_matching(
    env: &Env,
    kind: &str,
    name: &str,
    reason: &FailureReason,
    named: Option<&str>,
    choose: impl Fn(&str) -> OverrideScope,
) -> Result<OverrideOutcome, FlowError> {
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(OverrideOutcome::NotFound) };
    let stops = [Hook::PreStop, Hook::PostStop];
    let torn_down = matches!(target.phase, TargetPhase::Stuck | TargetPhase::Stopping);
    let not_stuck = || OverrideOutcome::NotStuck(not_stuck(&target));
    let Some(hook) = target.hook.filter(|hook| torn_down && stops.contains(hook)) else {
        return Ok(not_stuck());
    };
    let id = RunId::new(&id::instance_key(kind, name, &target.uid), target.generation, hook);
    let Some(run) = Run::load(env, &id).await? else { return Ok(not_stuck()) };
    let view = run.read_view(env).await?;
    // One that died half-way left the target stopping with a closed run, in which units may be open.
    let closed = view.root().is_some_and(|root| root.phase == RunPhase::Closed);
    if target.phase != TargetPhase::Stuck && !closed {
        return Ok(not_stuck());
    }
    let mut units = BTreeMap::new();
    for unit in run.graph().units() {
        let Some(plan) = run.unit(unit) else { continue };
        let is_open = match choose(&plan.key) {
            OverrideScope::Nothing => false,
            OverrideScope::Failed => {
                view.status(unit) == UnitProgress::Failed || (closed && is_in_flight(&run, &view, unit))
            }
            OverrideScope::Open => view.status(unit) != UnitProgress::Done,
        };
        if is_open {
            units.insert(unit, plan.key.clone());
        }
    }
    // An instance whose force delete was interrupted has no open unit left: its end is processed again.
    if units.is_empty() && (target.phase == TargetPhase::Stuck || view.any_failed()) {
        return Ok(OverrideOutcome::NotStuck(nothing_to_override(&run, &view, named)));
    }
    let list: Vec<Unit> = units.keys().copied().collect();
    if !reopen::override_units(env, &run, &view, &list, reason).await? {
        return Ok(not_stuck());
    }
    // What waited for them is sent from here: nobody else knows that nothing of it is under way.
    let view = run.read_view(env).await?;
    let unsent = lease::unsent(env, &run, in_flight(run.graph(), &view)).await?;
    let ready: Vec<_> = unsent.iter().filter(|one| !one.is_postponed).map(|one| one.unit_attempt).collect();
    if !ready.is_empty() {
        let epoch = head::epoch(&view);
        drive(env, Continuation { run, epoch, ready, outcome: None, cache: InvocationCache::default() }).await?;
    }
    Ok(OverrideOutcome::Overridden(OverrideResponse { run: id.to_string(), units: units.into_values().collect() }))
}

/// Returns why no unit of a target that is not stuck can be overridden, and what to do.
fn not_stuck(target: &TargetHead) -> String {
    let why = match target.phase {
        TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Failed => {
            "its teardown has not begun: delete it without --force first"
        }
        TargetPhase::Stopping | TargetPhase::Stuck => {
            "units of its teardown may be running: wait until they have succeeded or failed"
        }
        TargetPhase::Gone => "it is gone",
    };
    format!("{}/{} is not stuck: {why}", target.kind, target.name)
}

/// Returns why no unit of a run can be overridden; names the units that can.
fn nothing_to_override(run: &Run, view: &ebb_engine::RunView, named: Option<&str>) -> String {
    let failed = run.graph().units().filter(|&unit| view.status(unit) == UnitProgress::Failed);
    let failed: Vec<&str> = failed.filter_map(|unit| Some(run.unit(unit)?.key.as_str())).collect();
    let failed = if failed.is_empty() { "none".to_owned() } else { failed.join(", ") };
    match named {
        Some(named) => format!("`{named}` is not a failed unit of run {}; failed: {failed}", run.id),
        None => format!("run {} has no unit that is not done", run.id),
    }
}

fn is_in_flight(run: &Run, view: &ebb_engine::RunView, unit: Unit) -> bool {
    in_flight(run.graph(), view).iter().any(|(open, _)| *open == unit)
}
