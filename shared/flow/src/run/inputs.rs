//! Reads the inputs of units: outputs of the same run and of earlier runs, from memory or the table.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ebb_documents::plan::{UnitPlan, UnitRef};
use ebb_documents::render::{KnownOutputs, ProducerState};
use ebb_engine::{Hook, Timestamp, Unit, UnitProgress};
use ebb_protocol::{AttemptOutcome, AttemptRecord, AttemptResult, OutputStorage, Outputs, RunId};

use crate::run::invocation_cache::{InvocationCache, ReadOutputs, reads_of_successors};
use crate::run::records;
use crate::{Env, FlowResult, Run, lock};

/// Returns the known inputs of `unit`. [`crate::run::undo`] reads the outputs of undone units.
pub async fn read_inputs(env: &Env, run: &Run, unit: &UnitPlan, cache: &InvocationCache) -> FlowResult<KnownOutputs> {
    read(env, run, sources(unit).collect(), cache).await
}

/// Returns the units whose outputs `unit` reads, except for those that it undoes.
fn sources(unit: &UnitPlan) -> impl Iterator<Item = UnitRef> {
    unit.reads.iter().map(|read| read.at).filter(|at| !unit.undoes.contains(at))
}

/// Reads the inputs of all `units` together, because concurrent units often read the same outputs.
pub async fn prefetch(env: &Env, run: &Run, units: &[Unit], cache: &InvocationCache) -> FlowResult<()> {
    let wanted = units.iter().filter_map(|&unit| run.unit(unit)).flat_map(sources).collect();
    read(env, run, wanted, cache).await.map(drop)
}

async fn read(env: &Env, run: &Run, wanted: BTreeSet<UnitRef>, cache: &InvocationCache) -> FlowResult<KnownOutputs> {
    let mut known = KnownOutputs::new();
    let mut missing: BTreeMap<Hook, Vec<Unit>> = BTreeMap::new();
    for at in wanted {
        let produced = lock(&cache.produced).get(&at).cloned();
        match produced {
            Some(produced) => known.extend([(at, produced)]),
            None => missing.entry(at.hook).or_default().push(Unit(at.unit)),
        }
    }
    for (hook, units) in missing {
        let (id, done) = if hook == run.hook() {
            let mut done = units.clone();
            if done.iter().any(|&unit| run.graph().tolerates(unit)) {
                let head = run.read_head(env).await?;
                done.retain(|&unit| head.status(unit) == UnitProgress::Done);
            }
            (run.id.clone(), done)
        } else {
            let earlier = cache.earlier_run(env, run, hook).await?;
            (earlier.id.clone(), units.iter().copied().filter(|&unit| earlier.success(unit).is_some()).collect())
        };
        known.extend(units.iter().map(|unit| (UnitRef { hook, unit: unit.0 }, ProducerState::Absent)));
        for (unit, produced) in outputs_of(env, run, &id, &done).await? {
            let at = UnitRef { hook, unit: unit.0 };
            lock(&cache.produced).insert(at, produced.clone());
            known.insert(at, produced);
        }
    }
    Ok(known)
}

/// Returns the outputs of done units of the run `id` that units of `run` read. The success of the highest attempt counts,
/// because a done unit gets no further attempt. A done unit without a record has no outputs.
async fn outputs_of(env: &Env, run: &Run, id: &RunId, units: &[Unit]) -> FlowResult<BTreeMap<Unit, ProducerState>> {
    let (hook, found) = (id.hook(), env.store.read_records(id, units).await?);
    // The records are in the order of attempts, so the last success of a unit stays.
    let results = found.iter().filter_map(|(unit, _, record)| Some((*unit, record.result.as_ref()?)));
    let is_done = |outcome| matches!(outcome, AttemptOutcome::Succeeded | AttemptOutcome::Skipped);
    let done: BTreeMap<Unit, &AttemptResult> = results.filter(|(_, result)| is_done(result.outcome)).collect();
    let mut produced: BTreeMap<Unit, ProducerState> = BTreeMap::new();
    let mut made = Vec::new();
    for &unit in units {
        match done.get(&unit) {
            Some(result) if result.outcome == AttemptOutcome::Skipped => {
                produced.insert(unit, ProducerState::Skipped);
            }
            result => made.push((unit, result.map(|result| result.outputs.clone()).unwrap_or_default())),
        }
    }
    let read: ReadOutputs = match hook == run.hook() {
        true => made.iter().flat_map(|(unit, _)| reads_of_successors(run, *unit)).collect(),
        false => run.hook_plan().units.iter().flat_map(|unit| &unit.reads).collect(),
    };
    let keep = |unit: &Unit, mut outputs: Outputs| {
        read.retain(UnitRef { hook, unit: unit.0 }, &mut outputs);
        records::produced(id, *unit, outputs)
    };
    produced.extend(records::read_all_outputs(env, made, keep).await?);
    Ok(produced)
}

/// Returns all distinct outputs of a unit's successes, in the order of their records. A later success does not change
/// the positions of the others. An attempt without a success has the outputs with which it failed, those of the response to
/// its request, or those of a rejected callback.
pub fn successes(attempts: &[&AttemptRecord]) -> Vec<OutputStorage> {
    let mut made: Vec<(Timestamp, &str, &OutputStorage)> = Vec::new();
    let mut parts: Vec<(Timestamp, &OutputStorage)> = Vec::new();
    for record in attempts {
        let before = made.len();
        let successes = record.results().filter(|result| result.outcome == AttemptOutcome::Succeeded);
        made.extend(successes.map(|result| (result.at, result.digest.as_str(), &result.outputs)));
        if made.len() == before {
            let failed = record.result.as_ref().filter(|result| !result.outputs.is_empty());
            let failed = failed.map(|result| (result.at, &result.outputs));
            let wait = record.wait.as_ref().map(|wait| (wait.since, &wait.outputs));
            let at = record.result.as_ref().map(|result| result.at).unwrap_or_default();
            let reported = Some((at, &record.reported)).filter(|(_, outputs)| !outputs.is_empty());
            parts.extend(failed.or(wait).or(reported));
        }
    }
    for (at, part) in parts {
        // A repeated request can be answered with the thing of another attempt.
        if !made.iter().any(|(.., whole)| is_part(part, whole)) {
            made.push((at, "", part));
        }
    }
    made.sort_by_key(|&(at, digest, _)| (at, digest));
    // The digest of a success depends on its outputs and on what it made.
    let mut digests = HashSet::new();
    let distinct = made.into_iter().filter(|(_, digest, _)| digest.is_empty() || digests.insert(*digest));
    distinct.map(|(.., outputs)| outputs.clone()).collect()
}

/// Returns true if `whole` has all of these outputs. Encrypted values are equal if their content is.
fn is_part(part: &OutputStorage, whole: &OutputStorage) -> bool {
    match (part, whole) {
        (OutputStorage::Inline(part), OutputStorage::Inline(whole)) => {
            part.iter().all(|(name, value)| whole.get(name) == Some(value))
        }
        (part, whole) => part == whole,
    }
}
