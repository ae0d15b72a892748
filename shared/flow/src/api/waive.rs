//! What an operator lets go: one failed unit of a teardown, or all that is left of it.
//!
//! What a waived unit takes away may still exist. It is recorded as the result of a try of its own, and what it was to
//! take away stays in the list of what may exist.

use std::collections::BTreeMap;

use ebb_engine::follow::in_flight;
use ebb_engine::{Moment, RunPhase, Status, TargetPhase, Unit};
use ebb_wire::api::{Abandon, Skip, Waived};
use ebb_wire::callback::{Reason, ReasonCode};
use ebb_wire::id::{self, RunId};
use ebb_wire::limits;
use ebb_wire::record::Record;

use crate::claim;
use crate::drive::{Work, drive};
use crate::env::Env;
use crate::error::FlowError;
use crate::inputs::Memory;
use crate::reopen;
use crate::run::{self, Run};

/// Longest reason, in characters.
const REASON: usize = 500;
/// Longest name of an operator, in characters.
const BY: usize = 100;

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These units count as over.
    Waived(Waived),
    /// There is no such target.
    Unknown,
    /// It cannot be let go; why.
    NotStuck(String),
    /// The request lacks something; what.
    Incomplete(String),
}

/// Lets a unit count as over that has failed for good in the teardown of a stuck target. The teardown goes on.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn skip(env: &Env, kind: &str, name: &str, asked: &Skip) -> Result<Answer, FlowError> {
    let Some(reason) = reason(&asked.reason, asked.by.as_deref()) else { return Ok(incomplete()) };
    let choose = |key: &str| if key == asked.unit { Waiver::Failed } else { Waiver::Keep };
    let answer = waive(env, kind, name, &reason, Some(&asked.unit), choose).await?;
    note("skip", kind, name, asked.by.as_deref(), &asked.reason, &answer);
    Ok(answer)
}

/// Lets all units count as over that are not done in the event whose teardown has given up. The target is gone then,
/// or goes on with the event after it.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn abandon(env: &Env, kind: &str, name: &str, asked: &Abandon) -> Result<Answer, FlowError> {
    let Some(reason) = reason(&asked.reason, asked.by.as_deref()) else { return Ok(incomplete()) };
    let answer = waive(env, kind, name, &reason, None, |_| Waiver::Open).await?;
    note("abandon", kind, name, asked.by.as_deref(), &asked.reason, &answer);
    Ok(answer)
}

/// Logs what an operator asked for, and what became of it.
fn note(request: &str, kind: &str, name: &str, by: Option<&str>, reason: &str, answer: &Answer) {
    match answer {
        Answer::Waived(Waived { run, units }) => {
            tracing::info!(kind, name, by, reason, run, ?units, "{request}: done");
        }
        Answer::Unknown => {
            tracing::info!(kind, name, by, reason, "{request}: refused, the target is unknown")
        }
        Answer::NotStuck(why) | Answer::Incomplete(why) => {
            tracing::info!(kind, name, by, reason, why, "{request}: refused");
        }
    }
}

fn incomplete() -> Answer {
    Answer::Incomplete(format!(
        "`reason` has to say why, in 1 to {REASON} characters; `by` has at most {BY} characters"
    ))
}

fn reason(why: &str, by: Option<&str>) -> Option<Reason> {
    let (why, by) = (why.trim(), by.map(str::trim).filter(|by| !by.is_empty()));
    if why.is_empty() || why.chars().count() > REASON || by.is_some_and(|by| by.chars().count() > BY) {
        return None;
    }
    let message = match by {
        Some(by) => format!("waived by {by}: {why}"),
        None => format!("waived by an operator: {why}"),
    };
    Some(Reason { code: ReasonCode::Waived, message: limits::message(&message) })
}

/// In which state a unit is let go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiver {
    /// In none.
    Keep,
    /// When it has failed.
    Failed,
    /// When it is not done.
    Open,
}

async fn waive(
    env: &Env,
    kind: &str,
    name: &str,
    reason: &Reason,
    named: Option<&str>,
    choose: impl Fn(&str) -> Waiver,
) -> Result<Answer, FlowError> {
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(Answer::Unknown) };
    let stops = [Moment::BeforeStop, Moment::AfterStop];
    let torn_down = matches!(target.phase, TargetPhase::Stuck | TargetPhase::Stopping);
    let not_stuck = || Answer::NotStuck(format!("{kind}/{name} is not stuck"));
    let Some(moment) = target.moment.filter(|moment| torn_down && stops.contains(moment)) else {
        return Ok(not_stuck());
    };
    let id = RunId::new(&id::life(kind, name, &target.uid), target.generation, moment);
    let Some(run) = Run::load(env, &id).await? else { return Ok(not_stuck()) };
    let view = run.look(env).await?;
    // One that died half-way left the target stopping with a closed run, in which units may be open.
    let closed = view.root().is_some_and(|root| root.phase == RunPhase::Closed);
    if target.phase != TargetPhase::Stuck && !closed {
        return Ok(not_stuck());
    }
    let mut units = BTreeMap::new();
    for unit in run.graph().units() {
        let Some(plan) = run.unit(unit) else { continue };
        let is_open = match choose(&plan.key) {
            Waiver::Keep => false,
            Waiver::Failed => {
                view.status(unit) == Status::Failed || (closed && is_in_flight(&run, &view, unit))
            }
            Waiver::Open => view.status(unit) != Status::Done,
        };
        if is_open {
            units.insert(unit, plan.key.clone());
        }
    }
    // A life that was abandoned, and whose end nobody has seen to, has nothing left but to be looked at.
    if units.is_empty() && (target.phase == TargetPhase::Stuck || view.any_failed()) {
        return Ok(Answer::NotStuck(nothing_to_waive(&run, &view, named)));
    }
    let list: Vec<Unit> = units.keys().copied().collect();
    if !reopen::waive(env, &run, &view, &list, reason).await? {
        return Ok(not_stuck());
    }
    // What waited for them is sent from here: nobody else knows that nothing of it is under way.
    let view = run.look(env).await?;
    let unsent = claim::unsent(env, &run, in_flight(run.graph(), &view)).await?;
    let ready: Vec<_> = unsent.iter().filter(|one| !one.is_put_off).map(|one| one.try_of).collect();
    if !ready.is_empty() {
        let epoch = run::epoch(&view);
        drive(env, Work { run, epoch, ready, over: None, memory: Memory::default() }).await?;
    }
    Ok(Answer::Waived(Waived { run: id.to_string(), units: units.into_values().collect() }))
}

/// Why nothing of a run can be waived; names the units that can.
fn nothing_to_waive(run: &Run, view: &ebb_engine::View, named: Option<&str>) -> String {
    let failed = run.graph().units().filter(|&unit| view.status(unit) == Status::Failed);
    let failed: Vec<&str> = failed.filter_map(|unit| Some(run.unit(unit)?.key.as_str())).collect();
    let failed = if failed.is_empty() { "none".to_owned() } else { failed.join(", ") };
    match named {
        Some(named) => format!("`{named}` is not a failed unit of run {}; failed: {failed}", run.id),
        None => format!("run {} has no unit that is not done", run.id),
    }
}

fn is_in_flight(run: &Run, view: &ebb_engine::View, unit: Unit) -> bool {
    in_flight(run.graph(), view).iter().any(|(open, _)| *open == unit)
}

/// Whether the last try of a unit was let go, by its records.
pub fn is_waived<'a>(records: impl IntoIterator<Item = &'a Record>) -> bool {
    let results = records.into_iter().filter_map(|record| record.result.as_ref());
    let last = results.max_by_key(|result| result.at).and_then(|result| result.reason.as_ref());
    last.is_some_and(|reason| reason.code == ReasonCode::Waived)
}
