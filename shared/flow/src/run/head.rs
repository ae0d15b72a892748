//! A run at hand: its facts, its plan, and what is known of its state.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_documents::plan::{HookPlan, UnitPlan};
use ebb_documents::render::TargetFacts;
use ebb_engine::{Attempt, Epoch, Graph, HeadState, Hook, Patch, RunView, Shard, Unit, UnitProgress};
use ebb_protocol::id::{self, RunId};
use ebb_store::{RunFacts, RunHead};

use crate::env::{CompiledPlan, Env};
use crate::error::FlowError;

/// A run with everything about it that never changes.
#[derive(Clone)]
pub struct Run {
    pub id: RunId,
    pub facts: RunFacts,
    pub loaded: Arc<CompiledPlan>,
}

impl Run {
    /// Returns the run of an id; `None`: there is none, or it was removed.
    ///
    /// # Errors
    /// The store's; a plan that cannot be read.
    pub async fn load(env: &Env, id: &RunId) -> Result<Option<Self>, FlowError> {
        let Some(facts) = env.facts(id).await? else { return Ok(None) };
        Self::of(env, id, facts).await.map(Some)
    }

    /// The run of an id whose facts were read already.
    ///
    /// # Errors
    /// The store's; a plan that cannot be read.
    pub async fn of(env: &Env, id: &RunId, facts: RunFacts) -> Result<Self, FlowError> {
        env.remember_facts(id, &facts);
        let life = id::instance_key(&facts.kind, &facts.name, &facts.uid);
        let loaded = env.plan(&life, &facts.plan).await?;
        if loaded.hook_plan(id.hook()).is_none() {
            return Err(FlowError::Broken(format!("run {id}: its plan has no such hook")));
        }
        Ok(Self { id: id.clone(), facts, loaded })
    }

    /// The hook that it is the run of.
    pub fn hook(&self) -> Hook {
        self.id.hook()
    }

    /// Its units.
    pub fn hook_plan(&self) -> &HookPlan {
        self.parts().0
    }

    /// Its graph.
    pub fn graph(&self) -> &Graph {
        self.parts().1
    }

    fn parts(&self) -> (&HookPlan, &Graph) {
        self.loaded.hook_plan(self.hook()).expect("checked when the run was made")
    }

    /// A unit's plan; `None` for a unit that it does not have.
    pub fn unit(&self, unit: Unit) -> Option<&UnitPlan> {
        self.hook_plan().units.get(unit.0 as usize)
    }

    /// The cluster where a unit's pods and objects go; `None`: the control plane's default.
    pub fn cluster(&self, unit: Unit) -> Option<&str> {
        self.unit(unit).and_then(|unit| self.loaded.plan.cluster(unit))
    }

    /// Returns whether a relay runs the unit.
    pub fn is_relayed(&self, unit: Unit) -> bool {
        self.unit(unit).is_some_and(|unit| unit.action.is_relayed())
    }

    /// The name of the plugin that a unit is of, without its version; `None` for a plan that lacks the unit's resource.
    pub fn plugin(&self, unit: &UnitPlan) -> Option<&str> {
        let (resource, _) = unit.key.split_once('/')?;
        let plugin = self.loaded.plan.resources.get(resource)?.plugin.as_str();
        Some(plugin.rsplit_once('@').map_or(plugin, |(name, _)| name))
    }

    /// The short name of the target's life.
    pub fn instance_key(&self) -> String {
        id::instance_key(&self.facts.kind, &self.facts.name, &self.facts.uid)
    }

    /// What `target.…` stands for.
    pub fn target_facts(&self) -> TargetFacts {
        let spec = &self.loaded.plan.target;
        TargetFacts {
            kind: self.facts.kind.clone(),
            name: self.facts.name.clone(),
            uid: self.facts.uid.clone(),
            namespace: spec.namespace.clone(),
            key: self.instance_key(),
            generation: self.facts.generation,
            cluster: spec.cluster.clone(),
            labels: spec.labels.clone(),
        }
    }

    /// A view that knows one item.
    pub fn view_of(&self, head: &RunHead) -> RunView {
        RunView::new(self.graph(), [(head.shard, head.head.clone())])
    }

    /// Reads all items of the run.
    ///
    /// # Errors
    /// The store's.
    pub async fn read_view(&self, env: &Env) -> Result<RunView, FlowError> {
        let heads = env.store.read_run(&self.id).await?;
        Ok(RunView::whole(self.graph(), heads.into_iter().map(|head| (head.shard, head.head))))
    }
}

/// Reads the root of a run and writes the patch that `decide` returns for it. Repeats both while others change the root.
/// Returns false, and writes nothing, if there is no root or no patch.
///
/// # Errors
/// The store's.
pub(crate) async fn patch_root(
    env: &Env,
    id: &RunId,
    decide: impl Fn(&HeadState) -> Option<Patch>,
) -> Result<bool, FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let root = env.store.read_root(id).await?;
        let Some(patch) = root.and_then(|root| decide(&root.head)) else { return Ok(false) };
        if env.store.patch_run(id, &patch).await?.is_written() {
            return Ok(true);
        }
    }
    Err(FlowError::Contended(format!("run {id}")))
}

/// The epoch of a whole view.
pub fn epoch(view: &RunView) -> Epoch {
    view.root().map_or(Epoch::FIRST, |head| head.epoch)
}

/// The try that a unit is at, or was at when it ended.
pub fn attempt(view: &RunView, unit: Unit) -> Attempt {
    let (shard, slot) = Shard::of(unit);
    view.head(shard).map_or(Attempt::FIRST, |head| head.attempt(slot))
}

/// The state of an earlier run of the same life, for the units that later hooks read or undo.
#[derive(Clone)]
pub struct EarlierRun {
    pub id: RunId,
    pub graph: Graph,
    /// Its whole state; `None`: it never began.
    pub view: Option<RunView>,
}

impl EarlierRun {
    /// Returns true if any try of `unit` may have been started.
    pub fn may_have_started(&self, unit: Unit) -> bool {
        self.view.as_ref().is_some_and(|view| ebb_engine::follow::may_have_started(&self.graph, view, unit))
    }

    /// The try whose success counts, if the unit succeeded.
    pub fn success(&self, unit: Unit) -> Option<Attempt> {
        let view = self.view.as_ref()?;
        (view.status(unit) == UnitProgress::Done).then(|| attempt(view, unit))
    }
}

/// The heads of a map from shards.
pub fn heads(heads: Vec<RunHead>) -> BTreeMap<Shard, HeadState> {
    heads.into_iter().map(|head| (head.shard, head.head)).collect()
}
