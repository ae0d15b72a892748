//! A simulation of the model: the real functions on a table whose operations wait for the explorer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebb_documents::compile::{self, BoundPlugin};
use ebb_documents::load::{self, Document, DocumentVars, NoFiles};
use ebb_engine::{Millis, RunPhase, Shard, Timestamp, target};
use ebb_flow::env::CompiledPlan;
use ebb_flow::instance::lifecycle;
use ebb_flow::instance::transition::{self, NotificationSender};
use ebb_flow::ports::QueueMessage;
use ebb_flow::run::callback::{self, CallbackOutcome};
use ebb_flow::run::dispatch_all::drive;
use ebb_flow::sweep::{self, SweepCondition};
use ebb_flow::{DeploymentSettings, Env, FlowError, InstanceCache};
use ebb_protocol::id::RunId;
use ebb_protocol::lifecycle::TargetStopCause;
use ebb_store::{DueItem, MoveTarget as _, RunHead, TargetHead};

use super::choice::FaultBudget;
use super::environment::{ModelEnvironment, ModelPlatform, PendingDelivery};
use super::gates::StepGates;
use crate::simulation::{SimClock, SimRuntime, SimTable, SimTaskId, settings};

/// The in-flight limit.
pub(super) const MAX_IN_FLIGHT_MS: u64 = 3_000;
/// The timeout of a unit.
const TIMEOUT_S: u64 = 300;

pub(super) const KIND: &str = "sandbox";
pub(super) const NAME: &str = "s";
pub(super) const UID: &str = "uid-1";

/// How a unit of a graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelAction {
    /// A script of a relay.
    Pod,
    /// A webhook that responds with its result.
    AtOnce,
    /// A webhook that responds with its result and is not idempotent.
    Once,
    /// A webhook that responds with 202 and calls back.
    Later,
}

impl ModelAction {
    /// Returns the name in descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::AtOnce => "webhooks that answer at once",
            Self::Once => "webhooks that are not idempotent",
            Self::Later => "webhooks that call back",
        }
    }
}

/// A graph of setup units, each with an undo of its kind.
#[derive(Clone, Debug)]
pub struct ModelGraph {
    /// The action of each unit, and the lower units that it reads.
    pub units: Vec<(ModelAction, Vec<usize>)>,
    pub per_item: u32,
    pub attempts: u32,
    /// The outputs of the units.
    pub outputs: OutputMode,
    /// Maximum number of concurrent scripts.
    pub slots: Option<usize>,
    /// Maximum number of dispatches of an invocation. `None` for the default of a deployment.
    pub max_dispatches: Option<usize>,
    /// The status of the gateway if the response of the server is lost.
    pub gateway: Option<u16>,
    /// The unit whose cluster is unreachable until the target is deleted.
    pub unreachable: Option<usize>,
}

/// Whether units have outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputMode {
    /// Each unit has one output, its object.
    Id,
    Nothing,
}

fn plugin(graph: &ModelGraph) -> String {
    let mut text = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: model@1.0.0\nrunners:\n  shell: {{image: \"busybox:1.37\"}}\n\
         defaults: {{timeout: {TIMEOUT_S}s, retry: {{attempts: {}, backoff: 10s, maxBackoff: 10s}}}}\npreStart:\n",
        graph.attempts
    );
    for (unit, (runs, reads)) in graph.units.iter().enumerate() {
        let list = |between: &str| {
            let all = reads.iter().map(|read| format!("u{read}: \"${{units.u{read}.outputs.id}}\""));
            all.collect::<Vec<_>>().join(between)
        };
        writeln!(text, "  u{unit}:").expect("strings take everything");
        match runs {
            ModelAction::Pod => {
                text.push_str("    pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}\n");
                if !reads.is_empty() {
                    writeln!(text, "    inputs: {{{}}}", list(", ")).expect("strings take everything");
                }
                if graph.outputs == OutputMode::Id {
                    text.push_str("    outputs: {id: {file: /out/id}}\n");
                }
            }
            ModelAction::AtOnce | ModelAction::Once | ModelAction::Later => {
                let (suffix, more) = match runs {
                    ModelAction::Later => ("-later", ""),
                    ModelAction::Once => ("-once", ", idempotent: false"),
                    _ => ("", ""),
                };
                writeln!(
                    text,
                    "    webhook: {{url: \"https://outside.test/u{unit}{suffix}\", body: {{{}}}{more}}}\n    \
                     outputs: {{id: {{value: \"${{response.body.id}}\"}}}}",
                    list(", ")
                )
                .expect("strings take everything");
            }
        }
    }
    text.push_str("postStop:\n");
    for (unit, (runs, _)) in graph.units.iter().enumerate() {
        let id = format!("u{unit}: \"${{units.u{unit}.outputs.?id}}\"");
        write!(text, "  x{unit}:\n    undoes: u{unit}\n").expect("strings take everything");
        let work = match runs {
            ModelAction::Pod if graph.outputs == OutputMode::Nothing => {
                "    pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}\n".to_owned()
            }
            ModelAction::Pod => {
                format!("    pod: {{runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n    inputs: {{{id}}}\n")
            }
            ModelAction::AtOnce | ModelAction::Once => {
                format!("    webhook: {{url: \"https://outside.test/x{unit}\", body: {{{id}}}}}\n")
            }
            ModelAction::Later => {
                format!("    webhook: {{url: \"https://outside.test/x{unit}-later\", body: {{{id}}}}}\n")
            }
        };
        text.push_str(&work);
    }
    text
}

/// Compiles the plan of a graph.
#[allow(clippy::panic)]
pub(super) fn plan(graph: &ModelGraph) -> Arc<CompiledPlan> {
    let document = |name: &str, text: &str| load::document(name, text, &NoFiles, &DocumentVars::none());
    let text = plugin(graph);
    let Ok(Document::Plugin(plugin)) = document("plugin", &text) else {
        panic!("{text}\n{:?}", document("plugin", &text).err())
    };
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  r: {plugin: model@1.0.0}\n";
    let Ok(Document::Sandbox(sandbox)) = document("sandbox", sandbox) else { panic!("no sandbox") };
    let version = semver::Version::new(1, 0, 0);
    let bound =
        BTreeMap::from([("r".to_owned(), BoundPlugin { plugin: &plugin, version: &version, digest: "sha256:00" })]);
    let (plan, _) = compile::plan(&sandbox, &bound).unwrap_or_else(|errors| panic!("{errors:?}"));
    let digest = plan.digest();
    Arc::new(CompiledPlan::of(plan, &digest).expect("the plan was just compiled"))
}

/// A kind of invocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ModelInvocation {
    /// Dispatches the first units, like the invocation that receives the creation.
    Begin,
    Deliver(u64),
    Delete,
    Sweep(RunId),
    SweepTarget,
    /// Retries the target for an operator.
    Retry,
}

/// The end of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvocationEnd {
    Answered,
    /// The caller must repeat the request.
    Again,
}

/// A simulation of the model.
pub(super) struct ModelSimulation {
    /// True if the first sweep of a run is after the timeout of its units.
    starts_late: bool,
    pub(super) runtime: SimRuntime,
    pub(super) table: Arc<SimTable>,
    pub(super) gates: StepGates,
    pub(super) environment: ModelEnvironment,
    max_dispatches: Option<usize>,
    pub(super) loaded: Arc<CompiledPlan>,
    pub(super) running: Mutex<BTreeMap<SimTaskId, ModelInvocation>>,
    pub(super) ended: Arc<Mutex<Vec<(SimTaskId, InvocationEnd)>>>,
    /// Runs that were due when their sweep started, with their state at that time.
    pub(super) looked: Mutex<BTreeMap<SimTaskId, (RunId, DueVersion)>>,
}

/// The due time and the version of a due run.
pub(super) type DueVersion = (Timestamp, u64);

struct FixedRandom;

impl ebb_flow::ports::RandomSource for FixedRandom {
    fn next(&self) -> u64 {
        u64::MAX / 2
    }
}

impl ModelSimulation {
    /// Returns a simulation in which the target was just created and its first units are not dispatched.
    pub(super) fn new(loaded: &Arc<CompiledPlan>, graph: &ModelGraph, budget: &FaultBudget) -> Self {
        let runtime = SimRuntime::default();
        let table = Arc::new(SimTable::new(runtime.clone()));
        let gates = StepGates::new(runtime.clone());
        let loses = budget.deaths + budget.drops > 0;
        let faults = budget.deaths + budget.losses + budget.kills + budget.drops + budget.duplicates + budget.failures;
        let undisturbed = budget.ticks > 0 && faults + budget.deletions == 0;
        let late = budget.sweeps == 0 && (budget.ticks > 1 || undisturbed);
        let outer = ModelEnvironment::new(runtime.clone(), gates.clone(), MAX_IN_FLIGHT_MS, loses, graph.clone());
        let place = Self {
            starts_late: late,
            runtime,
            table,
            gates,
            environment: outer,
            max_dispatches: graph.max_dispatches,
            loaded: Arc::clone(loaded),
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
        let step = target::begin(loaded.hooks());
        let begun = (fresh, Arc::clone(loaded));
        let moved =
            place.runtime.run(async move { transition::transition(&env, &begun.0, step, &begun.1, None).await });
        let mut transition = moved.and_then(Result::ok).expect("the list of subscriptions is readable");
        let env = place.env();
        transition.expected_version = None;
        let table = Arc::clone(&place.table);
        let begun = transition.clone();
        let made = place.runtime.run(async move { table.move_target(&transition).await });
        assert!(matches!(made, Some(Ok(true))), "an empty table takes a target");
        place.table.set_gate(Arc::new(place.gates.clone()));
        let loaded = Arc::clone(loaded);
        place.spawn(ModelInvocation::Begin, async move {
            if let Some(work) = transition::after_transition(&env, begun, &loaded, NotificationSender::Queue).await? {
                drive(&env, work).await?;
            }
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
        let sends = self.max_dispatches.unwrap_or(usual.max_dispatches);
        let settings = DeploymentSettings {
            grace: second,
            response_timeout: second,
            dispatch_budget: second,
            first_sweep_delay: first_look,
            max_dispatches: sends,
            ..usual
        };
        let env = Env {
            store: self.table.clone(),
            clock: Arc::new(SimClock(self.runtime.clone())),
            random: Arc::new(FixedRandom),
            relay: Arc::new(self.environment.clone()),
            egress: Arc::new(self.environment.clone()),
            platform: Arc::new(ModelPlatform(self.environment.clone())),
            queue: Arc::new(self.environment.clone()),
            settings,
            cache: InstanceCache::default(),
        };
        env.remember_plan(&self.loaded);
        env
    }

    fn spawn(
        &self,
        invocation: ModelInvocation,
        body: impl Future<Output = Result<InvocationEnd, FlowError>> + Send + 'static,
    ) {
        let (ended, outer, runtime) = (Arc::clone(&self.ended), self.environment.clone(), self.runtime.clone());
        let task = self.runtime.spawn(async move {
            let answer = match body.await {
                Ok(answer) => answer,
                Err(error) => {
                    if !error.is_retryable() {
                        outer.state().violations.push(format!("broken: {error}"));
                    }
                    InvocationEnd::Again
                }
            };
            ended.lock().expect("no panic while it is held").push((runtime.current(), answer));
        });
        self.running.lock().expect("no panic while it is held").insert(task.id, invocation);
    }

    /// Starts an invocation.
    pub(super) fn invoke(&self, invocation: ModelInvocation) {
        let run = self.looks_at(&invocation);
        let before = run.and_then(|run| self.overdue(&run).map(|overdue| (run, overdue)));
        self.begin(invocation);
        if let Some(before) = before {
            let task = self.runtime.newest();
            self.looked.lock().expect("no panic while it is held").insert(task, before);
        }
    }

    /// Returns the run that an invocation sweeps.
    fn looks_at(&self, invocation: &ModelInvocation) -> Option<RunId> {
        match invocation {
            ModelInvocation::Sweep(run) => Some(run.clone()),
            ModelInvocation::Deliver(number) => match self.environment.state().deliveries.get(number) {
                Some(PendingDelivery::Message {
                    message: QueueMessage::Run(run) | QueueMessage::Recover(run), ..
                }) => Some(run.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    fn begin(&self, invocation: ModelInvocation) {
        let env = self.env();
        self.environment.state().stop_begun |= invocation == ModelInvocation::Delete;
        match invocation.clone() {
            ModelInvocation::Begin => unreachable!("that is how a simulation begins"),
            ModelInvocation::Deliver(number) => {
                let mail = self.environment.state().deliveries.get(&number).cloned();
                let outer = self.environment.clone();
                match mail.expect("only mail that is there is delivered") {
                    PendingDelivery::Callback { token, body, of, succeeded: well } => {
                        let table = Arc::clone(&self.table);
                        self.spawn(invocation, async move {
                            let taken = callback::complete(&env, &token, &body).await?;
                            let wrong = match taken {
                                CallbackOutcome::Late(_) if well && awaits(&table, &env, &token) => {
                                    Some(format!("{of} succeeded, and its run does not take what it waits for"))
                                }
                                CallbackOutcome::Accepted | CallbackOutcome::Late(_) => None,
                                // A failure is ignored after the expiry of its token.
                                CallbackOutcome::Expired(_) if !well => None,
                                other => Some(format!("a callback is answered {other:?}")),
                            };
                            outer.state().violations.extend(wrong);
                            Ok(InvocationEnd::Answered)
                        });
                    }
                    PendingDelivery::Message { message, .. } => self.spawn(invocation, async move {
                        sweep::receive_message(&env, &message).await.map(|()| InvocationEnd::Answered)
                    }),
                }
            }
            ModelInvocation::Delete => self.spawn(invocation, async move {
                lifecycle::delete(&env, KIND, NAME, UID, TargetStopCause::Deleted)
                    .await
                    .map(|()| InvocationEnd::Answered)
            }),
            ModelInvocation::Sweep(run) => self.spawn(invocation, async move {
                sweep::sweep_run(&env, &run, SweepCondition::Due).await.map(|()| InvocationEnd::Answered)
            }),
            ModelInvocation::Retry => self.spawn(invocation, async move {
                ebb_flow::operator::retry::retry(&env, KIND, NAME).await.map(|_| InvocationEnd::Answered)
            }),
            ModelInvocation::SweepTarget => self.spawn(invocation, async move {
                sweep::sweep_target(&env, KIND, NAME).await.map(|()| InvocationEnd::Answered)
            }),
        }
    }

    /// Returns the due time and version of a running run that is due.
    pub(super) fn overdue(&self, run: &RunId) -> Option<DueVersion> {
        let state = self.table.state();
        let root = &state.heads.get(run)?.get(&Shard::ROOT)?.head;
        let due = root.due.filter(|&due| due <= self.runtime.now() && root.phase == RunPhase::Running)?;
        Some((due, root.version))
    }

    /// Returns all items with a due time.
    pub(super) fn due(&self) -> Vec<(Timestamp, DueItem)> {
        let state = self.table.state();
        let roots = state.heads.iter().filter_map(|(run, heads)| {
            let due = heads.get(&ebb_engine::Shard::ROOT)?.head.due?;
            Some((due, DueItem::Run(run.clone())))
        });
        let targets = state
            .targets
            .values()
            .filter_map(|target| Some((target.due?, DueItem::Target(target.kind.clone(), target.name.clone()))));
        roots.chain(targets).collect()
    }
}

/// Returns true if the attempt of a callback token is open in a running run.
fn awaits(table: &SimTable, env: &Env, token: &str) -> bool {
    let Ok(claims) = env.settings.token_keys.verify(token, Timestamp(0)) else { return false };
    let state = table.state();
    let Some(heads) = state.heads.get(&claims.run) else { return false };
    let (shard, slot) = Shard::of(claims.unit);
    let runs = heads.get(&Shard::ROOT).is_some_and(|root| root.head.phase == RunPhase::Running);
    let open = |head: &RunHead| {
        let over = head.head.done.contains(&slot) || head.head.failed.contains(&slot);
        head.head.attempt(slot) == claims.attempt && !over
    };
    runs && heads.get(&shard).is_some_and(open)
}

impl Drop for ModelSimulation {
    fn drop(&mut self) {
        self.runtime.clear();
    }
}
