//! The surroundings of a function: store, ports, settings, and what it keeps warm between invocations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ebb_documents::plan::{HookPlan, Plan};
use ebb_documents::render::CompiledExpressions;
use ebb_egress::HttpCall;
use ebb_engine::{Graph, Hook, HookSet, Millis, Timestamp};
use ebb_protocol::id::{self, RunId};
use ebb_protocol::sign::WebhookKeys;
use ebb_protocol::token::TokenKeys;
use ebb_store::{
    HealthMarks, ListTargets, MoveTarget, ObjectStore, PatchRun, PlanStore, PutAttemptResult, PutExpiry, QueryDue,
    ReadPlugins, ReadRecords, ReadRun, ReadTarget, RelayOutages, RunFacts, StoreError, TargetHead, UpdateAttemptRecord,
    WritePlugins,
};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::breaker::CircuitBreakers;
use crate::error::FlowError;
use crate::ports::{Clock, MessageQueue, RandomSource, RelayClient};
use crate::sweep::failures::FailedSweeps;

/// What moving a run on needs of the store; `complete` needs no more.
pub trait DriveStore:
    ReadRun
    + PatchRun
    + ReadRecords
    + UpdateAttemptRecord
    + PutAttemptResult
    + ReadTarget
    + MoveTarget
    + PlanStore
    + PutExpiry
    + ObjectStore
    + HealthMarks
{
}
impl<T> DriveStore for T where
    T: ReadRun
        + PatchRun
        + ReadRecords
        + UpdateAttemptRecord
        + PutAttemptResult
        + ReadTarget
        + MoveTarget
        + PlanStore
        + PutExpiry
        + ObjectStore
        + HealthMarks
{
}

/// What the api needs beside it.
pub trait ApiStore: DriveStore + ReadPlugins + WritePlugins + ListTargets {}
impl<T> ApiStore for T where T: DriveStore + ReadPlugins + WritePlugins + ListTargets {}

/// What the routes need: the api, what is told of clusters, and what is tried out.
pub trait HttpStore: ApiStore + RelayOutages + QueryDue {}
impl<T> HttpStore for T where T: ApiStore + RelayOutages + QueryDue {}

/// What `sweep` needs beside [`DriveStore`].
pub trait SweepStore: DriveStore + QueryDue {}
impl<T> SweepStore for T where T: DriveStore + QueryDue {}

/// Settings of a deployment.
#[derive(Debug)]
pub struct DeploymentSettings {
    /// Where callbacks go: the URL of `POST /v1/callbacks`.
    pub callback_url: String,
    /// Names this installation to relays. It stays the same when URLs and keys change.
    pub installation: String,
    /// `source` of the events that we send.
    pub source: String,
    /// Where notifications go; `None`: nobody is told.
    pub platform_url: Option<String>,
    pub platform_keys: WebhookKeys,
    pub webhook_keys: WebhookKeys,
    /// The secrets from which those are derived that sign the requests of each plugin's webhook units.
    pub unit_keys: WebhookKeys,
    pub token_keys: TokenKeys,
    /// `L` of the protocol: after a decision to send, this long something may still arrive. Function timeout,
    /// transport and clock skew together.
    pub max_in_flight: Millis,
    /// How long work that was cancelled may take to end.
    pub grace: Duration,
    /// How long a webhook unit's answer is waited for; a unit that takes longer answers 202.
    pub response_timeout: Duration,
    /// When `sweep` looks at a new run first.
    pub first_sweep_delay: Millis,
    /// `H` of the protocol: no open run is left alone for longer.
    pub max_sweep_interval: Millis,
    /// How long the stored data of a life is kept after it is gone; `None`: forever.
    pub retention: Option<Millis>,
    /// Sends per invocation; the rest goes through the queue.
    pub max_dispatches: usize,
    /// For how long an invocation begins sends.
    pub dispatch_budget: Duration,
}

impl DeploymentSettings {
    /// How long after a decision to send a webhook unit its answer may still be taken: an invocation's sends begin
    /// within its budget, and each waits for its answer.
    pub fn response_window(&self) -> Millis {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let all = self
            .max_in_flight
            .0
            .saturating_add(millis(self.dispatch_budget))
            .saturating_add(millis(self.response_timeout));
        Millis(all)
    }
}

/// What a function is given.
pub struct Env {
    pub store: Arc<dyn DriveStore>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn RandomSource>,
    pub relay: Arc<dyn RelayClient>,
    pub egress: Arc<dyn HttpCall>,
    /// The platform's server, which may be where units must not reach.
    pub platform: Arc<dyn HttpCall>,
    pub queue: Arc<dyn MessageQueue>,
    pub settings: DeploymentSettings,
    /// Plans and facts of recent runs. They never change, so a warm function reads neither again.
    pub cache: InstanceCache,
}

/// A plan with what is made of it once.
pub struct CompiledPlan {
    pub plan: Plan,
    pub compiled: CompiledExpressions,
    pub digest: String,
    graphs: HashMap<Hook, Graph>,
}

impl CompiledPlan {
    /// Reads a stored plan.
    ///
    /// # Errors
    /// [`FlowError::Broken`] for bytes that this program did not write.
    pub fn read(digest: &str, json: &[u8]) -> Result<Self, FlowError> {
        let broken = |reason: String| FlowError::Broken(format!("plan {digest}: {reason}"));
        let text = std::str::from_utf8(json).map_err(|error| broken(error.to_string()))?;
        let plan = Plan::from_json(text).map_err(|error| broken(error.to_string()))?;
        Self::of(plan, digest)
    }

    /// Prepares a plan.
    ///
    /// # Errors
    /// [`FlowError::Broken`] for a plan that was not compiled by us.
    pub fn of(plan: Plan, digest: &str) -> Result<Self, FlowError> {
        let broken = |reason: String| FlowError::Broken(format!("plan {digest}: {reason}"));
        let compiled = CompiledExpressions::new(&plan).map_err(|error| broken(error.to_string()))?;
        let mut graphs = HashMap::new();
        for hook in &plan.hooks {
            graphs.insert(hook.hook.into(), hook.graph().map_err(|error| broken(error.to_string()))?);
        }
        Ok(Self { plan, compiled, digest: digest.to_owned(), graphs })
    }

    /// Which hooks have units.
    pub fn hooks(&self) -> HookSet {
        self.plan.hooks.iter().filter(|hook| !hook.units.is_empty()).map(|hook| hook.hook.into()).collect()
    }

    /// The units and the graph of a hook, if it has units.
    pub fn hook_plan(&self, hook: Hook) -> Option<(&HookPlan, &Graph)> {
        Some((self.plan.hook_plan(hook.into())?, self.graphs.get(&hook)?))
    }
}

/// The memory of a function between invocations: immutable data, clusters that gave no answer, and failed looks.
pub struct InstanceCache {
    plans: Mutex<LruCache<Arc<CompiledPlan>>>,
    /// Plans that are being read, by digest. Each is read once, however many ask for it.
    loading: Mutex<HashMap<String, Weak<PlanCell>>>,
    facts: Mutex<LruCache<RunFacts>>,
    pub(crate) breakers: CircuitBreakers,
    pub(crate) failed_sweeps: FailedSweeps,
    /// Bytes of outputs that may still be read from the bucket.
    output_budget: Semaphore,
}

/// A plan that one of its readers reads for all.
type PlanCell = OnceCell<Arc<CompiledPlan>>;

/// Bytes of outputs from the bucket that an instance of 256 MB holds at once. Parsed, they take as much again.
const OUTPUT_BUDGET: u32 = 32 << 20;

impl Default for InstanceCache {
    fn default() -> Self {
        Self {
            plans: Mutex::default(),
            loading: Mutex::default(),
            facts: Mutex::default(),
            breakers: CircuitBreakers::default(),
            failed_sweeps: FailedSweeps::default(),
            output_budget: Semaphore::new(OUTPUT_BUDGET as usize),
        }
    }
}

impl InstanceCache {
    /// Waits until `bytes` may be read from the bucket. Dropping the permit gives them back. `None`: never, because
    /// the semaphore was closed.
    pub(crate) async fn reserve_output_bytes(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(bytes).unwrap_or(OUTPUT_BUDGET).min(OUTPUT_BUDGET);
        self.output_budget.acquire_many(bytes).await.ok()
    }

    /// Returns the cell of the plan that is being read under `digest`.
    fn loading(&self, digest: &str) -> Arc<PlanCell> {
        let mut loading = lock(&self.loading);
        loading.retain(|_, cell| cell.strong_count() > 0);
        let cell = loading.get(digest).and_then(Weak::upgrade).unwrap_or_default();
        loading.insert(digest.to_owned(), Arc::downgrade(&cell));
        cell
    }
}

impl Env {
    /// The present.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the plan of a target's present life, as [`Self::plan`] does.
    ///
    /// # Errors
    /// Those of [`Self::plan`].
    pub async fn plan_of(&self, target: &TargetHead) -> Result<Arc<CompiledPlan>, FlowError> {
        self.plan(&id::instance_key(&target.kind, &target.name, &target.uid), &target.plan).await
    }

    /// Returns the plan of a life, by its digest from memory, or from the store. No digest is that of a target which never
    /// had a plan: one without hooks.
    ///
    /// # Errors
    /// The store's; [`FlowError::Damaged`] if the plan does not exist or cannot be read.
    pub async fn plan(&self, life: &str, digest: &str) -> Result<Arc<CompiledPlan>, FlowError> {
        if let Some(loaded) = lock(&self.cache.plans).get(digest) {
            return Ok(loaded);
        }
        if digest.is_empty() {
            return Ok(Arc::new(CompiledPlan::of(Plan::empty(), digest)?));
        }
        let loading = self.cache.loading(digest);
        let loaded = loading.get_or_try_init(|| async {
            let damaged = |what| FlowError::Damaged { what, fix: RESTORE };
            let json = self.store.get_plan(life).await.map_err(|error| match error {
                // Its item is there, and the object that the item names is not.
                StoreError::Broken { .. } => damaged(format!("the stored plan cannot be read: {error}")),
                error => error.into(),
            })?;
            let json = json.ok_or_else(|| damaged(format!("the stored plan {digest} is missing")))?;
            let loaded = CompiledPlan::read(digest, &json)
                .map_err(|error| damaged(format!("the stored plan cannot be read: {error}")))?;
            let loaded = Arc::new(loaded);
            lock(&self.cache.plans).put(digest, Arc::clone(&loaded), json.len());
            Ok::<_, FlowError>(loaded)
        });
        Ok(Arc::clone(loaded.await?))
    }

    /// Returns the facts of a run, from memory or the table; `None`: no such run. Another instance may have removed an old
    /// run since this one remembers it, so those of an old run always come from the table.
    ///
    /// # Errors
    /// The store's.
    pub async fn facts(&self, run: &RunId) -> Result<Option<RunFacts>, FlowError> {
        if let Some(facts) = lock(&self.cache.facts).get(run.as_str())
            && !self.may_be_removed(&facts)
        {
            return Ok(Some(facts));
        }
        let facts = self.store.read_root(run).await?.and_then(|head| head.facts);
        match &facts {
            Some(facts) => self.remember_facts(run, facts),
            None => self.forget_run(run),
        }
        Ok(facts)
    }

    /// Keeps the facts of a run in memory.
    pub fn remember_facts(&self, run: &RunId, facts: &RunFacts) {
        lock(&self.cache.facts).put(run.as_str(), facts.clone(), std::mem::size_of::<RunFacts>());
    }

    /// Returns whether the run of `facts` is so old that its life may have been removed.
    pub(crate) fn may_be_removed(&self, facts: &RunFacts) -> bool {
        self.settings.retention.is_some_and(|retention| facts.started.plus(retention) <= self.now())
    }

    /// Drops the facts of a run that was removed.
    pub fn forget_run(&self, run: &RunId) {
        lock(&self.cache.facts).remove(run.as_str());
    }

    /// Drops a plan that was removed.
    pub fn forget_plan(&self, digest: &str) {
        lock(&self.cache.plans).remove(digest);
    }

    /// Keeps a plan in memory.
    pub fn remember_plan(&self, loaded: &Arc<CompiledPlan>) {
        let units: usize = loaded.plan.hooks.iter().map(|hook| hook.units.len()).sum();
        lock(&self.cache.plans).put(&loaded.digest, Arc::clone(loaded), units.saturating_mul(UNIT_BYTES));
    }
}

/// A poisoned lock only means that another request panicked; the map itself is whole after every operation.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last entries that were put: two generations, each at most [`MAX_ENTRIES`] entries or [`MAX_BYTES`].
struct LruCache<T> {
    young: HashMap<String, (T, usize)>,
    weight: usize,
    old: HashMap<String, (T, usize)>,
}

/// The command that restores a plan. Its digest is that of the compiled document, so the same document stores it again.
const RESTORE: &str = "to restore it, apply the document that the target was created with (`ebb sandbox apply -f FILE`); \
                       if a newer version of Ebb has written it, run that version";
const MAX_ENTRIES: usize = 512;
/// Bytes of stored JSON per generation; in memory it is a few times that, in a function of 256 MB.
const MAX_BYTES: usize = 8 << 20;
/// About what one unit of a plan takes in JSON.
const UNIT_BYTES: usize = 1 << 10;

impl<T> Default for LruCache<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), weight: 0, old: HashMap::new() }
    }
}

impl<T: Clone> LruCache<T> {
    fn get(&mut self, key: &str) -> Option<T> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = self.old.remove(key)?;
        self.put(key, value.clone(), weight);
        Some(value)
    }

    fn remove(&mut self, key: &str) {
        self.old.remove(key);
        if let Some((_, weight)) = self.young.remove(key) {
            self.weight = self.weight.saturating_sub(weight);
        }
    }

    fn put(&mut self, key: &str, value: T, weight: usize) {
        if self.young.len() >= MAX_ENTRIES || self.weight.saturating_add(weight) > MAX_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        if let Some((_, before)) = self.young.insert(key.to_owned(), (value, weight)) {
            self.weight = self.weight.saturating_sub(before);
        }
        self.weight = self.weight.saturating_add(weight);
    }
}
