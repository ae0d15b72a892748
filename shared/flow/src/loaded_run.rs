//! A run with its facts and its plan.

use std::sync::Arc;

use ebb_documents::plan::{HookPlan, TargetSpec, UnitPlan, UnitRef};
use ebb_documents::render::TargetFacts;
use ebb_engine::{Attempt, Epoch, Graph, HeadState, Hook, Patch, Unit, UnitProgress};
use ebb_protocol::callback_token::idempotency_key;
use ebb_protocol::id::{InstanceRef, RunId, unit_key};
use ebb_store::{RunFacts, RunHead};

use crate::{CompiledPlan, Env, FlowError, FlowResult, UnitCluster};

/// Identifies a unit of an instance, without positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitName<'a> {
    pub hook: Hook,
    pub resource: &'a str,
    pub unit: &'a str,
}

/// A run with its facts and its plan.
#[derive(Clone)]
pub struct Run {
    pub id: RunId,
    pub facts: RunFacts,
    pub loaded: Arc<CompiledPlan>,
}

impl Run {
    /// Loads a run. Returns `None` if it does not exist or was removed.
    pub async fn load(env: &Env, id: &RunId) -> FlowResult<Option<Self>> {
        let Some(facts) = env.facts(id).await? else { return Ok(None) };
        match Self::with_units(env, id, facts).await {
            // A removal deletes a run, then its plan.
            Err(error @ FlowError::Damaged { .. }) => match env.store.read_run(id).await? {
                Some(_) => Err(error),
                None => Ok(None),
            },
            loaded => loaded,
        }
    }

    /// Does the same as [`Self::load`], and reads the head of the run.
    pub(crate) async fn load_with_head(env: &Env, id: &RunId) -> FlowResult<Option<(Self, HeadState)>> {
        let Some(run) = Self::load(env, id).await? else { return Ok(None) };
        let head = run.read_head(env).await?;
        Ok(Some((run, head)))
    }

    /// Returns the run `id` with its facts, or `None` if an update has replaced the units of its event. The run has then
    /// ended.
    pub(crate) async fn with_units(env: &Env, id: &RunId, facts: RunFacts) -> FlowResult<Option<Self>> {
        let loaded = env.plan(&facts.instance_key(), &facts.plan).await?;
        let is_replaced = loaded.digest != facts.plan || loaded.hook_plan(id.hook()).is_none();
        if matches!(id.hook(), Hook::Event(_)) && is_replaced {
            return Ok(None);
        }
        env.remember_facts(id, &facts);
        if loaded.hook_plan(id.hook()).is_none() {
            return Err(FlowError::Broken(format!("run {id}: its plan has no such hook")));
        }
        Ok(Some(Self { id: id.clone(), facts, loaded }))
    }

    pub fn hook(&self) -> Hook {
        self.id.hook()
    }

    pub fn hook_plan(&self) -> &HookPlan {
        self.parts().0
    }

    pub fn graph(&self) -> &Graph {
        self.parts().1
    }

    fn parts(&self) -> (&HookPlan, &Graph) {
        self.loaded.hook_plan(self.hook()).expect("checked when the run was made")
    }

    /// Returns the plan of a unit, or `None` for an unknown unit.
    pub fn unit(&self, unit: Unit) -> Option<&UnitPlan> {
        self.hook_plan().units.get(unit.0 as usize)
    }

    pub fn find_unit(&self, key: &str) -> Option<(Unit, &UnitPlan)> {
        self.graph().units().zip(&self.hook_plan().units).find(|(_, planned)| planned.key == key)
    }

    /// Returns true for a setup unit of a resource that an update has removed or replaced. `present` is the plan of the
    /// target. It has the former names of resources, which an earlier plan in memory lacks.
    pub fn is_former(&self, unit: Unit, present: &CompiledPlan) -> bool {
        let at = UnitRef { hook: self.hook(), unit: unit.0 };
        let plan = &present.plan;
        plan.unit(at).is_some_and(|unit| unit.is_setup(at.hook) && plan.former(unit.resource()).is_some())
    }

    pub fn cluster(&self, unit: Unit) -> UnitCluster<'_> {
        let plan = &self.loaded.plan;
        let name = self.unit(unit).and_then(|unit| plan.cluster(unit));
        UnitCluster { name, uid: plan.cluster_uid(name) }
    }

    pub fn is_relayed(&self, unit: Unit) -> bool {
        self.unit(unit).is_some_and(|unit| unit.action.is_relayed())
    }

    /// Returns the name of a unit's plugin, without its version. Own units of the target have none.
    pub fn plugin(&self, unit: &UnitPlan) -> Option<&str> {
        let (resource, _) = unit.key.split_once('/')?;
        let plugin = self.loaded.plan.resource(resource)?.plugin.as_str();
        Some(plugin.rsplit_once('@').map_or(plugin, |(name, _)| name))
    }

    /// Returns the idempotency key of a unit of this run or of one that it undoes. Each update and each occurrence of an
    /// event has keys of its own.
    pub fn idempotency_key(&self, unit: UnitName<'_>) -> String {
        let UnitName { hook, resource, unit } = unit;
        match hook {
            Hook::Event(_) => idempotency_key(self.id.as_str(), resource, unit),
            hook => idempotency_key(&self.key_scope(hook), resource, unit),
        }
    }

    /// Returns the value of `EBB_KEY` for a unit or for what it undoes. A resource that an update makes has another key
    /// than the one that it replaces.
    pub(crate) fn stable_key(&self, unit: UnitName<'_>) -> String {
        unit_key(&self.key_scope(unit.hook), unit.resource, unit.unit)
    }

    fn key_scope(&self, hook: Hook) -> String {
        if let Hook::Update(_) = hook { self.id.sibling(hook).to_string() } else { self.facts.instance_key() }
    }

    /// Returns the values of `target.…` in expressions.
    pub fn target_facts(&self) -> TargetFacts {
        target_facts(self.facts.target_key().instance(&self.facts.uid), self.facts.generation, &self.loaded.plan.target)
    }

    /// Checks that the run has the plan of a head that was read later.
    ///
    /// # Errors
    /// Returns a retryable error if an operator has repaired the teardown since this function instance read the facts of
    /// the run. The next invocation reads them again.
    pub(crate) fn check_plan(&self, env: &Env, head: &RunHead) -> FlowResult<()> {
        if head.facts.plan == self.facts.plan {
            return Ok(());
        }
        env.forget_run(&self.id);
        Err(FlowError::Contended(format!("run {}", self.id)))
    }

    /// Reads the head of the run. A run that was removed meanwhile has that of a new run.
    pub async fn read_head(&self, env: &Env) -> FlowResult<HeadState> {
        match env.store.read_run(&self.id).await? {
            Some(present) => self.check_plan(env, &present).map(|()| present.head),
            None => Ok(HeadState::new(Epoch::FIRST)),
        }
    }
}

/// Returns the facts about an instance with this document.
pub fn target_facts(instance: InstanceRef<'_>, generation: u64, spec: &TargetSpec) -> TargetFacts {
    let [kind, name, uid] = [instance.target.kind, instance.target.name, instance.uid].map(str::to_owned);
    let (namespace, cluster, labels) = (spec.namespace.clone(), spec.cluster.clone(), spec.labels.clone());
    TargetFacts { kind, name, uid, key: instance.key(), generation, namespace, cluster, labels }
}

/// Reads the head of a run and writes the patch that `decide` returns for it. Repeats both while other writers change
/// the head. Writes nothing and returns false if the run does not exist or `decide` returns no patch.
pub(crate) async fn patch_head(
    env: &Env,
    id: &RunId,
    decide: impl Fn(&HeadState) -> Option<Patch>,
) -> FlowResult<bool> {
    for _ in 0..crate::ATTEMPTS {
        let present = env.store.read_run(id).await?;
        let Some(patch) = present.and_then(|present| decide(&present.head)) else { return Ok(false) };
        if env.store.patch_run(id, &patch).await?.is_written() {
            return Ok(true);
        }
    }
    Err(FlowError::Contended(format!("run {id}")))
}

/// The state of an earlier run of the same instance, for units of later hooks that read or undo its units.
#[derive(Clone)]
pub struct EarlierRun {
    pub id: RunId,
    pub graph: Graph,
    /// `None` means that the run has not begun.
    pub head: Option<HeadState>,
}

impl EarlierRun {
    /// Returns true if any attempt of `unit` may have started.
    pub fn may_have_started(&self, unit: Unit) -> bool {
        self.head.as_ref().is_some_and(|head| ebb_engine::follow::may_have_started(&self.graph, head, unit))
    }

    /// Returns true if the unit is done, or has failed and is tolerated.
    pub fn lets_pass(&self, unit: Unit) -> bool {
        self.head.as_ref().is_some_and(|head| ebb_engine::lets_pass(&self.graph, head, unit))
    }

    pub fn success(&self, unit: Unit) -> Option<Attempt> {
        let head = self.head.as_ref()?;
        (head.status(unit) == UnitProgress::Done).then(|| head.attempt(unit))
    }
}
