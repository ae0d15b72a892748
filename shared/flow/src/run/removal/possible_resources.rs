//! Lists the resources of an instance that may exist, and the overrides of units that remove them.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::{Action, Plan, UnitPlan, UnitRef};
use ebb_engine::{Graph, HeadState, Hook, Unit, UnitProgress};
use ebb_protocol::{
    AttemptOutcome, AttemptRecord, AttemptResult, Certainty, FailureReason, OutputValue, ReasonCode, RemainingEffect,
    RemovalGrade, RunId, limits,
};
use ebb_store::{StoreError, TargetHead, UnitRecord};

use crate::run::{inputs, records, undo};
use crate::{CompiledPlan, Env, FlowError, FlowResult, Run, group};

/// Maximum units of a run whose outputs are read.
const MAX_UNITS: usize = 200;
/// Maximum bytes of these outputs in a response.
const MAX_OUTPUT_BYTES: usize = 2 << 20;

pub struct Override {
    pub unit: String,
    pub reason: String,
    /// True if the receiver may still act.
    pub is_open: bool,
}

impl Override {
    /// Returns a warning that the unit may still be in progress.
    pub fn note(&self) -> String {
        format!(
            "{} was overridden after a request without a response: its receiver may still act; a success that it reports is kept",
            self.unit
        )
    }
}

pub struct RemainingResources {
    pub exists: Vec<RemainingEffect>,
    /// The overridden units of its teardown.
    pub overrides: Vec<Override>,
    /// A note for each unit whose outputs are lost, or whose receiver may still act after its undo.
    pub notes: Vec<String>,
}

struct PossibleResource {
    run: RunId,
    unit: Unit,
    /// The description. Its outputs are read later.
    existing: RemainingEffect,
    /// True if its undo found nothing, and its receiver may still act.
    may_act_later: bool,
}

/// Returns the units whose resources may exist after these `runs`. These are the started units of the setup, except
/// those of which each undo that removes, and its verification, is done and not overridden. If one found nothing, a unit without
/// a result is included unless it states how long its receiver may act. Does not read outputs, so it does not use the bucket.
pub async fn possible_resources_of(
    env: &Env,
    loaded: &CompiledPlan,
    runs: &[(RunId, HeadState)],
) -> FlowResult<Vec<RemainingEffect>> {
    let (resources, _) = find(env, loaded, runs).await?;
    Ok(resources.into_iter().map(|resource| resource.existing).collect())
}

/// Returns the units of a target whose resources may exist, by the rules of [`possible_resources_of`].
pub async fn possible_resources(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
) -> FlowResult<Vec<RemainingEffect>> {
    possible_resources_of(env, loaded, &runs(env, target, loaded).await?).await
}

/// Returns the remaining resources of an instance, with the outputs that identify them.
pub async fn remaining_resources(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
) -> FlowResult<RemainingResources> {
    let (mut resources, overrides) = find(env, loaded, &runs(env, target, loaded).await?).await?;
    let later = resources.iter().filter(|resource| resource.may_act_later);
    let later = later.map(|resource| {
        format!(
            "{} got no result, and its undo found nothing: its receiver may still act; set `maxProcessingTime` to the \
             longest time for which it does",
            resource.existing.unit
        )
    });
    let mut notes: Vec<String> = later.collect();
    let mut remaining_bytes = MAX_OUTPUT_BYTES;
    let mut further = Vec::new();
    for of_run in resources.chunk_by_mut(|one, next| one.run == next.run) {
        notes.extend(read_names(env, of_run, (&mut further, &mut remaining_bytes)).await?);
    }
    let exists = resources.into_iter().map(|resource| resource.existing).chain(further).collect();
    Ok(RemainingResources { exists, overrides, notes })
}

/// Returns the runs of the lifecycle of a target that have begun.
pub(crate) async fn runs(env: &Env, target: &TargetHead, loaded: &CompiledPlan) -> FlowResult<Vec<(RunId, HeadState)>> {
    let mut runs = Vec::new();
    for hook in loaded.lifecycle_hooks() {
        if let Some((run, head)) = Run::load_with_head(env, &target.run(hook)).await? {
            runs.push((run.id, head));
        }
    }
    Ok(runs)
}

/// The state of the undos of a thing in the teardown, or in one update: that of the least advanced one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UndoState {
    Done,
    /// One found nothing, although a request of the undone unit had no response.
    FoundNothing,
    /// One is not done, or was overridden.
    Open,
}

/// The setup units whose undos, and their verifications, are done.
struct DoneUndos {
    undone: BTreeSet<UnitRef>,
    not_found: BTreeSet<UnitRef>,
    overrides: Vec<Override>,
}

async fn done_undos(env: &Env, loaded: &CompiledPlan, runs: &[(RunId, HeadState)]) -> FlowResult<DoneUndos> {
    let of = |hook| runs.iter().find(|(run, _)| run.hook() == hook);
    // By the part of the life, the undone unit and the undo.
    let mut states: BTreeMap<(Hook, UnitRef), Vec<(UnitRef, UndoState)>> = BTreeMap::new();
    let (mut to_verify, mut verified, mut confirmed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut overrides = Vec::new();
    for hook in loaded.lifecycle_hooks() {
        let Some((hook_plan, _)) = loaded.hook_plan(hook) else { continue };
        if !hook_plan.units.iter().any(|plan| !plan.is_setup(hook)) {
            continue;
        }
        // A target that was never ready skips preStop. Otherwise the undos of both hooks have to be done.
        let is_skipped = hook == Hook::PreStop && of(Hook::PostStop).is_some();
        let (head, all) = match of(hook) {
            Some((run, head)) => (Some(head), by_unit(env.store.read_outlines(run).await?)),
            None if hook.is_teardown() && !is_skipped => (None, BTreeMap::new()),
            None => continue,
        };
        let part = if hook.is_teardown() { Hook::PostStop } else { hook };
        for (at, plan) in hook_plan.places() {
            let is_done = head.is_some_and(|head| head.status(Unit(at.unit)) == UnitProgress::Done);
            let records = all.get(&Unit(at.unit)).map(Vec::as_slice).unwrap_or_default();
            let overridden = override_reason(records.iter()).filter(|_| is_done);
            if let Some(reason) = overridden {
                let (unit, reason) = (plan.key.clone(), reason.message.clone());
                overrides.push(Override { unit, reason, is_open: is_open(records) });
            }
            // The undo of an update does not know later successes. Those are left to the teardown.
            let is_final = |at: &UnitRef| {
                let setup = of(at.hook).map(|(_, head)| head.late_marks(Unit(at.unit)));
                hook.is_teardown() || setup.is_none_or(|marks| marks == 0)
            };
            let ended = |at: &UnitRef| is_done && overridden.is_none() && is_final(at);
            if plan.verifies {
                to_verify.extend(plan.undoes.iter().copied().filter(|_| head.is_some()));
                verified.extend(plan.undoes.iter().copied().filter(ended));
                // A verification decides also for an undo that an operator has overridden.
                if is_confirmed(plan, records) && plan.undoes.iter().all(ended) {
                    let before = plan.dependencies.iter().map(|&unit| UnitRef { hook, unit });
                    let is_verified =
                        |undo: &UnitRef| loaded.plan.unit(*undo).is_some_and(|undo| undo.undoes == plan.undoes);
                    confirmed.extend(before.filter(is_verified));
                }
                continue;
            }
            for undone in plan.undoes.iter().filter(|&&at| removes(&loaded.plan, plan, at)) {
                let own = match ended(undone) {
                    false => UndoState::Open,
                    true if records::found_nothing(records) => UndoState::FoundNothing,
                    true => UndoState::Done,
                };
                states.entry((part, *undone)).or_default().push((at, own));
            }
        }
    }
    let is_verified = |at: &UnitRef| !to_verify.contains(at) || verified.contains(at);
    let with = |wanted: UndoState| {
        let state = |undos: &[(UnitRef, UndoState)]| {
            undos.iter().map(|&(undo, state)| if confirmed.contains(&undo) { UndoState::Done } else { state }).max()
        };
        let found = states.iter().filter(|(_, undos)| state(undos) == Some(wanted)).map(|((_, at), _)| *at);
        found.filter(is_verified).collect::<BTreeSet<UnitRef>>()
    };
    Ok(DoneUndos { undone: with(UndoState::Done), not_found: with(UndoState::FoundNothing), overrides })
}

/// Returns true if the resource of the unit `undone` may exist until `undo` is done. An undo that asks, or removes parts, shows nothing,
/// unless the unit has no other.
pub(crate) fn removes(plan: &Plan, undo: &UnitPlan, undone: UnitRef) -> bool {
    let is_other = |other: &UnitPlan| other.undoes.contains(&undone) && !other.verifies && !other.shows_no_removal();
    !undo.shows_no_removal() || !plan.hooks.iter().flat_map(|hook| &hook.units).any(is_other)
}

/// Returns true if a verification with these records, which is done, shows that the resource is gone.
fn is_confirmed(plan: &UnitPlan, records: &[AttemptRecord]) -> bool {
    let removals = records.iter().filter_map(|record| record.result.as_ref()?.removal.as_deref());
    let mut grades = removals.map(|removal| removal.grade).peekable();
    match plan.action {
        Action::Webhook(_) => grades.peek().is_some() && grades.all(|grade| grade == RemovalGrade::Confirmed),
        // A script or an object that has succeeded.
        _ => records.last().and_then(AttemptRecord::outcome) != Some(AttemptOutcome::Skipped),
    }
}

async fn find(
    env: &Env,
    loaded: &CompiledPlan,
    runs: &[(RunId, HeadState)],
) -> FlowResult<(Vec<PossibleResource>, Vec<Override>)> {
    let of = |hook| runs.iter().find(|(run, _)| run.hook() == hook);
    let DoneUndos { undone, not_found, overrides } = done_undos(env, loaded, runs).await?;
    let undoable: BTreeSet<UnitRef> =
        loaded.plan.hooks.iter().flat_map(|hook_plan| &hook_plan.units).flat_map(|unit| unit.undoes.clone()).collect();
    let mut resources = Vec::new();
    for hook in loaded.lifecycle_hooks().filter(|hook| !hook.is_teardown()) {
        let Some((hook_plan, graph)) = loaded.hook_plan(hook) else { continue };
        let Some((run, head)) = of(hook) else { continue };
        // A unit without an undo has no resources that Ebb removes.
        let is_left = |at: &UnitRef| !undone.contains(at) && undoable.contains(at);
        let units: Vec<_> = hook_plan.places().filter(|(at, plan)| plan.is_setup(hook) && is_left(at)).collect();
        if units.is_empty() {
            continue;
        }
        let all = by_unit(env.store.read_outlines(run).await?);
        for (at, plan) in units {
            let unit = Unit(at.unit);
            let attempts = all.get(&unit).map(Vec::as_slice).unwrap_or_default();
            if !may_have_made((graph, head), unit, attempts.iter()) {
                continue;
            }
            let succeeded = has_succeeded(attempts.iter());
            let is_made = succeeded || head.status(unit) == UnitProgress::Done;
            let may_act_later = not_found.contains(&at);
            if may_act_later && (is_made || !attempts.iter().any(|record| undo::may_act_later(env, plan, record))) {
                continue;
            }
            let certainty = if is_made { Certainty::Exists } else { Certainty::Possible };
            let (key, outputs) = (plan.key.clone(), BTreeMap::new());
            let existing = RemainingEffect { unit: key, certainty, outputs, outputs_left_out: succeeded };
            resources.push(PossibleResource { run: run.clone(), unit, existing, may_act_later });
        }
    }
    Ok((resources, overrides))
}

/// Returns true if a setup unit with these attempts may have made something.
pub(crate) fn may_have_made<'a>(
    (graph, head): (&Graph, &HeadState),
    unit: Unit,
    attempts: impl Iterator<Item = &'a AttemptRecord> + Clone,
) -> bool {
    let skipped = attempts.clone().any(|record| record.outcome() == Some(AttemptOutcome::Skipped));
    let started = ebb_engine::follow::may_have_started(graph, head, unit);
    let never_sent = attempts.clone().next().is_some() && attempts.clone().all(undo::had_no_effect);
    has_succeeded(attempts) || !(skipped || !started || never_sent)
}

/// Returns true if a request was answered with a success.
fn has_succeeded<'a>(mut attempts: impl Iterator<Item = &'a AttemptRecord>) -> bool {
    let is_made = |result: &AttemptResult| result.outcome == AttemptOutcome::Succeeded || result.has_outputs;
    attempts.any(|record| record.wait.is_some() || record.results().any(is_made))
}

/// Groups records by unit, in the order of attempts.
fn by_unit(records: Vec<UnitRecord>) -> BTreeMap<Unit, Vec<AttemptRecord>> {
    group(records.into_iter().map(|(unit, _, record)| (unit, record)))
}

/// Reads the outputs of the first [`MAX_UNITS`] units of one run, up to `remaining_bytes`. Returns a note for each unit
/// whose outputs are lost, and puts the results of other attempts into `further`.
async fn read_names(
    env: &Env,
    of_run: &mut [PossibleResource],
    (further, remaining_bytes): (&mut Vec<RemainingEffect>, &mut usize),
) -> FlowResult<Vec<String>> {
    let Some(run) = of_run.first().map(|resource| resource.run.clone()) else { return Ok(Vec::new()) };
    let succeeded = of_run.iter().filter(|resource| resource.existing.outputs_left_out);
    let units: Vec<Unit> = succeeded.map(|resource| resource.unit).take(MAX_UNITS).collect();
    let records = by_unit(env.store.read_records(&run, &units).await?);
    let mut notes = Vec::new();
    for PossibleResource { unit, existing, .. } in of_run.iter_mut() {
        let Some(attempts) = records.get(unit) else { continue };
        let attempts: Vec<&AttemptRecord> = attempts.iter().collect();
        let unread = RemainingEffect { outputs: BTreeMap::new(), ..existing.clone() };
        for (number, made) in inputs::successes(&attempts).into_iter().rev().enumerate() {
            let succeeded = match records::read_outputs(env, &made, |outputs| outputs).await {
                Ok(succeeded) => succeeded,
                // The rest of the response is useful without these outputs.
                Err(FlowError::Broken(reason) | FlowError::Store(StoreError::Broken { reason, .. })) => {
                    tracing::error!(%run, unit = existing.unit, reason, "stored outputs are lost");
                    notes.push(format!("the stored outputs of {} are lost: {reason}", existing.unit));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let outputs: BTreeMap<String, OutputValue> =
                succeeded.into_iter().map(|(name, value)| (name, value.into())).collect();
            let bytes = limits::lambda_event_size_of(&outputs);
            if bytes <= *remaining_bytes {
                *remaining_bytes -= bytes;
                let read = RemainingEffect { outputs, outputs_left_out: false, ..unread.clone() };
                if number == 0 {
                    *existing = read;
                } else {
                    further.push(read);
                }
            }
        }
    }
    Ok(notes)
}

/// Returns the reason with which a unit was overridden, by its records in the order of attempts. Returns `None` if its
/// last result is not an override, or if the attempt that was in progress has succeeded since.
pub(crate) fn override_reason<'a>(
    records: impl DoubleEndedIterator<Item = &'a AttemptRecord>,
) -> Option<&'a FailureReason> {
    let mut ended = records.rev().filter(|record| record.result.is_some());
    let last = ended.next()?;
    let reason = last.result.as_ref()?.reason.as_ref().filter(|reason| reason.code == ReasonCode::Overridden)?;
    let previous = ended.next().filter(|record| record.outcome() == Some(AttemptOutcome::Failed));
    let has_succeeded = [Some(last), previous].into_iter().flatten().any(succeeded_later);
    (!has_succeeded).then_some(reason)
}

/// Returns true if the last request before the override got no response, so that its receiver may still act.
fn is_open(records: &[AttemptRecord]) -> bool {
    records.iter().rev().filter_map(|record| record.result.as_ref()).skip(1).take(1).any(|result| result.unanswered)
}

/// Returns true if a success arrived after the attempt had another result.
fn succeeded_later(record: &AttemptRecord) -> bool {
    record.further_results.iter().any(|other| other.outcome == AttemptOutcome::Succeeded && other.next.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{RecordMembers, attempt_record, rows};

    #[test]
    fn a_late_success_of_the_last_attempt_ends_an_override() {
        for (records, is_overridden, may_act) in rows::<(Vec<RecordMembers>, bool, bool)>("overridden_attempts") {
            let records: Vec<AttemptRecord> = records.into_iter().map(attempt_record).collect();
            let found = (override_reason(records.iter()).is_some(), is_open(&records));
            assert_eq!(found, (is_overridden, may_act), "{records:?}");
        }
    }
}
