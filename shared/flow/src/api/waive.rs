//! What an operator lets go: one failed unit of a teardown, or all that is left of it.
//!
//! What a waived unit takes away may still exist. It is recorded as the result of a try of its own, and what it was to
//! take away stays in the list of what may exist.

use std::collections::BTreeMap;

use ebb_engine::follow::in_flight;
use ebb_engine::{Moment, RunPhase, Status, TargetPhase, Unit};
use ebb_store::TargetHead;
use ebb_wire::api::{Abandon, Skip, Waived};
use ebb_wire::callback::{Reason, ReasonCode};
use ebb_wire::id::{self, RunId};
use ebb_wire::limits;
use ebb_wire::record::{Record, Verdict};

use crate::claim;
use crate::drive::{Work, drive};
use crate::env::Env;
use crate::error::FlowError;
use crate::inputs::Memory;
use crate::reopen;
use crate::run::{self, Run};

const REASON: usize = 500;
/// Longest name of an operator, in characters.
const BY: usize = 100;

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
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
    Keep,
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
    let not_stuck = || Answer::NotStuck(not_stuck(&target));
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

/// Returns why nothing of a target can be waived that is not stuck, and what to do.
fn not_stuck(target: &TargetHead) -> String {
    let why = match target.phase {
        TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Failed => {
            "its teardown has not begun: delete it first"
        }
        TargetPhase::Stopping | TargetPhase::Stuck => {
            "units of its teardown may be running: wait until they have succeeded or failed"
        }
        TargetPhase::Gone => "it is gone",
    };
    format!("{}/{} is not stuck: {why}", target.kind, target.name)
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

/// Returns the reason with which a unit was waived, by its records in the order of tries. `None` if its last result is not a
/// waiver, or if the try that was under way has succeeded since.
pub(crate) fn waiver(records: &[Record]) -> Option<&Reason> {
    let mut ended = records.iter().rev().filter(|record| record.result.is_some());
    let last = ended.next()?;
    let reason = last.result.as_ref()?.reason.as_ref().filter(|reason| reason.code == ReasonCode::Waived)?;
    let before = ended.next().filter(|record| verdict(record) == Some(Verdict::Failed));
    let has_succeeded = [Some(last), before].into_iter().flatten().any(succeeded_later);
    (!has_succeeded).then_some(reason)
}

/// True if a unit was waived while its receiver may have been working on it: the last request got no answer.
pub(crate) fn is_open(records: &[Record]) -> bool {
    let results = records.iter().rev().filter_map(|record| record.result.as_ref());
    results.skip(1).take(1).any(|result| result.unanswered)
}

fn verdict(record: &Record) -> Option<Verdict> {
    record.result.as_ref().map(|result| result.verdict)
}

/// True if a success arrived after the try had another result.
fn succeeded_later(record: &Record) -> bool {
    record.others.iter().any(|other| other.verdict == Verdict::Succeeded && other.next.is_none())
}

#[cfg(test)]
mod tests {
    use ebb_wire::record::{Kept, TryResult};

    use super::*;

    fn result(verdict: Verdict, code: Option<ReasonCode>) -> TryResult {
        TryResult {
            verdict,
            at: 1,
            took_ms: None,
            outputs: Kept::Nothing,
            reason: code.map(|code| Reason { code, message: "why".to_owned() }),
            evidence: None,
            next: None,
            log: false,
            unanswered: code == Some(ReasonCode::Timeout),
            digest: String::new(),
        }
    }

    fn record(first: TryResult, others: &[TryResult]) -> Record {
        Record { result: Some(first), others: others.to_vec(), ..Record::default() }
    }

    #[test]
    fn a_late_success_of_the_last_try_ends_a_waiver() {
        let waived = || result(Verdict::Skipped, Some(ReasonCode::Waived));
        let failed = || result(Verdict::Failed, Some(ReasonCode::Timeout));
        let done = || result(Verdict::Succeeded, None);
        let more = || TryResult { next: Some(2), ..done() };
        let rows: [(&[Record], bool); 8] = [
            (&[record(failed(), &[])], false),
            (&[record(waived(), &[])], true),
            (&[record(failed(), &[]), record(waived(), &[])], true),
            (&[record(failed(), &[done()]), record(waived(), &[])], false),
            (&[record(waived(), &[done()])], false),
            (&[record(failed(), &[more()]), record(waived(), &[])], true),
            // It was done, and a late success of the unit that it undoes reopened it.
            (&[record(done(), &[done()]), record(waived(), &[])], true),
            (&[record(waived(), &[]), record(done(), &[])], false),
        ];
        for (records, expected) in rows {
            assert_eq!(waiver(records).is_some(), expected, "{records:?}");
        }
        assert!(is_open(&[record(failed(), &[]), record(waived(), &[])]));
        assert!(!is_open(&[record(failed(), &[]), record(failed(), &[]), record(done(), &[])][2..]));
    }
}
