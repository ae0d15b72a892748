//! A simulation of the model: the real functions on a table whose operations wait for the explorer.

use ebb_documents::{Plan, compile};
use ebb_engine::{Millis, Timestamp, UnitProgress, target};
use ebb_flow::advance::callback::CallbackOutcome;
use ebb_flow::advance::dispatch_all::drive;
use ebb_flow::advance::transition;
use ebb_flow::instance::changes::PinnedVersions;
use ebb_flow::instance::target_document::{CompilerTools, compile_document};
use ebb_flow::{
    CompiledPlan, DeploymentSettings, Env, FlowResult, InstanceCache, Rejection, RequestError, lifecycle, sweep,
};
use ebb_protocol::named_secrets::NamedSecrets;
use ebb_protocol::{ErrorCode, LifecycleData, LifecycleType, TargetKey, TargetStopCause, TokenClaims};
use ebb_store::{DueItem, Store, TargetHead};

use super::*;
use crate::invocations;
use crate::platform::sandbox;
use crate::simulation::plugin_documents as documents;
use crate::simulation::{KIND, SimClock, SimTable, TargetScenario, UnitBehavior, settings};

pub(super) const MAX_IN_FLIGHT_MS: u64 = 3_000;
const TIMEOUT_S: u64 = 300;
const ATTEMPTS: u32 = 2;

const NAME: &str = "s";
const UID: &str = "uid-1";

/// A graph of setup units, each with an undo of its kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelGraph {
    /// The action of each unit, and the lower units that it reads: at most one of another resource.
    #[serde(skip)]
    pub units: Vec<(UnitAction, Vec<usize>)>,
    /// True if the requests of webhooks of setup units must not be repeated.
    pub once: bool,
    /// The attempts of a unit. `None` for [`ATTEMPTS`].
    pub attempts: Option<u32>,
    /// True if the units have no outputs. Otherwise, each one has one output, its object.
    pub without_outputs: bool,
    /// Maximum number of concurrent scripts.
    pub slots: Option<usize>,
    /// Maximum number of dispatches of an invocation. `None` for the default of a deployment.
    pub max_dispatches: Option<usize>,
    /// The status of the gateway if the response of the server is lost.
    pub gateway: Option<u16>,
    /// The unit whose cluster is unreachable until the target is deleted.
    pub unreachable: Option<u32>,
    /// The updates of the document, one after the other.
    pub updates: Vec<ModelUpdate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum ModelUpdate {
    /// The last resource is new.
    Added,
    /// The last resource is missing.
    Removed,
    /// The first resource has other params.
    Replaced,
    /// The target has other labels, which no unit reads.
    Labelled,
}

/// Returns the document of a plugin with some units of a graph. It reads the output of another unit as its param `wire`.
fn plugin(graph: &ModelGraph, name: &str, own: &[usize]) -> String {
    let is_wired = own.iter().flat_map(|&unit| &graph.units[unit].1).any(|read| !own.contains(read));
    let retry = format!("{{attempts: {}, backoff: 10s, maxBackoff: 10s}}", graph.attempts.unwrap_or(ATTEMPTS));
    let setup = |&unit: &usize| {
        let (action, reads) = &graph.units[unit];
        let source = |read: &usize| if own.contains(read) { format!("u{read}") } else { "wire".to_owned() };
        let (name, reads) = (format!("u{unit}"), reads.iter().map(source).collect::<Vec<_>>());
        let text = match graph.without_outputs {
            false => documents::setup(&name, *action, &reads, ""),
            true => format!("  {name}:\n{}", documents::body(&name, *action, &reads)),
        };
        if graph.once { text.replace("body:", "idempotent: false, body:") } else { text }
    };
    let undo = |&unit: &usize| {
        let read = (!graph.without_outputs).then(|| format!("u{unit}.?id"));
        let body = documents::body(&format!("x{unit}"), graph.units[unit].0, read.as_slice());
        format!("  x{unit}:\n    undoes: u{unit}\n{body}")
    };
    let is_read = |unit: &&usize| {
        graph.units.iter().enumerate().any(|(user, (_, reads))| reads.contains(unit) && !own.contains(&user))
    };
    let outputs =
        own.iter().filter(is_read).map(|unit| format!("outputs: {{u{unit}: \"${{units.u{unit}.outputs.id}}\"}}\n"));
    documents::head(name, is_wired, &format!("{{timeout: {TIMEOUT_S}s, retry: {retry}}}"))
        + &documents::hook(Hook::PreStart, own.iter().map(setup))
        + &documents::hook(Hook::PostStop, own.iter().map(undo))
        + &outputs.collect::<String>()
}

/// Returns the document of the target after so many updates.
///
/// A graph without updates is one resource. Otherwise, each unit is a resource of its own.
fn document(graph: &ModelGraph, updates: usize) -> String {
    let last = graph.units.len() - 1;
    let (before, after) = graph.updates.split_at(updates);
    let changes_last = |update: &&ModelUpdate| matches!(update, ModelUpdate::Added | ModelUpdate::Removed);
    let has_last = match before.iter().rev().find(changes_last) {
        Some(update) => *update == ModelUpdate::Added,
        None => after.iter().find(changes_last) != Some(&ModelUpdate::Added),
    };
    let count = |wanted: ModelUpdate| before.iter().filter(|update| **update == wanted).count();
    let mut text = format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {NAME}\n");
    text += &format!("labels: {{changes: \"{}\"}}\nresources:", count(ModelUpdate::Labelled));
    if graph.updates.is_empty() {
        return text + "\n  r: {plugin: m@1.0.0}\n";
    }
    let units = graph.units.iter().enumerate().filter(|(unit, _)| has_last || *unit < last);
    for (unit, (_, reads)) in units.clone() {
        let size = if unit == 0 { count(ModelUpdate::Replaced) } else { 0 };
        let reads = reads.iter().map(|read| format!(", wire: \"${{resources.r{read}.outputs.u{read}}}\""));
        let reads: String = reads.collect();
        text += &format!("\n  r{unit}: {{plugin: m{unit}@1.0.0, params: {{size: {size}{reads}}}}}");
    }
    text + if units.count() == 0 { " {}\n" } else { "\n" }
}

pub(super) struct ModelDocuments {
    /// A table that has the plugins only, and does not wait for the explorer.
    plugins: Arc<SimTable>,
    documents: Vec<String>,
    /// The plans of the target after each number of updates, if each update finds all units done.
    plans: Vec<Arc<CompiledPlan>>,
    /// Other plans that targets had, by digest.
    others: Mutex<BTreeMap<String, Arc<CompiledPlan>>>,
}

impl ModelDocuments {
    pub(super) fn new(graph: &ModelGraph) -> Self {
        let all: Vec<usize> = (0..graph.units.len()).collect();
        let named = |name: String, own: &[usize]| {
            let text = plugin(graph, &name, own);
            (name, "1.0.0".to_owned(), text)
        };
        let plugins = match graph.updates.is_empty() {
            true => vec![named("m".to_owned(), &all)],
            false => all.iter().map(|unit| named(format!("m{unit}"), &[*unit])).collect(),
        };
        let scenario = TargetScenario::new(plugins, String::new(), UnitBehavior::Steady);
        let runtime = SimRuntime::default();
        let table = Arc::new(SimTable::new(runtime.clone()));
        table.publish(scenario.items());
        let documents: Vec<String> = (0..=graph.updates.len()).map(|updates| document(graph, updates)).collect();
        let mut plans: Vec<Plan> = Vec::new();
        for text in &documents {
            let (plugins, text) = (table.store(), text.clone());
            let keys = settings(MAX_IN_FLIGHT_MS).unit_keys;
            let compiled = runtime.run(async move {
                let tools: CompilerTools<'_> = (&InstanceCache::default(), &keys, &NamedSecrets::default(), None);
                let instance = TargetKey::new(KIND, NAME).instance(UID);
                compile_document(plugins.as_ref(), tools, instance, &text, PinnedVersions::Latest).await
            });
            let (wanted, _) = compiled.and_then(Result::ok).expect("the documents of a graph are valid");
            let merged = plans.last().map(|current| compile::update(current, &wanted, |_| true));
            plans.push(match merged {
                None => wanted,
                Some(update) => update.expect("small plans can be updated").expect("the document differs").plan,
            });
        }
        let loaded = plans.into_iter().map(|plan| {
            let digest = plan.digest();
            Arc::new(CompiledPlan::of(plan, &digest).expect("the plan was just compiled"))
        });
        Self { plugins: table, documents, plans: loaded.collect(), others: Mutex::default() }
    }

    /// Returns the plan with a digest, which an instance has stored as `json`.
    fn plan(&self, digest: &str, json: &[u8]) -> Arc<CompiledPlan> {
        if let Some(plan) = self.plans.iter().find(|plan| plan.digest == digest) {
            return Arc::clone(plan);
        }
        let mut others = lock(&self.others);
        let read = || Arc::new(CompiledPlan::read(digest, json).expect("the functions store plans"));
        Arc::clone(others.entry(digest.to_owned()).or_insert_with(read))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ModelInvocation {
    /// Dispatches the first units, like the invocation that receives the creation.
    Begin,
    Deliver(u64),
    Delete,
    /// Updates the target to the document with this number.
    Update(usize),
    Sweep(DueItem),
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvocationEnd {
    Answered,
    /// The caller must repeat the request.
    Again,
}

pub(super) struct ModelSimulation {
    /// True if the first sweep of a run is after the timeout of its units.
    starts_late: bool,
    pub(super) runtime: SimRuntime,
    pub(super) table: Arc<SimTable>,
    pub(super) gates: StepGates,
    pub(super) environment: ModelEnvironment,
    documents: Arc<ModelDocuments>,
    pub(super) running: Mutex<BTreeMap<SimTaskId, ModelInvocation>>,
    pub(super) ended: Arc<Mutex<Vec<(SimTaskId, InvocationEnd)>>>,
    /// Runs that were due when their sweep started, with their due time and version at that time.
    pub(super) looked: Mutex<BTreeMap<SimTaskId, SeenRun>>,
}

type SeenRun = (RunId, (Timestamp, u64));

struct FixedRandom;

impl ebb_flow::ports::RandomSource for FixedRandom {
    fn next(&self) -> u64 {
        u64::MAX / 2
    }
}

impl ModelSimulation {
    /// Returns a simulation in which the target was just created and its first units are not dispatched.
    pub(super) fn new(documents: &Arc<ModelDocuments>, graph: &ModelGraph, budget: &FaultBudget) -> Self {
        let loaded = &documents.plans[0];
        let runtime = SimRuntime::default();
        let table = Arc::new(SimTable::new(runtime.clone()));
        let loses = budget.deaths + budget.drops > 0;
        let faults = budget.deaths + budget.losses + budget.kills + budget.drops + budget.duplicates + budget.failures;
        let undisturbed = budget.ticks > 0 && faults + budget.deletions == 0;
        let late = budget.sweeps == 0 && (budget.ticks > 1 || undisturbed);
        let environment = ModelEnvironment::new(runtime.clone(), loses, graph.clone());
        let place = Self {
            starts_late: late,
            runtime,
            table,
            gates: environment.gates.clone(),
            environment,
            documents: Arc::clone(documents),
            running: Mutex::default(),
            ended: Arc::default(),
            looked: Mutex::default(),
        };
        let env = place.env();
        let fresh = TargetHead {
            generation: 1,
            plan: loaded.digest.clone(),
            ..TargetHead::new(KIND, NAME, UID, place.runtime.now())
        };
        let (step, plan) = (target::begin(&loaded.hooks()), Arc::clone(loaded));
        let moved =
            place.runtime.run(async move { transition::transition(&env, &fresh, step, &plan, (None, None)).await });
        let mut transition = moved.and_then(Result::ok).expect("the list of subscriptions is readable");
        let env = place.env();
        transition.expected_version = None;
        let (begun, key, json) = (transition.clone(), transition.target.instance_key(), loaded.plan.to_json());
        let now = place.runtime.now();
        let begin =
            |table: Arc<Store>| async move { table.begin_instance(&transition, &key, json.as_bytes(), now).await };
        assert!(place.table.edit(begin), "an empty table takes a target");
        place.table.set_gate(Arc::new(place.gates.clone()));
        let loaded = Arc::clone(loaded);
        place.spawn(ModelInvocation::Begin, async move {
            drive(&env, transition::after_transition(&env, begun, &loaded).await?).await?;
            Ok(InvocationEnd::Answered)
        });
        place
    }

    fn env(&self) -> Env {
        let second = Duration::from_secs(1);
        // If time passes twice or is the only fault, the first sweep is after the timeout of a unit, which then has its
        // own wake-up.
        let first_look = Millis(if self.starts_late { 1_000 * TIMEOUT_S + 1_000 } else { 60_000 });
        let usual = settings(MAX_IN_FLIGHT_MS);
        let sends = self.environment.graph.max_dispatches.unwrap_or(usual.max_dispatches);
        let settings = DeploymentSettings {
            grace: second,
            response_timeout: second,
            dispatch_budget: second,
            first_sweep_delay: first_look,
            max_dispatches: sends,
            ..usual
        };
        let env = Env {
            store: self.table.store(),
            clock: Arc::new(SimClock(self.runtime.clone(), 0)),
            random: Arc::new(FixedRandom),
            relay: Arc::new(self.environment.clone()),
            egress: Arc::new(self.environment.clone()),
            platform: Arc::new(self.environment.clone()),
            queue: Arc::new(self.environment.clone()),
            settings,
            cache: InstanceCache::default(),
        };
        self.documents.plans.iter().for_each(|plan| env.remember_plan(plan));
        env
    }

    fn spawn(
        &self,
        invocation: ModelInvocation,
        body: impl Future<Output = FlowResult<InvocationEnd>> + Send + 'static,
    ) -> SimTaskId {
        let (ended, outer, runtime) = (Arc::clone(&self.ended), self.environment.clone(), self.runtime.clone());
        let task = self.runtime.spawn(async move {
            let answer = body.await.unwrap_or_else(|error| {
                if !error.is_retryable() {
                    outer.state().violations.push(format!("broken: {error}"));
                }
                InvocationEnd::Again
            });
            lock(&ended).push((runtime.current(), answer));
        });
        lock(&self.running).insert(task.id, invocation);
        task.id
    }

    pub(super) fn invoke(&self, invocation: ModelInvocation) {
        let (env, outer, table) = (self.env(), self.environment.clone(), Arc::clone(&self.table));
        let (documents, is_at_rest) = (Arc::clone(&self.documents), self.is_quiet() && !self.is_open());
        outer.state().stop_begun |= invocation == ModelInvocation::Delete;
        let mail = match invocation {
            ModelInvocation::Deliver(number) => outer.state().deliveries.get(&number).cloned(),
            _ => None,
        };
        let looks_at = match (&invocation, &mail) {
            (ModelInvocation::Sweep(DueItem::Run(run)), _) => Some(run),
            (
                _,
                Some(PendingDelivery::Message { message: QueueMessage::Run(run) | QueueMessage::Recover(run), .. }),
            ) => Some(run),
            _ => None,
        };
        let before = looks_at.and_then(|run| Some((run.clone(), self.overdue(run)?)));
        let task = self.spawn(invocation.clone(), async move {
            match invocation {
                ModelInvocation::Begin => unreachable!("that is how a simulation begins"),
                ModelInvocation::Deliver(_) => match mail.expect("only mail that is there is delivered") {
                    PendingDelivery::Callback { token, body, of, succeeded: well } => {
                        let wrong = match invocations::complete(&env, &token, &body).await? {
                            CallbackOutcome::Late(_) if well && awaits(&table, &env, &token) => {
                                Some(format!("{of} succeeded, and its run does not take what it waits for"))
                            }
                            CallbackOutcome::Accepted | CallbackOutcome::Late(_) => None,
                            // A failure is ignored after the expiry of its token.
                            CallbackOutcome::Expired(_) if !well => None,
                            other => Some(format!("a callback is answered {other:?}")),
                        };
                        outer.state().violations.extend(wrong);
                    }
                    PendingDelivery::Message { message, .. } => sweep::receive_message(&env, &message).await?,
                },
                ModelInvocation::Delete => {
                    lifecycle::delete(&env, TargetKey::new(KIND, NAME).instance(UID), TargetStopCause::Deleted).await?
                }
                ModelInvocation::Update(number) => {
                    let (generation, document) = (1 + number as u64, Some(documents.documents[number].clone()));
                    let event = LifecycleData { generation, document, ..sandbox(NAME, UID, "") };
                    let id = (LifecycleType::Updated, "update");
                    match invocations::receive(&env, documents.plugins.store().as_ref(), id, &event).await {
                        Ok(_) | Err(RequestError::Rejected(Rejection::Refused(ErrorCode::Stale, _))) => {}
                        Err(RequestError::Rejected(Rejection::Refused(ErrorCode::Busy, _))) if !is_at_rest => {
                            return Ok(InvocationEnd::Again);
                        }
                        Err(RequestError::Rejected(rejection)) => {
                            outer.state().violations.push(format!("update {number} is rejected: {rejection:?}"));
                        }
                        Err(RequestError::Failed(error)) => return Err(error),
                    }
                }
                ModelInvocation::Sweep(DueItem::Run(run)) => {
                    sweep::receive_message(&env, &QueueMessage::Run(run)).await?;
                }
                ModelInvocation::Sweep(DueItem::Target(..) | DueItem::Desired(_) | DueItem::Source(_)) => {
                    sweep::receive_message(&env, &QueueMessage::Target(KIND.to_owned(), NAME.to_owned())).await?;
                }
                ModelInvocation::Retry => {
                    ebb_flow::advance::retry::retry(&env, (TargetKey::new(KIND, NAME), None), None).await.map(drop)?
                }
            }
            Ok(InvocationEnd::Answered)
        });
        if let Some(before) = before {
            lock(&self.looked).insert(task, before);
        }
    }

    /// Returns the due time and version of a running run that is due.
    pub(super) fn overdue(&self, run: &RunId) -> Option<(Timestamp, u64)> {
        let state = self.table.state();
        let head = &state.heads.get(run)?.head;
        let due = head.due.filter(|&due| due <= self.runtime.now() && head.phase == RunPhase::Running)?;
        Some((due, head.version))
    }

    pub(super) fn target(&self) -> Option<(TargetHead, Arc<CompiledPlan>)> {
        let state = self.table.state();
        let target = state.targets.values().next()?.clone();
        let json = state.plans.get(&target.instance_key()).map(Vec::as_slice).unwrap_or_default();
        let plan = self.documents.plan(&target.plan, json);
        Some((target, plan))
    }

    pub(super) fn updates(&self) -> usize {
        self.documents.documents.len() - 1
    }

    pub(super) fn due(&self) -> Vec<(Timestamp, DueItem)> {
        self.table.state().due().collect()
    }
}

/// Returns true if the attempt of a callback token is open in a running run.
fn awaits(table: &SimTable, env: &Env, token: &str) -> bool {
    let Ok(claims) = TokenClaims::verify(token, &env.settings.token_keys, Timestamp(0)) else { return false };
    let state = table.state();
    state.heads.get(&claims.run).is_some_and(|run| {
        run.head.phase == RunPhase::Running && run.head.status(claims.unit) == UnitProgress::Open(claims.attempt)
    })
}

impl Drop for ModelSimulation {
    fn drop(&mut self) {
        self.runtime.clear();
    }
}
