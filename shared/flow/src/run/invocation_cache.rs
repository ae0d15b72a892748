//! Data of a run that one invocation has read, and the outputs that units of the run read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};

use ebb_documents::plan::{OutputRead, UnitRef};
use ebb_documents::render::ProducerState;
use ebb_protocol::{AttemptRecord, Hook, Unit};

use crate::{EarlierRun, Env, FlowError, FlowResult, Run, lock};

/// Data of a run that one invocation has read. Outputs of done units and states of earlier runs do not change.
#[derive(Default)]
pub struct InvocationCache {
    pub(super) produced: Mutex<BTreeMap<UnitRef, ProducerState>>,
    earlier: tokio::sync::Mutex<BTreeMap<Hook, Arc<EarlierRun>>>,
    pub(super) sealed: Mutex<BTreeSet<UnitRef>>,
    /// The earlier runs whose units are sealed by this invocation.
    pub(super) sealed_runs: Mutex<BTreeSet<Hook>>,
    /// The records of undone units that were read after their seal. An attempt takes them, and the next one reads them again.
    pub(super) undone: Mutex<BTreeMap<UnitRef, Vec<AttemptRecord>>>,
}

impl InvocationCache {
    /// Stores the outputs of a unit of `run` that units of `run` read.
    pub(crate) fn put_produced(&self, run: &Run, unit: Unit, mut produced: ProducerState) {
        let at = UnitRef { hook: run.hook(), unit: unit.0 };
        if let ProducerState::Outputs(outputs) = &mut produced
            && !outputs.is_empty()
        {
            let read: ReadOutputs = reads_of_successors(run, unit).collect();
            read.retain(at, outputs);
        }
        lock(&self.produced).insert(at, produced);
    }

    /// Returns the state of an earlier run of the same instance. Reads it once per invocation.
    pub(crate) async fn earlier_run(&self, env: &Env, run: &Run, hook: Hook) -> FlowResult<Arc<EarlierRun>> {
        let mut known = self.earlier.lock().await;
        if let Some(earlier) = known.get(&hook) {
            return Ok(Arc::clone(earlier));
        }
        let id = run.id.sibling(hook);
        let graph = run.loaded.hook_plan(hook).map(|(_, graph)| graph.clone());
        let graph = graph.ok_or_else(|| FlowError::Broken(format!("run {id}: its plan has no such hook")))?;
        let head = env.store.read_run(&id).await?.map(|present| present.head);
        let earlier = Arc::new(EarlierRun { id, graph, head });
        known.insert(hook, Arc::clone(&earlier));
        Ok(earlier)
    }
}

/// Outputs that units read, by their producers.
pub(crate) struct ReadOutputs<'a>(HashSet<(UnitRef, &'a str)>);

impl<'a> FromIterator<&'a OutputRead> for ReadOutputs<'a> {
    fn from_iter<I: IntoIterator<Item = &'a OutputRead>>(reads: I) -> Self {
        Self(reads.into_iter().map(|read| (read.at, read.output.as_str())).collect())
    }
}

impl ReadOutputs<'_> {
    /// Removes the outputs of the unit `at` that no unit reads.
    pub(crate) fn retain<V>(&self, at: UnitRef, outputs: &mut BTreeMap<String, V>) {
        outputs.retain(|name, _| self.0.contains(&(at, name.as_str())));
    }
}

/// Returns the outputs that the successors of a unit read. Other units of its run read nothing of it.
pub(super) fn reads_of_successors(run: &Run, unit: Unit) -> impl Iterator<Item = &OutputRead> {
    run.graph().successors(unit).iter().filter_map(|&successor| run.unit(successor)).flat_map(|unit| &unit.reads)
}
