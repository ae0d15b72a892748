//! What a unit that takes something away has to know: whether there is anything, and what it is called.
//!
//! Flow: read the earlier run's state, seal the undone units there, then read all their tries' records. A success that
//! arrives after the seal sees it and reopens the undo; one that arrived before is in the records.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Change, Moment, Patch, Shard, Timestamp, Unit, retry};
use ebb_spec::plan::{UnitAt, UnitPlan, Work};
use ebb_spec::render::{Known, Produced};
use ebb_wire::callback::ReasonCode;
use ebb_wire::id::RunId;
use ebb_wire::record::{Kept, Record, TryResult, Verdict};
use ebb_wire::value::Outputs;

use crate::dispatch::Try;
use crate::env::Env;
use crate::error::FlowError;
use crate::inputs::{self, Memory, ReadOutputs};
use crate::records;
use crate::run::Run;
use crate::switch::{self, Rule};

/// What is to be done by an undo.
#[derive(Clone, Debug, PartialEq)]
pub enum Undo {
    /// Nothing: what it takes away never started, or was skipped.
    Nothing(String),
    /// Nothing before this time: until then a request may still arrive whose sender has given up.
    Later(Timestamp),
    Something {
        /// The outputs of the undone units; `None` for a unit that has not succeeded.
        made: BTreeMap<UnitAt, Option<Kept>>,
        /// How many further things it has to take away after this one: successes of other tries with other outputs.
        more: u32,
        /// Until when a receiver that gave no answer may still act. Before, an answer that there is nothing is not final.
        possible: Timestamp,
    },
}

/// Seals everything that `units` undo, with one write per item of the earlier runs, and reads the records of what it has
/// sealed, with one query for neighbours.
///
/// # Errors
/// The store's.
pub async fn seal(env: &Env, run: &Run, units: &[Unit], memory: &Memory) -> Result<(), FlowError> {
    if !switch::holds(Rule::SealBeforeRead) {
        return Ok(());
    }
    let undone = units.iter().filter_map(|&unit| run.unit(unit)).flat_map(|unit| unit.undoes.iter().copied());
    let mut patches: BTreeMap<(Moment, Shard), Vec<Change>> = BTreeMap::new();
    let mut sealed: BTreeMap<Moment, Vec<Unit>> = BTreeMap::new();
    for at in memory.seal(undone) {
        let (shard, slot) = Shard::of(Unit(at.unit));
        patches.entry((at.moment.into(), shard)).or_default().push(Change::AddSealed(slot));
        sealed.entry(at.moment.into()).or_default().push(Unit(at.unit));
    }
    for ((moment, shard), changes) in patches {
        let earlier = memory.earlier(env, run, moment).await?;
        if earlier.view.is_some() {
            let patch = Patch { shard, conditions: Vec::new(), changes };
            env.store.patch_run(&earlier.id, &patch).await?;
        }
    }
    for (moment, units) in sealed {
        let earlier = memory.earlier(env, run, moment).await?;
        if earlier.view.is_none() {
            continue;
        }
        for (unit, tries) in tries_of(env, &earlier.id, &units).await? {
            memory.keep_undone(UnitAt { moment: moment.into(), unit: unit.0 }, tries);
        }
    }
    Ok(())
}

/// The records of the tries of each of `units`.
async fn tries_of(env: &Env, run: &RunId, units: &[Unit]) -> Result<BTreeMap<Unit, Vec<Record>>, FlowError> {
    let mut tries: BTreeMap<Unit, Vec<Record>> = units.iter().map(|&unit| (unit, Vec::new())).collect();
    if units.is_empty() {
        return Ok(tries);
    }
    for (unit, _, record) in env.store.read_records(run, units).await? {
        tries.entry(unit).or_default().push(record);
    }
    Ok(tries)
}

/// Returns what the try `this` of the undo `unit` has to do. Its undone units are sealed already. A try that is sent again has
/// to do the same, also when its result is recorded.
///
/// # Errors
/// The store's.
pub async fn decide(
    env: &Env,
    run: &Run,
    unit: &UnitPlan,
    this: Try,
    memory: &Memory,
) -> Result<Undo, FlowError> {
    let mut by_moment: BTreeMap<Moment, Vec<Unit>> = BTreeMap::new();
    for at in &unit.undoes {
        by_moment.entry(at.moment.into()).or_default().push(Unit(at.unit));
    }
    let mut started = false;
    let mut landed = Timestamp(0);
    let mut possible = Timestamp(0);
    let mut variants: BTreeMap<UnitAt, Vec<Kept>> = BTreeMap::new();
    for (moment, units) in by_moment {
        let earlier = memory.earlier(env, run, moment).await?;
        if earlier.view.is_none() {
            continue;
        }
        let place = |undone: Unit| UnitAt { moment: moment.into(), unit: undone.0 };
        let mut found: BTreeMap<Unit, Vec<Record>> =
            units.iter().filter_map(|&unit| Some((unit, memory.take_undone(place(unit))?))).collect();
        let missing: Vec<Unit> = units.iter().copied().filter(|unit| !found.contains_key(unit)).collect();
        found.extend(tries_of(env, &earlier.id, &missing).await?);
        for (undone, tries) in &found {
            let (undone, at) = (*undone, place(*undone));
            let mut tries: Vec<&Record> = tries.iter().collect();
            if !switch::holds(Rule::UndoEveryAttempt) {
                tries = tries.split_off(tries.len().saturating_sub(1));
            }
            if tries.is_empty() && !switch::holds(Rule::UndoTheUnknown) {
                continue;
            }
            let skipped = !tries.is_empty() && tries.iter().all(|record| is_skipped(record));
            if skipped || (tries.is_empty() && !earlier.may_have_started(undone)) {
                continue;
            }
            started = true;
            let excess = tries.iter().map(|record| record.excess).sum::<u64>();
            if excess > 0 {
                tracing::warn!(
                    run = %run.id, unit = unit.key, excess,
                    "the undone unit reported more distinct results than are kept; the further ones are not undone"
                );
            }
            // A relay lets nothing of a superseded try begin.
            if let Some(undone) = run.loaded.plan.unit(at).filter(|unit| !unit.work.is_relayed()) {
                landed = tries.iter().filter_map(|record| lands_until(env, record)).fold(landed, Ord::max);
                let acts = tries.iter().filter_map(|record| acts_until(env, undone, record));
                possible = acts.fold(possible, Ord::max);
            }
            variants.insert(at, inputs::successes(&tries));
        }
    }
    if !started {
        let names: Vec<&str> = unit.undoes.iter().filter_map(|&at| key(run, at)).collect();
        return Ok(Undo::Nothing(format!("nothing to take away: {} never started", names.join(", "))));
    }
    if landed > env.now() && switch::holds(Rule::WaitForLanding) {
        return Ok(Undo::Later(landed));
    }
    let count = match unit.work {
        // The objects of all tries go together.
        Work::Removal => 1,
        _ => variants.values().map(Vec::len).max().unwrap_or(0).max(1),
    };
    let index = if count > 1 { taken_away(env, run, unit, this).await? } else { 0 };
    let made = variants
        .into_iter()
        .map(|(at, mut list)| {
            let last = list.len().saturating_sub(1);
            (at, (!list.is_empty()).then(|| list.swap_remove(index.min(last))))
        })
        .collect();
    let more = u32::try_from(count.saturating_sub(index + 1)).unwrap_or(u32::MAX);
    Ok(Undo::Something { made, more, possible })
}

/// Reads what the undo `unit` reads of the outputs that were `made`.
///
/// # Errors
/// The store's; [`FlowError::Broken`] when the bucket lost some.
pub async fn known(
    env: &Env,
    unit: &UnitPlan,
    made: BTreeMap<UnitAt, Option<Kept>>,
) -> Result<Known, FlowError> {
    let mut known: Known = unit.undoes.iter().map(|&at| (at, Produced::Absent)).collect();
    let read: ReadOutputs = unit.reads.iter().collect();
    let keep = |at: &UnitAt, mut outputs: Outputs| {
        read.retain(*at, &mut outputs);
        records::produced(outputs)
    };
    let is_read = |at: UnitAt| unit.reads.iter().any(|read| read.at == at);
    // The undo gets no object from the bucket whose outputs it does not read.
    let made = made.into_iter().filter_map(|(at, kept)| {
        let kept = kept?;
        Some((at, if is_read(at) { kept } else { Kept::Nothing }))
    });
    known.extend(records::all_outputs(env, made, keep).await?);
    Ok(known)
}

/// Whether a try surely did nothing: skipped, or never sent because it could not be. What a sweep has sent may have been
/// sent before, by whoever died then, and taken.
pub(crate) fn is_skipped(record: &Record) -> bool {
    let unsent = |result: &TryResult| {
        let code = result.reason.as_ref().map(|reason| reason.code);
        result.verdict == Verdict::Failed
            && record.started.is_none()
            && matches!(code, Some(ReasonCode::Render | ReasonCode::NotStartable))
    };
    let nothing = |result: &TryResult| result.verdict == Verdict::Skipped || unsent(result);
    record.others.is_empty() && record.result.as_ref().is_some_and(nothing)
}

/// Until when the request of a failed try may still arrive: nobody took it back when its answer did not come.
fn lands_until(env: &Env, record: &Record) -> Option<Timestamp> {
    let failed = record.result.as_ref().filter(|result| result.verdict == Verdict::Failed)?;
    failed.unanswered.then(|| Timestamp(failed.at).plus(env.settings.landing))
}

/// Until when the receiver of a webhook may act on the request of a try that has no answer: failed, or cancelled. A success
/// that came later is an answer.
fn acts_until(env: &Env, unit: &UnitPlan, record: &Record) -> Option<Timestamp> {
    let Work::Webhook(webhook) = &unit.work else { return None };
    if !record.others.is_empty() {
        return None;
    }
    let result = record.result.as_ref()?;
    let landed = match result.verdict {
        // The run was settled only after the landing time of its requests.
        Verdict::Cancelled => Timestamp(result.at),
        _ => lands_until(env, record)?,
    };
    Some(landed.plus(ebb_engine::Millis(webhook.acts_within_ms.unwrap_or(unit.timeout_ms))))
}

/// Returns how many further things the undo has to take away after the try `this`. What it undoes is sealed already.
///
/// # Errors
/// The store's.
pub async fn more(
    env: &Env,
    run: &Run,
    unit: &UnitPlan,
    this: Try,
    memory: &Memory,
) -> Result<u32, FlowError> {
    Ok(match decide(env, run, unit, this, memory).await? {
        Undo::Something { more, .. } => more,
        Undo::Nothing(_) | Undo::Later(_) => 0,
    })
}

fn key(run: &Run, at: UnitAt) -> Option<&str> {
    Some(run.loaded.plan.unit(at)?.key.as_str())
}

/// Returns how many things the undo has taken away in this pass before the try `this`: one in each block of tries before that
/// of `this`, back to the last block without a success. A reopened undo leaves a block out: a try of the pass before whose
/// success is recorded late does not count.
async fn taken_away(env: &Env, run: &Run, unit: &UnitPlan, this: Try) -> Result<usize, FlowError> {
    let block = |attempt| retry::block(attempt, unit.retry.attempts);
    let tries = env.store.read_records(&run.id, &[this.unit]).await?;
    let succeeded = |record: &Record| record.result.as_ref().is_some_and(TryResult::has_more);
    let successes = tries.iter().filter(|(_, _, record)| succeeded(record));
    let blocks: BTreeSet<u32> = successes.map(|(_, attempt, _)| block(*attempt)).collect();
    Ok((0..block(this.attempt)).rev().take_while(|block| blocks.contains(block)).count())
}

/// The undo units of `undone`, as far as they belong to the run of `moment`.
pub fn undoing(run: &Run, moment: Moment, undone: UnitAt) -> Vec<Unit> {
    let Some((event, _)) = run.loaded.event(moment) else { return Vec::new() };
    let positions = event.units.iter().zip(0..).filter(|(unit, _)| unit.undoes.contains(&undone));
    positions.map(|(_, position)| Unit(position)).collect()
}
