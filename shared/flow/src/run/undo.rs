//! Decides what an undo removes.
//!
//! 1. Read the state of the earlier run.
//! 2. Seal the undone units in it (rule SealBeforeRead), unless they are sealed. A success that arrives later finds the
//!    seal and reopens the undo.
//! 3. Read the records of all attempts of the undone units (rule UndoEveryAttempt).

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::{Action, InfrakitAction, PluginInterface, UnitPlan, UnitRef, WebhookAction};
use ebb_documents::render::{KnownOutputs, ProducerState};
use ebb_engine::{Attempt, Hook, Millis, Patch, PatchChange, Timestamp, Unit, UnitProgress, retry};
use ebb_protocol::{AttemptOutcome, AttemptRecord, AttemptResult, OutputStorage, Outputs, ReasonCode, RunId};

use crate::run::invocation_cache::ReadOutputs;
use crate::run::{AttemptContext, InvocationCache, inputs, records};
use crate::{EarlierRun, Env, FlowResult, Run, group, lock};

/// The longest wait for a provider to show a new thing.
const MAX_SHOWN_WAIT: Millis = Millis(5 * 60_000);

/// The reason why an attempt is not dispatched now.
#[derive(Clone, Debug, PartialEq)]
pub enum NoDispatch {
    /// There is nothing to do. The value is the reason.
    Skipped(String),
    /// A request without a response may still arrive until this time.
    Later(Timestamp),
}

/// The outputs of the undone units that have succeeded.
type MadeOutputs = BTreeMap<UnitRef, OutputStorage>;

/// One result of the undone units, which an undo removes. It is empty for a unit that undoes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UndoneResult {
    pub instances: MadeInstances,
    /// The number of distinct results that remain after this one.
    pub remaining: u32,
    /// The time until which a receiver without a response may still act. Until then, a response *not found* is not final.
    pub may_act_until: Timestamp,
    /// The time until which a provider that has answered may not show the thing yet, as its `maxProcessingTime` says. Until
    /// then, *not found* is not final, unless an answer has shown the thing.
    pub shown_by: Timestamp,
    /// True if the server of each undone unit has rejected all its requests.
    pub is_rejected: bool,
}

/// What InfraKit plugins have made for the undone units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MadeInstances {
    /// The IDs in the records of all attempts.
    pub ids: BTreeSet<String>,
    /// The time until which the plugin may not list one of them yet.
    pub listed_by: Timestamp,
    /// True if an attempt without a recorded ID may have made something.
    pub may_be_more: bool,
}

impl MadeInstances {
    /// Adds what the attempts of one unit have made, of which one may have started.
    fn add(&mut self, action: &InfrakitAction, attempts: &[&AttemptRecord]) {
        // No record shows that a controller got its request.
        self.may_be_more |= action.interface == PluginInterface::Controller;
        for record in attempts {
            let recorded = record.results().flat_map(|result| &result.made).chain(&record.instances.made);
            let ids: BTreeSet<String> = recorded.cloned().collect();
            if ids.is_empty() {
                // The plugin did not get a request that was not startable. One that it has rejected may have made a part.
                if record.posted.is_none() || records::has_code(record, ReasonCode::NotStartable) {
                    continue;
                }
                self.may_be_more = true;
            }
            let made_at = record.results().map(|result| result.at).chain(record.posted).max().unwrap_or_default();
            self.listed_by = self.listed_by.max(made_at.plus(Millis(action.max_processing_time_ms)));
            self.ids.extend(ids);
        }
    }
}

/// Seals the units that `units` undo, with all other units of their runs that the run undoes: one write per earlier run is
/// enough for the whole run. Then reads the records of the units that `units` undo, with one query per range of units.
pub async fn seal(env: &Env, run: &Run, units: &[Unit], cache: &InvocationCache) -> FlowResult<()> {
    let undone = units.iter().filter_map(|&unit| run.unit(unit)).flat_map(|unit| unit.undoes.iter().copied());
    let sealed = undone.filter(|&at| lock(&cache.sealed).insert(at)).map(|at| (at.hook, Unit(at.unit)));
    for (hook, units) in group(sealed) {
        let earlier = cache.earlier_run(env, run, hook).await?;
        let Some(head) = &earlier.head else { continue };
        if lock(&cache.sealed_runs).insert(hook) {
            let all = run.hook_plan().units.iter().flat_map(|unit| &unit.undoes).filter(|at| at.hook == hook);
            // The records are read after this head, so a seal in it is as good as a new one.
            let unsealed = all.map(|at| Unit(at.unit)).filter(|unit| !head.sealed.contains(unit));
            let changes: Vec<PatchChange> = unsealed.map(PatchChange::AddSealed).collect();
            if !changes.is_empty() {
                env.store.patch_run(&earlier.id, &Patch { conditions: Vec::new(), changes }).await?;
            }
        }
        for (unit, attempts) in read_attempts(env, &earlier.id, &units).await? {
            lock(&cache.undone).insert(UnitRef { hook, unit: unit.0 }, attempts);
        }
    }
    Ok(())
}

async fn read_attempts(env: &Env, run: &RunId, units: &[Unit]) -> FlowResult<BTreeMap<Unit, Vec<AttemptRecord>>> {
    let mut attempts: BTreeMap<Unit, Vec<AttemptRecord>> = units.iter().map(|&unit| (unit, Vec::new())).collect();
    for (unit, _, record) in env.store.read_records(run, units).await? {
        attempts.entry(unit).or_default().push(record);
    }
    Ok(attempts)
}

/// Returns what an attempt of an undo removes, whose undone units are sealed. A repetition of the attempt gets the same,
/// even if its result is recorded.
pub async fn decide(context: AttemptContext<'_>) -> FlowResult<Result<(MadeOutputs, UndoneResult), NoDispatch>> {
    let AttemptContext { env, run, unit, cache, .. } = context;
    let mut started = false;
    let mut is_rejected = true;
    let mut arrives_by = Timestamp(0);
    let mut may_act_until = Timestamp(0);
    let mut shown_by = Timestamp(0);
    let mut variants: BTreeMap<UnitRef, Vec<OutputStorage>> = BTreeMap::new();
    let mut instances = MadeInstances::default();
    for (hook, units) in group(unit.undoes.iter().map(|at| (at.hook, Unit(at.unit)))) {
        let earlier = cache.earlier_run(env, run, hook).await?;
        if earlier.head.is_none() {
            continue;
        }
        let unit_ref = |undone: Unit| UnitRef { hook, unit: undone.0 };
        let mut found: BTreeMap<Unit, Vec<AttemptRecord>> =
            units.iter().filter_map(|&unit| Some((unit, lock(&cache.undone).remove(&unit_ref(unit))?))).collect();
        let missing: Vec<Unit> = units.iter().copied().filter(|unit| !found.contains_key(unit)).collect();
        found.extend(read_attempts(env, &earlier.id, &missing).await?);
        for (undone, attempts) in &found {
            let (undone, at) = (*undone, unit_ref(*undone));
            let attempts: Vec<&AttemptRecord> = attempts.iter().collect();
            let skipped = !attempts.is_empty() && attempts.iter().all(|record| had_no_effect(record));
            if skipped || (attempts.is_empty() && !earlier.may_have_started(undone)) {
                continue;
            }
            started = true;
            is_rejected &= was_rejected(run, &earlier, at, &attempts);
            let excess = attempts.iter().map(|record| record.excess).sum::<u64>();
            if excess > 0 {
                tracing::warn!(
                    run = %run.id, unit = unit.key, excess,
                    "the undone unit reported too many distinct results; further ones are not undone"
                );
            }
            // A relay does not start a superseded attempt.
            if let Some(undone) = run.loaded.plan.unit(at).filter(|unit| !unit.action.is_relayed()) {
                arrives_by =
                    attempts.iter().filter_map(|record| in_flight_until(env, record)).fold(arrives_by, Ord::max);
                let ends = attempts.iter().filter_map(|record| processing_until(env, undone, record));
                may_act_until = ends.fold(may_act_until, Ord::max);
                if let Action::Webhook(WebhookAction { max_processing_time_ms: Some(ms), .. }) = undone.action {
                    let made_at = attempts.iter().filter_map(|record| made_at(record));
                    shown_by = made_at.map(|at| at.plus(Millis(ms).min(MAX_SHOWN_WAIT))).fold(shown_by, Ord::max);
                }
            }
            if let Some(Action::Infrakit(action)) = run.loaded.plan.unit(at).map(|unit| &unit.action) {
                instances.add(action, &attempts);
            }
            variants.insert(at, inputs::successes(&attempts));
        }
    }
    if !started {
        let names = unit.undoes.iter().filter_map(|&at| Some(run.loaded.plan.unit(at)?.key.as_str()));
        let names: Vec<&str> = names.collect();
        return Ok(Err(NoDispatch::Skipped(format!("nothing to undo: {} never started", names.join(", ")))));
    }
    if arrives_by > env.now() {
        return Ok(Err(NoDispatch::Later(arrives_by)));
    }
    let count = match unit.action {
        // A removal deletes the objects of all attempts together, and a destroy everything with the tag of the unit.
        Action::Removal | Action::Destroy => 1,
        _ => variants.values().map(Vec::len).max().unwrap_or(0).max(1),
    };
    let index = if count > 1 { removed_before(context).await? } else { 0 };
    let made = variants.into_iter().filter_map(|(at, mut list)| {
        let last = list.len().checked_sub(1)?;
        Some((at, list.swap_remove(index.min(last))))
    });
    let remaining = u32::try_from(count.saturating_sub(index + 1)).unwrap_or(u32::MAX);
    let undone = UndoneResult { instances, remaining, may_act_until, shown_by, is_rejected };
    Ok(Ok((made.collect(), undone)))
}

/// Reads the outputs in `made` that the undo `unit` uses.
///
/// # Errors
/// Returns [`FlowError::Broken`](crate::FlowError::Broken) if an object is missing or invalid.
pub(crate) async fn undo_inputs(
    AttemptContext { env, run, unit, .. }: AttemptContext<'_>,
    made: MadeOutputs,
) -> FlowResult<KnownOutputs> {
    let mut known: KnownOutputs = unit.undoes.iter().map(|&at| (at, ProducerState::Absent)).collect();
    let read: ReadOutputs = unit.reads.iter().collect();
    let keep = |at: &UnitRef, mut outputs: Outputs| {
        read.retain(*at, &mut outputs);
        records::produced(&run.id.sibling(at.hook), Unit(at.unit), outputs)
    };
    let is_read = |at: UnitRef| unit.reads.iter().any(|read| read.at == at);
    // Outputs that the undo does not use are not read from the bucket.
    let made = made.into_iter().map(|(at, stored)| (at, if is_read(at) { stored } else { OutputStorage::Nothing }));
    known.extend(records::read_all_outputs(env, made, keep).await?);
    Ok(known)
}

/// Returns true if an attempt certainly had no effect: it was skipped, could not be dispatched, or waited for its time when
/// the run was cancelled. An attempt with a recorded start may have been dispatched by an interrupted process, unless a further
/// dispatcher would have left a trace.
pub(crate) fn had_no_effect(record: &AttemptRecord) -> bool {
    let nothing = |result: &AttemptResult| {
        let code = result.reason.as_ref().map(|reason| reason.code);
        let is_unsent = match result.outcome {
            AttemptOutcome::Skipped => return true,
            // An answer can be a refusal, too. An intent is that of the request that was not sent.
            AttemptOutcome::Failed if matches!(code, Some(ReasonCode::Refused | ReasonCode::Connect)) => {
                return result.unsent && record.has_one_request();
            }
            AttemptOutcome::Failed => matches!(code, Some(ReasonCode::Render | ReasonCode::NotStartable)),
            AttemptOutcome::Cancelled => code == Some(ReasonCode::Skipped),
            AttemptOutcome::Succeeded => false,
        };
        is_unsent && (record.started.is_none() || (result.unsent && record.is_unsent()))
    };
    record.further_results.is_empty() && record.result.as_ref().is_some_and(nothing)
}

/// Returns true if an attempt has certainly made nothing, and no request of it can arrive any more.
pub(crate) fn made_nothing(record: &AttemptRecord) -> bool {
    had_no_effect(record) || is_rejection(record)
}

/// Returns true if the webhook unit `at` of an earlier run has ended without a success, and its server has rejected each
/// request, so that it has made nothing.
fn was_rejected(run: &Run, earlier: &EarlierRun, at: UnitRef, attempts: &[&AttemptRecord]) -> bool {
    let is_webhook = run.loaded.plan.unit(at).is_some_and(|unit| matches!(unit.action, Action::Webhook(_)));
    let Some(head) = &earlier.head else { return false };
    // The record of the last attempt of a cancelled unit can be missing.
    let has_ended = match head.status(Unit(at.unit)) {
        UnitProgress::Failed => true,
        UnitProgress::Open(_) => attempts.last().and_then(|last| last.outcome()) == Some(AttemptOutcome::Cancelled),
        UnitProgress::Done => false,
    };
    is_webhook && has_ended && !attempts.is_empty() && attempts.iter().all(|record| made_nothing(record))
}

/// Returns true if an attempt failed with a status 4xx of its server, or because its request was not allowed to be sent. A
/// lease, or a repetition, means that the request may have been sent before, also if the attempt was postponed since.
fn is_rejection(record: &AttemptRecord) -> bool {
    let AttemptRecord { result: Some(result), wait: None, excess: 0, further_results, .. } = record else {
        return false;
    };
    let is_repeated = record.repeats > 0 || record.leased_until.is_some();
    if record.accepted.is_some() || result.has_outputs || (record.posted.is_none() && is_repeated) {
        return false;
    }
    let is_rejected = result.evidence.as_ref().is_some_and(|evidence| match evidence.status {
        Some(status) => (400..500).contains(&status),
        None => result.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::Refused),
    });
    result.outcome == AttemptOutcome::Failed && !result.unanswered && is_rejected && further_results.is_empty()
}

/// Returns the time of the answer to an attempt that may have made something. A provider may show it later.
pub(crate) fn made_at(record: &AttemptRecord) -> Option<Timestamp> {
    let result = record.result.as_ref().filter(|result| !result.unanswered && !made_nothing(record))?;
    (result.outcome != AttemptOutcome::Cancelled).then_some(result.at)
}

/// Returns the time until which the request of a failed attempt without a response may arrive.
fn in_flight_until(env: &Env, record: &AttemptRecord) -> Option<Timestamp> {
    let failed = record.result.as_ref().filter(|result| result.outcome == AttemptOutcome::Failed)?;
    failed.unanswered.then(|| failed.at.plus(env.settings.max_in_flight))
}

/// Returns the time until which the receiver of a request may act on that of a failed or cancelled attempt without a
/// response. A later success is a response.
fn processing_until(env: &Env, unit: &UnitPlan, record: &AttemptRecord) -> Option<Timestamp> {
    let processing = processing_time(unit)?;
    if !record.further_results.is_empty() || had_no_effect(record) {
        return None;
    }
    let result = record.result.as_ref()?;
    let arrives_by = match result.outcome {
        // The cancel recorded this result after the in-flight limit.
        AttemptOutcome::Cancelled => result.at,
        _ => in_flight_until(env, record)?,
    };
    Some(arrives_by.plus(processing))
}

/// Returns the longest time for which the receiver of a request may act on it, or `None` if a relay executes the unit.
pub(crate) fn processing_time(unit: &UnitPlan) -> Option<Millis> {
    match &unit.action {
        Action::Webhook(webhook) => Some(Millis(webhook.processing_ms(unit.timeout_ms))),
        Action::Infrakit(action) => Some(Millis(action.max_processing_time_ms)),
        Action::Pod(_) | Action::Object(_) | Action::Removal | Action::Destroy => None,
    }
}

/// Returns true if the receiver of a webhook may act on the request of an attempt after any time, because the unit does
/// not state its `maxProcessingTime`.
pub(crate) fn may_act_later(env: &Env, unit: &UnitPlan, record: &AttemptRecord) -> bool {
    matches!(&unit.action, Action::Webhook(webhook) if webhook.max_processing_time_ms.is_none())
        && processing_until(env, unit, record).is_some()
}

/// Returns the number of results that remain after an attempt of an undo.
pub async fn remaining(context: AttemptContext<'_>) -> FlowResult<u32> {
    Ok(decide(context).await?.map_or(0, |(_, undone)| undone.remaining))
}

/// Returns the number of results that the present pass has removed before `attempt`.
async fn removed_before(AttemptContext { env, run, attempt, unit, .. }: AttemptContext<'_>) -> FlowResult<usize> {
    Ok(UndoPasses::new(unit, &env.store.read_records(&run.id, &[attempt.unit]).await?).removed_before(attempt.number))
}

/// The passes of an undo over the results of its units.
pub(crate) struct UndoPasses {
    /// The blocks of attempts that have each removed one of several results.
    removed: BTreeSet<u32>,
    /// The number of attempts of a block.
    attempts: u32,
}

impl UndoPasses {
    pub(crate) fn new(unit: &UnitPlan, records: &[(Unit, Attempt, AttemptRecord)]) -> Self {
        let attempts = unit.retry.attempts;
        let removes = |record: &AttemptRecord| record.result.as_ref().is_some_and(AttemptResult::has_more);
        let removed = records.iter().filter(|(.., record)| removes(record));
        let removed = removed.map(|(_, attempt, _)| retry::attempt_block(*attempt, attempts)).collect();
        Self { removed, attempts }
    }

    /// Returns the number of results that the pass of `attempt` has removed before it: one per block of attempts, back to
    /// the last block without a success. A reopening skips a block, so a late success of the previous pass does not count.
    pub(crate) fn removed_before(&self, attempt: Attempt) -> usize {
        let block = retry::attempt_block(attempt, self.attempts);
        (0..block).rev().take_while(|block| self.removed.contains(block)).count()
    }

    pub(crate) fn is_same_pass(&self, earlier: Attempt, attempt: Attempt) -> bool {
        let (block, earlier) =
            (retry::attempt_block(attempt, self.attempts), retry::attempt_block(earlier, self.attempts));
        earlier <= block && (earlier..block).all(|block| self.removed.contains(&block))
    }
}

pub(crate) fn undo_units(run: &Run, hook: Hook, undone: UnitRef) -> Vec<Unit> {
    let Some((hook_plan, _)) = run.loaded.hook_plan(hook) else { return Vec::new() };
    hook_plan.places().filter(|(_, unit)| unit.undoes.contains(&undone)).map(|(at, _)| Unit(at.unit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record_rows;

    #[test]
    fn an_attempt_that_may_have_sent_an_earlier_request_is_no_rejection() {
        for (record, expected) in record_rows::<bool>("attempts_that_made_nothing") {
            assert_eq!(made_nothing(&record), expected, "{record:?}");
        }
        for (record, expected) in record_rows::<bool>("attempts_without_effect") {
            assert_eq!(had_no_effect(&record), expected, "{record:?}");
        }
    }
}
