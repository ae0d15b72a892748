//! The context of a function: store, ports, settings, and caches that are kept between invocations.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ebb_documents::notification::NotificationRule;
use ebb_documents::plan::HookPlan;
use ebb_documents::{EventSource, Plan, PluginDoc};
use ebb_egress::digest::DigestChallenge;
use ebb_egress::{ByteBudget, HttpCall};
use ebb_engine::{Attempt, Graph, Hook, HookSet, Millis, Timestamp, Unit};
use ebb_protocol::{RunId, SecretReader, SecretText, TargetKey, TaskState, WebhookKeys, limits};
use ebb_store::{ChangeFeed, RunFacts, Store, StoreError, TargetHead};
use tokio::sync::OnceCell;

use crate::circuit::CircuitBreakers;
use crate::failed_sweeps::FailedSweeps;
use crate::ports::{Clock, MessageQueue, RandomSource, RelayClient, SteadyTime};
use crate::taken_results::TakenResults;
use crate::{FlowError, FlowResult, lock};

#[derive(Debug)]
pub struct DeploymentSettings {
    /// The URL of `POST /v1/callbacks`.
    pub callback_url: String,
    /// The name of this installation at relays. It stays the same when URLs and keys change.
    pub installation: String,
    /// The `source` of notifications.
    pub source: String,
    /// The URL for notifications. `None` means that no notifications are sent.
    pub platform_url: Option<String>,
    pub platform_keys: WebhookKeys,
    pub webhook_keys: WebhookKeys,
    /// The root secrets. The secrets that sign the requests of each plugin's webhook units are derived from them.
    pub unit_keys: WebhookKeys,
    /// The secrets of callback tokens.
    pub token_keys: WebhookKeys,
    /// The secrets that sources and connections name.
    pub secrets: Arc<dyn SecretReader>,
    /// The in-flight limit: the longest time from the decision to send a request until it can no longer arrive. It
    /// covers function timeout, transport and clock skew. `L` of the protocol.
    pub max_in_flight: Millis,
    /// The time that a cancelled script has to end.
    pub grace: Duration,
    /// Maximum wait for the response of a webhook unit. A unit that takes longer responds 202.
    pub response_timeout: Duration,
    /// Maximum time for which acceptances wait for callbacks to this function instance. Zero if others take the callbacks.
    pub callback_wait: Duration,
    /// Delay of the first sweep of a new run.
    pub first_sweep_delay: Millis,
    /// Maximum time between two sweeps of an open run. `H` of the protocol.
    pub max_sweep_interval: Millis,
    /// The time for which the data of a gone instance is kept. `None` means forever.
    pub retention: Option<Millis>,
    /// The most targets of a caller of the API that live at once.
    pub living_per_owner: Option<u32>,
    /// Maximum dispatches per invocation. Further ones go through the queue.
    pub max_dispatches: usize,
    /// The time within which an invocation starts dispatches.
    pub dispatch_budget: Duration,
}

impl DeploymentSettings {
    /// Returns the longest time from the decision to send a webhook request until its response can no longer be
    /// applied: an invocation starts dispatches within its budget, and waits for each response.
    pub fn response_window(&self) -> Millis {
        let wait = Millis::from(self.dispatch_budget.saturating_add(self.response_timeout));
        Millis(self.max_in_flight.0.saturating_add(wait.0))
    }

    /// Returns the time between the announcement of a removal and the removal. Two invocations end in it: the one that
    /// announces, and one that has taken a result just before.
    pub fn removal_notice(&self) -> Millis {
        Millis(self.response_window().0.saturating_mul(2))
    }
}

pub struct Env {
    pub store: Arc<Store>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn RandomSource>,
    pub relay: Arc<dyn RelayClient>,
    pub egress: Arc<dyn HttpCall>,
    /// The client for the platform, whose server may be unreachable for units.
    pub platform: Arc<dyn HttpCall>,
    pub queue: Arc<dyn MessageQueue>,
    pub settings: DeploymentSettings,
    /// Plans and facts of recent runs. A function instance reads them once. A repair of the teardown changes the plan in
    /// the facts of a run; `Run::check_plan` finds that.
    pub cache: InstanceCache,
}

/// A plan with the graphs of its hooks.
pub struct CompiledPlan {
    pub plan: Plan,
    pub digest: String,
    graphs: HashMap<Hook, Graph>,
}

impl CompiledPlan {
    /// Parses a stored plan.
    ///
    /// # Errors
    /// Returns [`FlowError::Broken`] if the bytes are not a plan.
    pub fn read(digest: &str, json: &[u8]) -> FlowResult<Self> {
        let broken = |reason: String| FlowError::Broken(format!("plan {digest}: {reason}"));
        let text = std::str::from_utf8(json).map_err(|error| broken(error.to_string()))?;
        Self::of(Plan::from_json(text).map_err(|error| broken(error.to_string()))?, digest)
    }

    /// Makes the graphs of a plan, and marks its undos that only look.
    ///
    /// # Errors
    /// Returns [`FlowError::Broken`] if the plan does not come from the compiler.
    pub fn of(mut plan: Plan, digest: &str) -> FlowResult<Self> {
        let broken = |reason: String| FlowError::Broken(format!("plan {digest}: {reason}"));
        plan.mark_looks();
        let mut graphs = HashMap::new();
        for hook in &plan.hooks {
            graphs.insert(hook.hook, hook.graph().map_err(|error| broken(error.to_string()))?);
        }
        Ok(Self { plan, digest: digest.to_owned(), graphs })
    }

    pub fn hooks(&self) -> HookSet {
        self.plan.hooks.iter().filter(|hook| !hook.units.is_empty()).map(|hook| hook.hook).collect()
    }

    /// Returns the hooks with units in their order, with updates and without events.
    pub fn lifecycle_hooks(&self) -> impl Iterator<Item = Hook> + '_ {
        self.plan.hooks.iter().map(|hook| hook.hook).filter(|hook| !matches!(hook, Hook::Event(_)))
    }

    /// Returns the units and the graph of a hook, if it has units.
    pub fn hook_plan(&self, hook: Hook) -> Option<(&HookPlan, &Graph)> {
        Some((self.plan.hook_plan(hook)?, self.graphs.get(&hook)?))
    }
}

/// The states of running tasks of a run, as their relays reported them. They are for people only.
#[derive(Debug)]
pub struct TaskReports {
    /// The time until which readers share them.
    pub until: SteadyTime,
    /// Each state has the time of its report.
    pub states: BTreeMap<(Unit, Attempt), (TaskState, Timestamp)>,
    /// The last progress that a relay has reported of each task, with the time of that report. It is older than the state if
    /// the relay has restarted or does not respond.
    pub progress: BTreeMap<(Unit, Attempt), (String, Timestamp)>,
}

/// The state of a function instance between invocations: plans, facts of runs, parsed documents, circuit breakers and failed
/// sweeps.
#[derive(Default)]
pub struct InstanceCache {
    plans: LruCache<Arc<CompiledPlan>>,
    /// Plans that are being read, by digest. Concurrent readers share one read.
    loading: Mutex<HashMap<String, Weak<PlanCell>>>,
    facts: LruCache<RunFacts>,
    /// Compiled sources, by the digest of the document.
    pub(crate) sources: LruCache<Arc<EventSource>>,
    /// Parsed plugins, by name, version and digest. Whether a version is withdrawn is read from the table.
    pub(crate) plugins: LruCache<Arc<PluginDoc>>,
    task_reports: LruCache<Arc<TaskReports>>,
    pub(crate) breakers: Arc<CircuitBreakers>,
    pub(crate) failed_sweeps: FailedSweeps,
    /// The subscriptions, with the time at which they were read.
    pub(crate) subscriptions: tokio::sync::Mutex<Option<(SteadyTime, Arc<Vec<NotificationRule>>)>>,
    /// The feed of changed targets, with the time at which it was read or written.
    pub(crate) change_feed: tokio::sync::Mutex<Option<(SteadyTime, Arc<ChangeFeed>)>>,
    /// Changes that are not in the feed yet, in the order of the writes of their targets.
    pub(crate) noted_changes: Mutex<Vec<String>>,
    pub(crate) taken_results: Arc<TakenResults>,
    /// Access tokens of connections, by the digest of the client.
    pub(crate) access_tokens: LruCache<KnownToken>,
    /// The end of the time for which a 401 renews no access token, by the digest of the client and the URL of the request.
    pub(crate) rejections: LruCache<Timestamp>,
    /// The last challenges of HTTP Digest, by connection.
    pub(crate) challenges: LruCache<Arc<DigestChallenge>>,
    pub(crate) budgets: MemoryBudgets,
}

/// An access token of a connection.
#[derive(Clone)]
pub(crate) struct KnownToken {
    pub(crate) token: SecretText,
    pub(crate) obtained: Timestamp,
    pub(crate) expires: Timestamp,
}

type PlanCell = OnceCell<Arc<CompiledPlan>>;

/// Maximum bytes of responses and of outputs from the bucket in an instance of 256 MB. Parsed, they take the same amount
/// again.
const BYTE_BUDGET: u32 = 32 << 20;
/// Maximum values of events that are evaluated at the same time: two of the largest events.
const EVENT_BUDGET: u32 = 2 * limits::JSON_VALUES as u32;

/// The memory that concurrent requests of a function instance may hold.
pub(crate) struct MemoryBudgets {
    /// Bytes of responses of other servers, and of outputs from the bucket.
    pub(crate) bytes: ByteBudget,
    pub(crate) event_values: ByteBudget,
}

impl Default for MemoryBudgets {
    fn default() -> Self {
        Self { bytes: ByteBudget::new(BYTE_BUDGET), event_values: ByteBudget::new(EVENT_BUDGET) }
    }
}

impl Env {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the time for ages in memory.
    pub fn steady(&self) -> SteadyTime {
        self.clock.steady()
    }

    /// Returns the URL of a target in the API.
    pub fn target_url(&self, target: TargetKey<'_>) -> String {
        self.url_below("v1", target)
    }

    /// Returns the URL of the page of a target in the console.
    pub fn page_url(&self, target: TargetKey<'_>) -> String {
        self.url_below("console", target)
    }

    fn url_below(&self, folder: &str, target: TargetKey<'_>) -> String {
        let source = &self.settings.source;
        let Ok(mut url) = url::Url::parse(source) else { return source.clone() };
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend([folder, "targets", target.kind, target.name]);
        }
        url.into()
    }

    /// Returns the present instance of a target: any one, or only that with the identity `uid`.
    pub async fn instance(&self, (key, uid): (TargetKey<'_>, Option<&str>)) -> FlowResult<Option<TargetHead>> {
        let target = self.store.read_target(key).await?;
        Ok(target.filter(|target| uid.is_none_or(|uid| uid == target.uid)))
    }

    /// Returns the plan of a target's present instance, as [`Self::plan`] does.
    pub async fn plan_of(&self, target: &TargetHead) -> FlowResult<Arc<CompiledPlan>> {
        self.plan(&target.instance_key(), &target.plan).await
    }

    /// Returns the plan of an instance, from memory by its digest, or from the store. An empty digest is the plan
    /// without hooks of a target that never had a plan. After an update, the store has the newer plan of the instance. It
    /// has all units of earlier runs at the same positions.
    ///
    /// # Errors
    /// Returns [`FlowError::Damaged`] if the plan is missing or unreadable.
    pub async fn plan(&self, instance: &str, digest: &str) -> FlowResult<Arc<CompiledPlan>> {
        if let Some(loaded) = self.cache.plans.get(digest) {
            return Ok(loaded);
        }
        if digest.is_empty() {
            return Ok(Arc::new(CompiledPlan::of(Plan::empty(), digest)?));
        }
        let cell = {
            let mut loading = lock(&self.cache.loading);
            loading.retain(|_, cell| cell.strong_count() > 0);
            let cell = loading.get(digest).and_then(Weak::upgrade).unwrap_or_default();
            loading.insert(digest.to_owned(), Arc::downgrade(&cell));
            cell
        };
        let loaded = cell.get_or_try_init(|| self.read_plan(instance, digest)).await?;
        if loaded.digest == digest {
            return Ok(Arc::clone(loaded));
        }
        // Another instance began with this plan and was updated. The reader that shared its read needs its own plan.
        self.read_plan(instance, digest).await
    }

    async fn read_plan(&self, instance: &str, digest: &str) -> FlowResult<Arc<CompiledPlan>> {
        let damaged = |what| FlowError::Damaged { what, fix: RESTORE };
        let json = self.store.get_plan(instance).await.map_err(|error| match error {
            // The item exists, but the object with its text does not.
            StoreError::Broken { .. } => damaged(format!("the stored plan cannot be read: {error}")),
            error => error.into(),
        })?;
        let json = json.ok_or_else(|| damaged(format!("the stored plan {digest} is missing")))?;
        let stored = ebb_protocol::id::digest(&json);
        let loaded = CompiledPlan::read(&stored, &json)
            .map_err(|error| damaged(format!("the stored plan cannot be read: {error}")))?;
        let loaded = Arc::new(loaded);
        self.cache.plans.put(&stored, Arc::clone(&loaded), json.len());
        Ok(loaded)
    }

    /// Returns the facts of a run, from memory or the table, or `None` if the run does not exist. Facts of a run older
    /// than the retention always come from the table, because another function instance may have removed it.
    pub async fn facts(&self, run: &RunId) -> FlowResult<Option<RunFacts>> {
        if let Some(facts) = self.cache.facts.get(run.as_str())
            && !self.may_be_removed(&facts)
        {
            return Ok(Some(facts));
        }
        let facts = self.store.read_run(run).await?.map(|head| head.facts);
        match &facts {
            Some(facts) => self.remember_facts(run, facts),
            None => self.forget_run(run),
        }
        Ok(facts)
    }

    pub fn remember_facts(&self, run: &RunId, facts: &RunFacts) {
        self.cache.facts.put(run.as_str(), facts.clone(), std::mem::size_of::<RunFacts>());
    }

    /// Returns the last reports on the tasks of a run, also those that readers do not share any more.
    pub fn task_reports(&self, run: &RunId) -> Option<Arc<TaskReports>> {
        self.cache.task_reports.get(run.as_str())
    }

    pub fn remember_task_reports(&self, run: &RunId, reports: &Arc<TaskReports>) {
        let weight = reports.states.len().max(reports.progress.len()).saturating_mul(REPORT_BYTES);
        self.cache.task_reports.put(run.as_str(), Arc::clone(reports), weight);
    }

    /// Returns true if the run is older than the retention by the clock of any function instance, so that its data may
    /// have been removed.
    pub(crate) fn may_be_removed(&self, facts: &RunFacts) -> bool {
        let latest = self.now().plus(MAX_CLOCK_SKEW);
        self.settings.retention.is_some_and(|retention| facts.started.plus(retention) <= latest)
    }

    pub fn forget_run(&self, run: &RunId) {
        self.cache.facts.remove(run.as_str());
    }

    pub fn forget_plan(&self, digest: &str) {
        self.cache.plans.remove(digest);
    }

    pub fn remember_plan(&self, loaded: &Arc<CompiledPlan>) {
        let units: usize = loaded.plan.hooks.iter().map(|hook| hook.units.len()).sum();
        self.cache.plans.put(&loaded.digest, Arc::clone(loaded), units.saturating_mul(UNIT_BYTES));
    }
}

/// A cache of recent entries in two generations. Each generation has at most [`MAX_ENTRIES`] entries and [`MAX_BYTES`].
pub(crate) struct LruCache<T>(Mutex<Generations<T>>);

struct Generations<T> {
    young: HashMap<String, (T, usize)>,
    weight: usize,
    old: HashMap<String, (T, usize)>,
}

/// The fix for a damaged plan. Before its first update, the digest depends on the compiled document only, so the same
/// document stores the same plan.
const RESTORE: &str = "to restore it, apply the document that the target was created with (`ebb apply -f FILE`); \
                       if a newer version of Ebb has written it, run that version";
const MAX_ENTRIES: usize = 512;
/// Maximum difference between the clocks of two function instances.
pub(crate) const MAX_CLOCK_SKEW: Millis = Millis(60_000);
/// Milliseconds within which an invocation starts requests to other servers. The rest of its time is for their
/// responses.
pub(crate) const START_WINDOW_MS: u64 = 5_000;
/// Maximum bytes of stored JSON per generation. In memory they take a few times as much, in a function of 256 MB.
const MAX_BYTES: usize = 8 << 20;
/// The weight of a byte of a plugin. Plugins get a quarter of the memory of plans.
pub(crate) const PLUGIN_WEIGHT: usize = 4;
/// Approximate JSON bytes of the state of a task that waits for several objects.
const REPORT_BYTES: usize = 4 << 10;
/// Approximate JSON bytes per unit of a plan.
const UNIT_BYTES: usize = 1 << 10;

impl<T> Default for LruCache<T> {
    fn default() -> Self {
        Self(Mutex::new(Generations { young: HashMap::new(), weight: 0, old: HashMap::new() }))
    }
}

impl<T: Clone> LruCache<T> {
    pub(crate) fn get(&self, key: &str) -> Option<T> {
        let mut recent = lock(&self.0);
        if let Some((value, _)) = recent.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = recent.old.remove(key)?;
        recent.put(key, value.clone(), weight);
        Some(value)
    }

    fn remove(&self, key: &str) {
        let mut recent = lock(&self.0);
        recent.old.remove(key);
        if let Some((_, weight)) = recent.young.remove(key) {
            recent.weight = recent.weight.saturating_sub(weight);
        }
    }

    /// Keeps a value that takes `weight` bytes.
    pub(crate) fn put(&self, key: &str, value: T, weight: usize) {
        lock(&self.0).put(key, value, weight);
    }
}

impl<T> Generations<T> {
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
