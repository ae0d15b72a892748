//! One world: the real functions over a table that the explorer opens operation by operation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebb_engine::{Millis, RunPhase, Shard, Timestamp, target};
use ebb_flow::complete::Taken;
use ebb_flow::drive::drive;
use ebb_flow::env::Loaded;
use ebb_flow::ports::Message;
use ebb_flow::sweep::{self, When};
use ebb_flow::{
    Env, FlowError, Settings, Warm, complete,
    finish::{self, Teller},
    receive,
};
use ebb_spec::compile::{self, Bound};
use ebb_spec::load::{self, Document, NoFiles, Vars};
use ebb_store::{Due, MoveTarget as _, RunHead, TargetHead};
use ebb_wire::id::RunId;
use ebb_wire::lifecycle::TargetStopCause;

use super::choice::Budget;
use super::gates::Gates;
use super::outer::{Mail, Outer, Platform};
use crate::sim::{Clock, Runtime, Table, TaskId, settings};

/// `L`: after this long a request does not arrive any more.
pub(super) const LANDING_MS: u64 = 3_000;
/// A unit may take this long.
const TIMEOUT_S: u64 = 300;

pub(super) const KIND: &str = "sandbox";
pub(super) const NAME: &str = "s";
pub(super) const UID: &str = "uid-1";

/// How a unit of a graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runs {
    /// As a script at a relay.
    Pod,
    /// As a webhook that answers with its result.
    AtOnce,
    /// As a webhook that answers with its result and is not idempotent.
    Once,
    /// As a webhook that answers 202 and calls back.
    Later,
}

impl Runs {
    /// For people.
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
pub struct Graph {
    /// How each unit runs, and which lower ones it reads.
    pub units: Vec<(Runs, Vec<usize>)>,
    pub per_item: u32,
    pub tries: u32,
    /// Whether the units say what they made.
    pub says: Says,
    /// How many scripts run at one time; `None`: all.
    pub places: Option<usize>,
    /// How many units one invocation sends; `None`: as many as in a deployment.
    pub sends: Option<usize>,
    /// The status by which a gateway answers a request of which the server's answer is lost.
    pub gateway: Option<u16>,
    /// The unit whose cluster gives no answer until the target is deleted.
    pub silent: Option<usize>,
}

/// Whether units have outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Says {
    /// Each has one: what it made.
    Id,
    Nothing,
}

fn plugin(graph: &Graph) -> String {
    let mut text = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: model@1.0.0\nrunners:\n  shell: {{image: \"busybox:1.37\"}}\n\
         defaults: {{timeout: {TIMEOUT_S}s, retry: {{attempts: {}, backoff: 10s, maxBackoff: 10s}}}}\npreStart:\n",
        graph.tries
    );
    for (unit, (runs, reads)) in graph.units.iter().enumerate() {
        let list = |between: &str| {
            let all = reads.iter().map(|read| format!("u{read}: \"${{units.u{read}.outputs.id}}\""));
            all.collect::<Vec<_>>().join(between)
        };
        writeln!(text, "  u{unit}:").expect("strings take everything");
        match runs {
            Runs::Pod => {
                text.push_str("    pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}\n");
                if !reads.is_empty() {
                    writeln!(text, "    inputs: {{{}}}", list(", ")).expect("strings take everything");
                }
                if graph.says == Says::Id {
                    text.push_str("    outputs: {id: {file: /out/id}}\n");
                }
            }
            Runs::AtOnce | Runs::Once | Runs::Later => {
                let (suffix, more) = match runs {
                    Runs::Later => ("-later", ""),
                    Runs::Once => ("-once", ", idempotent: false"),
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
            Runs::Pod if graph.says == Says::Nothing => {
                "    pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}\n".to_owned()
            }
            Runs::Pod => {
                format!("    pod: {{runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n    inputs: {{{id}}}\n")
            }
            Runs::AtOnce | Runs::Once => {
                format!("    webhook: {{url: \"https://outside.test/x{unit}\", body: {{{id}}}}}\n")
            }
            Runs::Later => {
                format!("    webhook: {{url: \"https://outside.test/x{unit}-later\", body: {{{id}}}}}\n")
            }
        };
        text.push_str(&work);
    }
    text
}

/// The plan of a graph.
#[allow(clippy::panic)]
pub(super) fn plan(graph: &Graph) -> Arc<Loaded> {
    let document = |name: &str, text: &str| load::document(name, text, &NoFiles, &Vars::none());
    let text = plugin(graph);
    let Ok(Document::Plugin(plugin)) = document("plugin", &text) else {
        panic!("{text}\n{:?}", document("plugin", &text).err())
    };
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  r: {plugin: model@1.0.0}\n";
    let Ok(Document::Sandbox(sandbox)) = document("sandbox", sandbox) else { panic!("no sandbox") };
    let version = semver::Version::new(1, 0, 0);
    let bound =
        BTreeMap::from([("r".to_owned(), Bound { plugin: &plugin, version: &version, digest: "sha256:00" })]);
    let (plan, _) = compile::plan(&sandbox, &bound).unwrap_or_else(|errors| panic!("{errors:?}"));
    let digest = plan.digest();
    Arc::new(Loaded::of(plan, &digest).expect("the plan was just compiled"))
}

/// What is invoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Invocation {
    /// Sends the roots, as whoever took the creation does.
    Begin,
    Mail(u64),
    Delete,
    Sweep(RunId),
    SweepTarget,
    /// An operator has it tried again.
    Retry,
}

/// How an invocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Answered,
    /// With the answer that it should be asked again.
    Again,
}

/// A world.
pub(super) struct Place {
    /// True if the first look at a run is later than the deadline of its units.
    late: bool,
    pub(super) runtime: Runtime,
    pub(super) table: Arc<Table>,
    pub(super) gates: Gates,
    pub(super) outer: Outer,
    sends: Option<usize>,
    pub(super) loaded: Arc<Loaded>,
    pub(super) running: Mutex<BTreeMap<TaskId, Invocation>>,
    pub(super) ended: Arc<Mutex<Vec<(TaskId, Ended)>>>,
    /// Runs that were due when looks at them began, and how they were.
    pub(super) looked: Mutex<BTreeMap<TaskId, (RunId, Overdue)>>,
}

/// When a run that was due was due, and its version.
pub(super) type Overdue = (Timestamp, u64);

struct Same;

impl ebb_flow::ports::Random for Same {
    fn next(&self) -> u64 {
        u64::MAX / 2
    }
}

impl Place {
    /// A world in which the target was created just now, and its roots are about to be sent.
    pub(super) fn new(loaded: &Arc<Loaded>, graph: &Graph, budget: &Budget) -> Self {
        let runtime = Runtime::default();
        let table = Arc::new(Table::new(runtime.clone()));
        let gates = Gates::new(runtime.clone());
        let loses = budget.deaths + budget.drops > 0;
        let faults =
            budget.deaths + budget.losses + budget.kills + budget.drops + budget.doubles + budget.failures;
        let undisturbed = budget.ticks > 0 && faults + budget.deletions == 0;
        let late = budget.sweeps == 0 && (budget.ticks > 1 || undisturbed);
        let outer = Outer::new(runtime.clone(), gates.clone(), LANDING_MS, loses, graph.clone());
        let place = Self {
            late,
            runtime,
            table,
            gates,
            outer,
            sends: graph.sends,
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
        let (mut transition, begun) =
            finish::transition(&env, &fresh, target::begin(loaded.moments()), loaded, None);
        transition.seen = None;
        let table = Arc::clone(&place.table);
        let target = transition.target.clone();
        let made = place.runtime.run(async move { table.move_target(&transition).await });
        assert!(matches!(made, Some(Ok(true))), "an empty table takes a target");
        place.table.guard(Arc::new(place.gates.clone()));
        let loaded = Arc::clone(loaded);
        place.spawn(Invocation::Begin, async move {
            if let Some(work) = finish::begin(&env, &target, begun, &loaded, Teller::Queue).await? {
                drive(&env, work).await?;
            }
            Ok(Ended::Answered)
        });
        place
    }

    fn env(&self) -> Env {
        let second = Duration::from_secs(1);
        // Where time passes twice, or nothing but time interferes, the first look is later than the deadline of a unit, which
        // has a hint then.
        let first_look = Millis(if self.late { 1_000 * TIMEOUT_S + 1_000 } else { 60_000 });
        let usual = settings(LANDING_MS);
        let sends = self.sends.unwrap_or(usual.sends);
        let settings = Settings { grace: second, answer: second, budget: second, first_look, sends, ..usual };
        let env = Env {
            store: self.table.clone(),
            clock: Arc::new(Clock(self.runtime.clone())),
            random: Arc::new(Same),
            relay: Arc::new(self.outer.clone()),
            outside: Arc::new(self.outer.clone()),
            platform: Arc::new(Platform(self.outer.clone())),
            queue: Arc::new(self.outer.clone()),
            settings,
            warm: Warm::default(),
        };
        env.remember_plan(&self.loaded);
        env
    }

    fn spawn(
        &self,
        invocation: Invocation,
        body: impl Future<Output = Result<Ended, FlowError>> + Send + 'static,
    ) {
        let (ended, outer, runtime) = (Arc::clone(&self.ended), self.outer.clone(), self.runtime.clone());
        let task = self.runtime.spawn(async move {
            let answer = match body.await {
                Ok(answer) => answer,
                Err(error) => {
                    if !error.is_retryable() {
                        outer.state().wrong.push(format!("broken: {error}"));
                    }
                    Ended::Again
                }
            };
            ended.lock().expect("no panic while it is held").push((runtime.current(), answer));
        });
        self.running.lock().expect("no panic while it is held").insert(task.id, invocation);
    }

    /// Begins an invocation.
    pub(super) fn invoke(&self, invocation: Invocation) {
        let run = self.looks_at(&invocation);
        let before = run.and_then(|run| self.overdue(&run).map(|overdue| (run, overdue)));
        self.begin(invocation);
        if let Some(before) = before {
            let task = self.runtime.newest();
            self.looked.lock().expect("no panic while it is held").insert(task, before);
        }
    }

    /// The run that an invocation looks at.
    fn looks_at(&self, invocation: &Invocation) -> Option<RunId> {
        match invocation {
            Invocation::Sweep(run) => Some(run.clone()),
            Invocation::Mail(number) => match self.outer.state().mail.get(number) {
                Some(Mail::Message { message: Message::Run(run) | Message::Recover(run), .. }) => {
                    Some(run.clone())
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn begin(&self, invocation: Invocation) {
        let env = self.env();
        self.outer.state().stop_begun |= invocation == Invocation::Delete;
        match invocation.clone() {
            Invocation::Begin => unreachable!("that is how a world begins"),
            Invocation::Mail(number) => {
                let mail = self.outer.state().mail.get(&number).cloned();
                let outer = self.outer.clone();
                match mail.expect("only mail that is there is delivered") {
                    Mail::Callback { token, body, of, well } => {
                        let table = Arc::clone(&self.table);
                        self.spawn(invocation, async move {
                            let taken = complete::complete(&env, &token, &body).await?;
                            let wrong = match taken {
                                Taken::Late(_) if well && awaits(&table, &env, &token) => Some(format!(
                                    "{of} succeeded, and its run does not take what it waits for"
                                )),
                                Taken::Accepted | Taken::Late(_) => None,
                                // A failure after the last moment at which it matters.
                                Taken::Expired(_) if !well => None,
                                other => Some(format!("a callback is answered {other:?}")),
                            };
                            outer.state().wrong.extend(wrong);
                            Ok(Ended::Answered)
                        });
                    }
                    Mail::Message { message, .. } => self.spawn(invocation, async move {
                        sweep::receive_message(&env, &message).await.map(|()| Ended::Answered)
                    }),
                }
            }
            Invocation::Delete => self.spawn(invocation, async move {
                receive::delete(&env, KIND, NAME, UID, TargetStopCause::Deleted)
                    .await
                    .map(|()| Ended::Answered)
            }),
            Invocation::Sweep(run) => self.spawn(invocation, async move {
                sweep::sweep_run(&env, &run, When::Due).await.map(|()| Ended::Answered)
            }),
            Invocation::Retry => self.spawn(invocation, async move {
                ebb_flow::api::retry::retry(&env, KIND, NAME).await.map(|_| Ended::Answered)
            }),
            Invocation::SweepTarget => self.spawn(invocation, async move {
                sweep::sweep_target(&env, KIND, NAME).await.map(|()| Ended::Answered)
            }),
        }
    }

    /// Since when a run is due that goes on, and its version.
    pub(super) fn overdue(&self, run: &RunId) -> Option<Overdue> {
        let state = self.table.state();
        let root = &state.heads.get(run)?.get(&Shard::ROOT)?.head;
        let due = root.due.filter(|&due| due <= self.runtime.now() && root.phase == RunPhase::Running)?;
        Some((due, root.version))
    }

    /// What is due, and when what is not due yet will be.
    pub(super) fn due(&self) -> Vec<(Timestamp, Due)> {
        let state = self.table.state();
        let roots = state.heads.iter().filter_map(|(run, heads)| {
            let due = heads.get(&ebb_engine::Shard::ROOT)?.head.due?;
            Some((due, Due::Run(run.clone())))
        });
        let targets = state
            .targets
            .values()
            .filter_map(|target| Some((target.due?, Due::Target(target.kind.clone(), target.name.clone()))));
        roots.chain(targets).collect()
    }
}

/// Whether the unit of a callback's token is open in a run that goes on.
fn awaits(table: &Table, env: &Env, token: &str) -> bool {
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

impl Drop for Place {
    fn drop(&mut self) {
        self.runtime.clear();
    }
}
