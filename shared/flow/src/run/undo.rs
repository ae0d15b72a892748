//! What a unit that takes something away has to know: whether there is anything, and what it is called.
//!
//! Flow: read the earlier run's state, seal the undone units there, then read all their tries' records. A success that
//! arrives after the seal sees it and reopens the undo; one that arrived before is in the records.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::{Action, UnitPlan, UnitRef};
use ebb_documents::render::{KnownOutputs, ProducerState};
use ebb_engine::{Hook, Patch, PatchChange, Shard, Timestamp, Unit, retry};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::id::RunId;
use ebb_protocol::record::{AttemptOutcome, AttemptRecord, AttemptResult, OutputStorage};
use ebb_protocol::value::Outputs;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::AttemptRef;
use crate::run::head::Run;
use crate::run::inputs::{self, InvocationCache, ReadOutputs};
use crate::run::records;

/// What is to be done by an undo.
#[derive(Clone, Debug, PartialEq)]
pub enum UndoDecision {
    /// Nothing: what it takes away never started, or was skipped.
    Nothing(String),
    /// Nothing before this time: until then a request may still arrive whose sender has given up.
    Later(Timestamp),
    Remove {
        /// The outputs of the undone units; `None` for a unit that has not succeeded.
        made: BTreeMap<UnitRef, Option<OutputStorage>>,
        /// How many further things it has to take away after this one: successes of other tries with other outputs.
        remaining: u32,
        /// Until when a receiver that gave no answer may still act. Before, an answer that there is nothing is not final.
        may_act_until: Timestamp,
    },
}

/// Seals everything that `units` undo, with one write per item of the earlier runs, and reads the records of what it has
/// sealed, with one query for neighbours.
///
/// # Errors
/// The store's.
pub async fn seal(env: &Env, run: &Run, units: &[Unit], memory: &InvocationCache) -> Result<(), FlowError> {
    let undone = units.iter().filter_map(|&unit| run.unit(unit)).flat_map(|unit| unit.undoes.iter().copied());
    let mut patches: BTreeMap<(Hook, Shard), Vec<PatchChange>> = BTreeMap::new();
    let mut sealed: BTreeMap<Hook, Vec<Unit>> = BTreeMap::new();
    for at in memory.mark_sealed(undone) {
        let (shard, slot) = Shard::of(Unit(at.unit));
        patches.entry((at.hook.into(), shard)).or_default().push(PatchChange::AddSealed(slot));
        sealed.entry(at.hook.into()).or_default().push(Unit(at.unit));
    }
    for ((hook, shard), changes) in patches {
        let earlier = memory.earlier_run(env, run, hook).await?;
        if earlier.view.is_some() {
            let patch = Patch { shard, conditions: Vec::new(), changes };
            env.store.patch_run(&earlier.id, &patch).await?;
        }
    }
    for (hook, units) in sealed {
        let earlier = memory.earlier_run(env, run, hook).await?;
        if earlier.view.is_none() {
            continue;
        }
        for (unit, tries) in read_attempts(env, &earlier.id, &units).await? {
            memory.put_undone(UnitRef { hook: hook.into(), unit: unit.0 }, tries);
        }
    }
    Ok(())
}

/// The records of the tries of each of `units`.
async fn read_attempts(
    env: &Env,
    run: &RunId,
    units: &[Unit],
) -> Result<BTreeMap<Unit, Vec<AttemptRecord>>, FlowError> {
    let mut tries: BTreeMap<Unit, Vec<AttemptRecord>> = units.iter().map(|&unit| (unit, Vec::new())).collect();
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
    this: AttemptRef,
    memory: &InvocationCache,
) -> Result<UndoDecision, FlowError> {
    let mut by_hook: BTreeMap<Hook, Vec<Unit>> = BTreeMap::new();
    for at in &unit.undoes {
        by_hook.entry(at.hook.into()).or_default().push(Unit(at.unit));
    }
    let mut started = false;
    let mut landed = Timestamp(0);
    let mut possible = Timestamp(0);
    let mut variants: BTreeMap<UnitRef, Vec<OutputStorage>> = BTreeMap::new();
    for (hook, units) in by_hook {
        let earlier = memory.earlier_run(env, run, hook).await?;
        if earlier.view.is_none() {
            continue;
        }
        let place = |undone: Unit| UnitRef { hook: hook.into(), unit: undone.0 };
        let mut found: BTreeMap<Unit, Vec<AttemptRecord>> =
            units.iter().filter_map(|&unit| Some((unit, memory.take_undone(place(unit))?))).collect();
        let missing: Vec<Unit> = units.iter().copied().filter(|unit| !found.contains_key(unit)).collect();
        found.extend(read_attempts(env, &earlier.id, &missing).await?);
        for (undone, tries) in &found {
            let (undone, at) = (*undone, place(*undone));
            let tries: Vec<&AttemptRecord> = tries.iter().collect();
            let skipped = !tries.is_empty() && tries.iter().all(|record| had_no_effect(record));
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
            if let Some(undone) = run.loaded.plan.unit(at).filter(|unit| !unit.action.is_relayed()) {
                landed = tries.iter().filter_map(|record| in_flight_until(env, record)).fold(landed, Ord::max);
                let ends = tries.iter().filter_map(|record| processing_until(env, undone, record));
                possible = ends.fold(possible, Ord::max);
            }
            variants.insert(at, inputs::successes(&tries));
        }
    }
    if !started {
        let names: Vec<&str> = unit.undoes.iter().filter_map(|&at| key(run, at)).collect();
        return Ok(UndoDecision::Nothing(format!("nothing to take away: {} never started", names.join(", "))));
    }
    if landed > env.now() {
        return Ok(UndoDecision::Later(landed));
    }
    let count = match unit.action {
        // The objects of all tries go together.
        Action::Removal => 1,
        _ => variants.values().map(Vec::len).max().unwrap_or(0).max(1),
    };
    let index = if count > 1 { removed_before(env, run, unit, this).await? } else { 0 };
    let made = variants
        .into_iter()
        .map(|(at, mut list)| {
            let last = list.len().saturating_sub(1);
            (at, (!list.is_empty()).then(|| list.swap_remove(index.min(last))))
        })
        .collect();
    let more = u32::try_from(count.saturating_sub(index + 1)).unwrap_or(u32::MAX);
    Ok(UndoDecision::Remove { made, remaining: more, may_act_until: possible })
}

/// Reads what the undo `unit` reads of the outputs that were `made`.
///
/// # Errors
/// The store's; [`FlowError::Broken`] when the bucket lost some.
pub async fn undo_inputs(
    env: &Env,
    unit: &UnitPlan,
    made: BTreeMap<UnitRef, Option<OutputStorage>>,
) -> Result<KnownOutputs, FlowError> {
    let mut known: KnownOutputs = unit.undoes.iter().map(|&at| (at, ProducerState::Absent)).collect();
    let read: ReadOutputs = unit.reads.iter().collect();
    let keep = |at: &UnitRef, mut outputs: Outputs| {
        read.retain(*at, &mut outputs);
        records::produced(outputs)
    };
    let is_read = |at: UnitRef| unit.reads.iter().any(|read| read.at == at);
    // The undo gets no object from the bucket whose outputs it does not read.
    let made = made.into_iter().filter_map(|(at, kept)| {
        let kept = kept?;
        Some((at, if is_read(at) { kept } else { OutputStorage::Nothing }))
    });
    known.extend(records::read_all_outputs(env, made, keep).await?);
    Ok(known)
}

/// Whether a try surely did nothing: skipped, or never sent because it could not be. What a sweep has sent may have been
/// sent before, by whoever died then, and taken.
pub(crate) fn had_no_effect(record: &AttemptRecord) -> bool {
    let unsent = |result: &AttemptResult| {
        let code = result.reason.as_ref().map(|reason| reason.code);
        result.outcome == AttemptOutcome::Failed
            && record.started.is_none()
            && matches!(code, Some(ReasonCode::Render | ReasonCode::NotStartable))
    };
    let nothing = |result: &AttemptResult| result.outcome == AttemptOutcome::Skipped || unsent(result);
    record.further_results.is_empty() && record.result.as_ref().is_some_and(nothing)
}

/// Until when the request of a failed try may still arrive: nobody took it back when its answer did not come.
fn in_flight_until(env: &Env, record: &AttemptRecord) -> Option<Timestamp> {
    let failed = record.result.as_ref().filter(|result| result.outcome == AttemptOutcome::Failed)?;
    failed.unanswered.then(|| Timestamp(failed.at).plus(env.settings.max_in_flight))
}

/// Until when the receiver of a webhook may act on the request of a try that has no answer: failed, or cancelled. A success
/// that came later is an answer.
fn processing_until(env: &Env, unit: &UnitPlan, record: &AttemptRecord) -> Option<Timestamp> {
    let Action::Webhook(webhook) = &unit.action else { return None };
    if !record.further_results.is_empty() {
        return None;
    }
    let result = record.result.as_ref()?;
    let landed = match result.outcome {
        // The run was settled only after the landing time of its requests.
        AttemptOutcome::Cancelled => Timestamp(result.at),
        _ => in_flight_until(env, record)?,
    };
    Some(landed.plus(ebb_engine::Millis(webhook.max_processing_time_ms.unwrap_or(unit.timeout_ms))))
}

/// Returns how many further things the undo has to take away after the try `this`. What it undoes is sealed already.
///
/// # Errors
/// The store's.
pub async fn remaining(
    env: &Env,
    run: &Run,
    unit: &UnitPlan,
    this: AttemptRef,
    memory: &InvocationCache,
) -> Result<u32, FlowError> {
    Ok(match decide(env, run, unit, this, memory).await? {
        UndoDecision::Remove { remaining: more, .. } => more,
        UndoDecision::Nothing(_) | UndoDecision::Later(_) => 0,
    })
}

fn key(run: &Run, at: UnitRef) -> Option<&str> {
    Some(run.loaded.plan.unit(at)?.key.as_str())
}

/// Returns how many things the undo has taken away in this pass before the try `this`: one in each block of tries before that
/// of `this`, back to the last block without a success. A reopened undo leaves a block out: a try of the pass before whose
/// success is recorded late does not count.
async fn removed_before(env: &Env, run: &Run, unit: &UnitPlan, this: AttemptRef) -> Result<usize, FlowError> {
    let block = |attempt| retry::attempt_block(attempt, unit.retry.attempts);
    let tries = env.store.read_records(&run.id, &[this.unit]).await?;
    let succeeded = |record: &AttemptRecord| record.result.as_ref().is_some_and(AttemptResult::has_more);
    let successes = tries.iter().filter(|(_, _, record)| succeeded(record));
    let blocks: BTreeSet<u32> = successes.map(|(_, attempt, _)| block(*attempt)).collect();
    Ok((0..block(this.attempt)).rev().take_while(|block| blocks.contains(block)).count())
}

/// The undo units of `undone`, as far as they belong to the run of `hook`.
pub fn undo_units(run: &Run, hook: Hook, undone: UnitRef) -> Vec<Unit> {
    let Some((hook_plan, _)) = run.loaded.hook_plan(hook) else { return Vec::new() };
    let positions = hook_plan.units.iter().zip(0..).filter(|(unit, _)| unit.undoes.contains(&undone));
    positions.map(|(_, position)| Unit(position)).collect()
}
