//! What is left of a life.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Attempt, Moment, Status, Unit};
use ebb_spec::plan::UnitAt;
use ebb_store::TargetHead;
use ebb_wire::api::{Certainty, Existing};
use ebb_wire::id::{self, RunId};
use ebb_wire::lifecycle::OutputValue;
use ebb_wire::limits;
use ebb_wire::record::{Record, Verdict};

use crate::api::waive;
use crate::env::{Env, Loaded};
use crate::error::FlowError;
use crate::inputs;
use crate::run::Run;
use crate::tell::output_value;
use crate::undo;

/// Units of a run whose outputs are read to name what exists.
const NAMED: usize = 200;
/// Bytes of these outputs in an answer.
const ROOM: usize = 2 << 20;

/// A unit of the teardown that was waived.
pub(super) struct Waiver {
    /// Its key.
    pub(super) unit: String,
    /// The operator's reason.
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
    /// What may exist.
    pub(super) exists: Vec<Existing>,
    /// The units of its teardown that were waived.
    pub(super) waivers: Vec<Waiver>,
}

/// Returns what may exist: units of the setup that were started, minus those whose undo is done, and was not waived.
///
/// # Errors
/// The store's.
pub async fn existing(env: &Env, target: &TargetHead, loaded: &Loaded) -> Result<Vec<Existing>, FlowError> {
    Ok(left(env, target, loaded).await?.exists)
}

/// Returns what is left of a life.
///
/// # Errors
/// The store's.
pub(super) async fn left(env: &Env, target: &TargetHead, loaded: &Loaded) -> Result<Left, FlowError> {
    let life = id::life(&target.kind, &target.name, &target.uid);
    let mut undone = BTreeSet::new();
    let mut waivers = Vec::new();
    for moment in [Moment::BeforeStop, Moment::AfterStop] {
        let Some((event, graph)) = loaded.event(moment) else { continue };
        let Some(run) = Run::load(env, &RunId::new(&life, target.generation, moment)).await? else {
            continue;
        };
        let view = run.look(env).await?;
        let all = by_unit(env.store.read_outlines(&run.id).await?);
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
    let mut room = ROOM;
    for moment in [Moment::BeforeReady, Moment::AfterReady] {
        let Some((event, graph)) = loaded.event(moment) else { continue };
        let Some(run) = Run::load(env, &RunId::new(&life, target.generation, moment)).await? else {
            continue;
        };
        let view = run.look(env).await?;
        let all = by_unit(env.store.read_outlines(&run.id).await?);
        let mut of_run = Vec::new();
        for (plan, unit) in event.units.iter().zip(graph.units()) {
            let at = UnitAt { moment: moment.into(), unit: unit.0 };
            // What nothing takes away is not ours to account for once the target goes.
            if undone.contains(&at) || !undoable.contains(&at) {
                continue;
            }
            let tries = all.get(&unit).map(Vec::as_slice).unwrap_or_default();
            let results = || tries.iter().flat_map(|record| record.result.iter().chain(&record.others));
            let made = results().any(|result| result.verdict == Verdict::Succeeded);
            let first = || tries.iter().filter_map(|record| record.result.as_ref());
            let skipped = first().any(|result| result.verdict == Verdict::Skipped);
            let started = ebb_engine::follow::may_have_started(graph, &view, unit);
            let never_sent = !tries.is_empty() && tries.iter().all(undo::is_skipped);
            if !made && (skipped || !started || never_sent) {
                continue;
            }
            let certainty = match view.status(unit) {
                Status::Done => Certainty::Exists,
                _ if made => Certainty::Exists,
                _ => Certainty::Possible,
            };
            let outputs = BTreeMap::new();
            of_run.push((
                unit,
                Existing { unit: plan.key.clone(), certainty, outputs, outputs_left_out: made },
            ));
        }
        name(env, &run.id, &mut of_run, &mut room).await?;
        list.extend(of_run.into_iter().map(|(_, existing)| existing));
    }
    Ok(Left { exists: list, waivers })
}

/// The records of each unit, in the order of tries.
fn by_unit(records: Vec<(Unit, Attempt, Record)>) -> BTreeMap<Unit, Vec<Record>> {
    let mut units: BTreeMap<Unit, Vec<Record>> = BTreeMap::new();
    for (unit, _, record) in records {
        units.entry(unit).or_default().push(record);
    }
    units
}

/// Reads the outputs that name what exists, for the first [`NAMED`] units and as far as there is room for them.
async fn name(
    env: &Env,
    run: &RunId,
    list: &mut [(Unit, Existing)],
    room: &mut usize,
) -> Result<(), FlowError> {
    let units: Vec<Unit> =
        list.iter().filter(|(_, one)| one.outputs_left_out).map(|(unit, _)| *unit).collect();
    let named = &units[..units.len().min(NAMED)];
    let records = by_unit(env.store.read_records(run, named).await?);
    for (unit, existing) in list.iter_mut().filter(|(_, one)| one.outputs_left_out) {
        let Some(tries) = records.get(unit) else { continue };
        let tries: Vec<&Record> = tries.iter().collect();
        let made = inputs::successes(env, &tries).await?.into_iter().next_back().unwrap_or_default();
        let outputs: BTreeMap<String, OutputValue> =
            made.into_iter().map(|(name, value)| (name, output_value(value))).collect();
        let bytes = limits::in_event_of(&outputs);
        if bytes <= *room {
            *room -= bytes;
            existing.outputs = outputs;
            existing.outputs_left_out = false;
        }
    }
    Ok(())
}
