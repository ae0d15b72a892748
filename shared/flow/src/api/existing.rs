//! What is left of a life.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Attempt, Moment, Status, Unit, View};
use ebb_spec::plan::UnitAt;
use ebb_store::{StoreError, TargetHead};
use ebb_wire::api::{Certainty, Existing};
use ebb_wire::id::{self, RunId};
use ebb_wire::lifecycle::OutputValue;
use ebb_wire::limits;
use ebb_wire::record::{Kept, Record, Verdict};

use crate::api::waive;
use crate::env::{Env, Loaded};
use crate::error::FlowError;
use crate::inputs;
use crate::records;
use crate::run::Run;
use crate::tell::output_value;
use crate::undo;

/// Units of a run whose outputs are read to name what exists.
const NAMED: usize = 200;
/// Bytes of these outputs in an answer.
const ROOM: usize = 2 << 20;

/// A unit of the teardown that was waived.
pub(super) struct Waiver {
    pub(super) unit: String,
    pub(super) reason: String,
    /// True if its receiver may still act.
    pub(super) is_open: bool,
}

impl Waiver {
    /// Tells that the unit may still be under way.
    pub(super) fn note(&self) -> String {
        format!(
            "{} was waived after a request without an answer: its receiver may still act; a success that it reports is kept",
            self.unit
        )
    }
}

/// The rest of a life.
pub(super) struct Left {
    pub(super) exists: Vec<Existing>,
    /// The units of its teardown that were waived.
    pub(super) waivers: Vec<Waiver>,
    /// A note for each unit whose outputs are lost.
    pub(super) lost: Vec<String>,
}

/// A unit of a setup run that may have left something.
struct Remnant {
    run: RunId,
    unit: Unit,
    /// Its description. Its outputs are not read.
    existing: Existing,
}

/// Returns what may exist of a life with these `runs`: units of the setup that were started, minus those whose undo is done,
/// and was not waived. Their outputs are left out. Reads nothing of the bucket.
///
/// # Errors
/// The store's.
pub async fn of_runs(env: &Env, loaded: &Loaded, runs: &[(RunId, View)]) -> Result<Vec<Existing>, FlowError> {
    let (remnants, _) = find(env, loaded, runs).await?;
    Ok(remnants.into_iter().map(|remnant| remnant.existing).collect())
}

/// Returns what may exist of a target, as [`of_runs`] does.
///
/// # Errors
/// The store's.
pub async fn existing(env: &Env, target: &TargetHead, loaded: &Loaded) -> Result<Vec<Existing>, FlowError> {
    of_runs(env, loaded, &runs(env, target, loaded).await?).await
}

/// Returns what is left of a life, with the outputs that name it.
///
/// # Errors
/// The store's.
pub(super) async fn left(env: &Env, target: &TargetHead, loaded: &Loaded) -> Result<Left, FlowError> {
    let (mut remnants, waivers) = find(env, loaded, &runs(env, target, loaded).await?).await?;
    let mut lost = Vec::new();
    let mut room = ROOM;
    for of_run in remnants.chunk_by_mut(|one, next| one.run == next.run) {
        lost.extend(name(env, of_run, &mut room).await?);
    }
    let exists = remnants.into_iter().map(|remnant| remnant.existing).collect();
    Ok(Left { exists, waivers, lost })
}

/// Reads the runs of a target.
async fn runs(env: &Env, target: &TargetHead, loaded: &Loaded) -> Result<Vec<(RunId, View)>, FlowError> {
    let life = id::life(&target.kind, &target.name, &target.uid);
    let mut runs = Vec::new();
    for moment in Moment::ALL.into_iter().filter(|&moment| loaded.event(moment).is_some()) {
        let id = RunId::new(&life, target.generation, moment);
        if let Some(run) = Run::load(env, &id).await? {
            runs.push((id, run.look(env).await?));
        }
    }
    Ok(runs)
}

async fn find(
    env: &Env,
    loaded: &Loaded,
    runs: &[(RunId, View)],
) -> Result<(Vec<Remnant>, Vec<Waiver>), FlowError> {
    let of = |moment| runs.iter().find(|(run, _)| run.moment() == moment);
    let mut undone = BTreeSet::new();
    let mut waivers = Vec::new();
    for moment in [Moment::BeforeStop, Moment::AfterStop] {
        let Some((event, graph)) = loaded.event(moment) else { continue };
        let Some((run, view)) = of(moment) else { continue };
        let all = by_unit(env.store.read_outlines(run).await?);
        for unit in graph.units().filter(|&unit| view.status(unit) == Status::Done) {
            let Some(plan) = event.units.get(unit.0 as usize) else { continue };
            let records = all.get(&unit).map(Vec::as_slice).unwrap_or_default();
            if let Some(reason) = waive::waiver(records) {
                let (unit, reason) = (plan.key.clone(), reason.message.clone());
                waivers.push(Waiver { unit, reason, is_open: waive::is_open(records) });
                continue;
            }
            undone.extend(plan.undoes.clone());
        }
    }
    let undoable: BTreeSet<UnitAt> = loaded
        .plan
        .events
        .iter()
        .flat_map(|event| &event.units)
        .flat_map(|unit| unit.undoes.clone())
        .collect();
    let mut list = Vec::new();
    for moment in [Moment::BeforeReady, Moment::AfterReady] {
        let Some((event, graph)) = loaded.event(moment) else { continue };
        let Some((run, view)) = of(moment) else { continue };
        let all = by_unit(env.store.read_outlines(run).await?);
        for (plan, unit) in event.units.iter().zip(graph.units()) {
            let at = UnitAt { moment: moment.into(), unit: unit.0 };
            // A unit that has no undo is not accounted for once the target is gone.
            if undone.contains(&at) || !undoable.contains(&at) {
                continue;
            }
            let tries = all.get(&unit).map(Vec::as_slice).unwrap_or_default();
            let results = || tries.iter().flat_map(|record| record.result.iter().chain(&record.others));
            let made = results().any(|result| result.verdict == Verdict::Succeeded);
            let first = || tries.iter().filter_map(|record| record.result.as_ref());
            let skipped = first().any(|result| result.verdict == Verdict::Skipped);
            let started = ebb_engine::follow::may_have_started(graph, view, unit);
            let never_sent = !tries.is_empty() && tries.iter().all(undo::is_skipped);
            if !made && (skipped || !started || never_sent) {
                continue;
            }
            let certainty = match view.status(unit) {
                Status::Done => Certainty::Exists,
                _ if made => Certainty::Exists,
                _ => Certainty::Possible,
            };
            let (key, outputs) = (plan.key.clone(), BTreeMap::new());
            let existing = Existing { unit: key, certainty, outputs, outputs_left_out: made };
            list.push(Remnant { run: run.clone(), unit, existing });
        }
    }
    Ok((list, waivers))
}

/// Returns the records of each unit, in the order of tries.
fn by_unit(records: Vec<(Unit, Attempt, Record)>) -> BTreeMap<Unit, Vec<Record>> {
    let mut units: BTreeMap<Unit, Vec<Record>> = BTreeMap::new();
    for (unit, _, record) in records {
        units.entry(unit).or_default().push(record);
    }
    units
}

/// Reads the outputs that name the remnants of one run: those of the first [`NAMED`] units, as far as there is room.
/// Returns a note for each unit whose outputs are lost.
async fn name(env: &Env, of_run: &mut [Remnant], room: &mut usize) -> Result<Vec<String>, FlowError> {
    let Some(run) = of_run.first().map(|remnant| remnant.run.clone()) else { return Ok(Vec::new()) };
    let made = of_run.iter().filter(|remnant| remnant.existing.outputs_left_out);
    let units: Vec<Unit> = made.map(|remnant| remnant.unit).take(NAMED).collect();
    let records = by_unit(env.store.read_records(&run, &units).await?);
    let mut notes = Vec::new();
    for Remnant { unit, existing, .. } in of_run.iter_mut() {
        let Some(tries) = records.get(unit) else { continue };
        let tries: Vec<&Record> = tries.iter().collect();
        let last = inputs::successes(&tries).pop().unwrap_or(Kept::Nothing);
        let made = match records::outputs(env, &last).await {
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
            made.into_iter().map(|(name, value)| (name, output_value(value))).collect();
        let bytes = limits::in_event_of(&outputs);
        if bytes <= *room {
            *room -= bytes;
            existing.outputs = outputs;
            existing.outputs_left_out = false;
        }
    }
    Ok(notes)
}
