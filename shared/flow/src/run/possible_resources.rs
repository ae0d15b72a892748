//! What is left of a life.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::UnitRef;
use ebb_engine::{Attempt, Hook, RunView, Unit, UnitProgress};
use ebb_protocol::api::{Certainty, RemainingEffect};
use ebb_protocol::id::{self, RunId};
use ebb_protocol::lifecycle::OutputValue;
use ebb_protocol::limits;
use ebb_protocol::record::{AttemptOutcome, AttemptRecord, OutputStorage};
use ebb_store::{StoreError, TargetHead};

use crate::env::{CompiledPlan, Env};
use crate::error::FlowError;
use crate::run::head::Run;
use crate::run::inputs;
use crate::run::override_record;
use crate::run::records;
use crate::run::undo;

/// Units of a run whose outputs are read to name what exists.
const NAMED: usize = 200;
/// Bytes of these outputs in an answer.
const ROOM: usize = 2 << 20;

/// A unit of the teardown that was overridden.
pub struct Override {
    pub unit: String,
    pub reason: String,
    /// True if its receiver may still act.
    pub is_open: bool,
}

impl Override {
    /// Returns the warning that the unit may still be in progress.
    pub fn note(&self) -> String {
        format!(
            "{} was overridden after a request without a response: its receiver may still act; a success that it reports is kept",
            self.unit
        )
    }
}

/// The rest of a life.
pub struct RemainingResources {
    pub exists: Vec<RemainingEffect>,
    /// The units of its teardown that were overridden.
    pub overrides: Vec<Override>,
    /// A note for each unit whose outputs are lost.
    pub lost: Vec<String>,
}

/// A unit of a setup run that may have left something.
struct PossibleResource {
    run: RunId,
    unit: Unit,
    /// Its description. Its outputs are not read.
    existing: RemainingEffect,
}

/// Returns what may exist of a life with these `runs`: units of the setup that were started, minus those whose undo is done,
/// and was not overridden. Their outputs are left out. Reads nothing of the bucket.
///
/// # Errors
/// The store's.
pub async fn possible_resources_of(
    env: &Env,
    loaded: &CompiledPlan,
    runs: &[(RunId, RunView)],
) -> Result<Vec<RemainingEffect>, FlowError> {
    let (remnants, _) = find(env, loaded, runs).await?;
    Ok(remnants.into_iter().map(|remnant| remnant.existing).collect())
}

/// Returns what may exist of a target, as [`possible_resources_of`] does.
///
/// # Errors
/// The store's.
pub async fn possible_resources(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
) -> Result<Vec<RemainingEffect>, FlowError> {
    possible_resources_of(env, loaded, &runs(env, target, loaded).await?).await
}

/// Returns what is left of a life, with the outputs that name it.
///
/// # Errors
/// The store's.
pub async fn remaining_resources(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
) -> Result<RemainingResources, FlowError> {
    let (mut remnants, overrides) = find(env, loaded, &runs(env, target, loaded).await?).await?;
    let mut lost = Vec::new();
    let mut room = ROOM;
    for of_run in remnants.chunk_by_mut(|one, next| one.run == next.run) {
        lost.extend(read_names(env, of_run, &mut room).await?);
    }
    let exists = remnants.into_iter().map(|remnant| remnant.existing).collect();
    Ok(RemainingResources { exists, overrides, lost })
}

/// Reads the runs of a target.
async fn runs(env: &Env, target: &TargetHead, loaded: &CompiledPlan) -> Result<Vec<(RunId, RunView)>, FlowError> {
    let life = id::instance_key(&target.kind, &target.name, &target.uid);
    let mut runs = Vec::new();
    for hook in Hook::ALL.into_iter().filter(|&hook| loaded.hook_plan(hook).is_some()) {
        let id = RunId::new(&life, target.generation, hook);
        if let Some(run) = Run::load(env, &id).await? {
            runs.push((id, run.read_view(env).await?));
        }
    }
    Ok(runs)
}

async fn find(
    env: &Env,
    loaded: &CompiledPlan,
    runs: &[(RunId, RunView)],
) -> Result<(Vec<PossibleResource>, Vec<Override>), FlowError> {
    let of = |hook| runs.iter().find(|(run, _)| run.hook() == hook);
    let mut undone = BTreeSet::new();
    let mut found = Vec::new();
    for hook in [Hook::PreStop, Hook::PostStop] {
        let Some((hook_plan, graph)) = loaded.hook_plan(hook) else { continue };
        let Some((run, view)) = of(hook) else { continue };
        let all = by_unit(env.store.read_outlines(run).await?);
        for unit in graph.units().filter(|&unit| view.status(unit) == UnitProgress::Done) {
            let Some(plan) = hook_plan.units.get(unit.0 as usize) else { continue };
            let records = all.get(&unit).map(Vec::as_slice).unwrap_or_default();
            if let Some(reason) = override_record::override_reason(records) {
                let (unit, reason) = (plan.key.clone(), reason.message.clone());
                found.push(Override { unit, reason, is_open: override_record::is_open(records) });
                continue;
            }
            undone.extend(plan.undoes.clone());
        }
    }
    let undoable: BTreeSet<UnitRef> =
        loaded.plan.hooks.iter().flat_map(|hook_plan| &hook_plan.units).flat_map(|unit| unit.undoes.clone()).collect();
    let mut list = Vec::new();
    for hook in [Hook::PreStart, Hook::PostStart] {
        let Some((hook_plan, graph)) = loaded.hook_plan(hook) else { continue };
        let Some((run, view)) = of(hook) else { continue };
        let all = by_unit(env.store.read_outlines(run).await?);
        for (plan, unit) in hook_plan.units.iter().zip(graph.units()) {
            let at = UnitRef { hook: hook.into(), unit: unit.0 };
            // A unit that has no undo is not accounted for once the target is gone.
            if undone.contains(&at) || !undoable.contains(&at) {
                continue;
            }
            let tries = all.get(&unit).map(Vec::as_slice).unwrap_or_default();
            let results = || tries.iter().flat_map(|record| record.result.iter().chain(&record.further_results));
            let made = results().any(|result| result.outcome == AttemptOutcome::Succeeded);
            let first = || tries.iter().filter_map(|record| record.result.as_ref());
            let skipped = first().any(|result| result.outcome == AttemptOutcome::Skipped);
            let started = ebb_engine::follow::may_have_started(graph, view, unit);
            let never_sent = !tries.is_empty() && tries.iter().all(undo::had_no_effect);
            if !made && (skipped || !started || never_sent) {
                continue;
            }
            let certainty = match view.status(unit) {
                UnitProgress::Done => Certainty::Exists,
                _ if made => Certainty::Exists,
                _ => Certainty::Possible,
            };
            let (key, outputs) = (plan.key.clone(), BTreeMap::new());
            let existing = RemainingEffect { unit: key, certainty, outputs, outputs_left_out: made };
            list.push(PossibleResource { run: run.clone(), unit, existing });
        }
    }
    Ok((list, found))
}

/// Returns the records of each unit, in the order of tries.
fn by_unit(records: Vec<(Unit, Attempt, AttemptRecord)>) -> BTreeMap<Unit, Vec<AttemptRecord>> {
    let mut units: BTreeMap<Unit, Vec<AttemptRecord>> = BTreeMap::new();
    for (unit, _, record) in records {
        units.entry(unit).or_default().push(record);
    }
    units
}

/// Reads the outputs that name the remnants of one run: those of the first [`NAMED`] units, as far as there is room.
/// Returns a note for each unit whose outputs are lost.
async fn read_names(env: &Env, of_run: &mut [PossibleResource], room: &mut usize) -> Result<Vec<String>, FlowError> {
    let Some(run) = of_run.first().map(|remnant| remnant.run.clone()) else { return Ok(Vec::new()) };
    let made = of_run.iter().filter(|remnant| remnant.existing.outputs_left_out);
    let units: Vec<Unit> = made.map(|remnant| remnant.unit).take(NAMED).collect();
    let records = by_unit(env.store.read_records(&run, &units).await?);
    let mut notes = Vec::new();
    for PossibleResource { unit, existing, .. } in of_run.iter_mut() {
        let Some(tries) = records.get(unit) else { continue };
        let tries: Vec<&AttemptRecord> = tries.iter().collect();
        let last = inputs::successes(&tries).pop().unwrap_or(OutputStorage::Nothing);
        let made = match records::read_outputs(env, &last).await {
            Ok(made) => made,
            // The rest of the answer is of use without them.
            Err(FlowError::Broken(reason) | FlowError::Store(StoreError::Broken { reason, .. })) => {
                tracing::error!(%run, unit = existing.unit, reason, "stored outputs are lost");
                notes.push(format!("the stored outputs of {} are lost: {reason}", existing.unit));
                continue;
            }
            Err(error) => return Err(error),
        };
        let outputs: BTreeMap<String, OutputValue> =
            made.into_iter().map(|(name, value)| (name, value.into())).collect();
        let bytes = limits::lambda_event_size_of(&outputs);
        if bytes <= *room {
            *room -= bytes;
            existing.outputs = outputs;
            existing.outputs_left_out = false;
        }
    }
    Ok(notes)
}
