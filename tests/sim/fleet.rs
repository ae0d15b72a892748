//! Many targets in clusters that answer, hang or refuse, and whose places for work are limited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_egress::{CallError, HttpCall, HttpRequest, HttpResponse};
use ebb_engine::{Shard, TargetPhase, Timestamp};
use ebb_flow::ports::RelayError;
use ebb_flow::{Env, InstanceCache};
use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::relay::{EnsureTask, TaskId, TaskState};
use ebb_protocol::unit::IDEMPOTENCY_KEY;
use ebb_store::PluginItem;

use super::{
    Ledger, QueueFaults, ScenarioPlatform, ScenarioQueue, SimClock, SimFunctions, SimRandom, SimRuntime, SimTable,
    settings,
};

pub const WELL: &str = "well";
/// The cluster whose relay gives no answer for as long as it is waited for.
pub const HANGS: &str = "hangs";
/// The cluster whose relay refuses connections.
pub const REFUSES: &str = "refuses";

/// The cluster whose relay answers "not now", late.
pub const BUSY: &str = "busy";

const SWEEP_MS: u64 = 60_000;
/// How long an answer of a relay is waited for.
const PATIENCE_MS: u64 = 15_000;
/// How long a relay tries before it answers "not now".
const BUSY_MS: u64 = 13_000;
/// A callback that was not taken is sent again after this long.
const AGAIN_MS: u64 = 1_000;
/// Longest time of an operation of the table.
const LATENCY_MS: u64 = 10;
const MAX_IN_FLIGHT_MS: u64 = 30_000;

/// The documents of the targets, and the behavior of the cluster that answers.
#[derive(Clone, Copy, Debug)]
pub struct FleetScenario {
    pub units: usize,
    /// Webhooks of each target. Their server refuses connections.
    pub webhooks: usize,
    /// How long a script runs, in milliseconds.
    pub millis: u64,
    pub fails: u32,
    /// Scripts that run at a time.
    pub slots: usize,
    /// True if results are called back.
    pub calls_back: bool,
    /// Percent of the messages of the queue that are lost.
    pub lost: u8,
    /// When the cluster that answers begins to refuse connections, in milliseconds.
    pub well_until: u64,
}

enum FleetTaskState {
    Waiting(Box<EnsureTask>),
    Running,
    Ended(Box<Callback>),
    Tombstoned,
}

/// The events in the clusters.
#[derive(Default)]
pub struct FleetTasks {
    states: BTreeMap<TaskId, FleetTaskState>,
    queue: VecDeque<TaskId>,
    running: usize,
    pub starts: BTreeMap<(String, u32), u32>,
    /// Scripts that were killed while they ran.
    pub killed: u32,
    /// How often a work was said to wait for its turn.
    pub waits: u32,
    /// When a cluster that gives no answer, or none that helps, was asked.
    pub unanswered: Vec<u64>,
    /// How often each webhook was called, by its idempotency key.
    pub calls: BTreeMap<String, u32>,
}

/// The relays of all clusters.
#[derive(Clone)]
struct FleetRelays {
    runtime: SimRuntime,
    functions: Arc<SimFunctions>,
    design: FleetScenario,
    tasks: Arc<Mutex<FleetTasks>>,
}

impl FleetRelays {
    fn works(&self) -> MutexGuard<'_, FleetTasks> {
        self.tasks.lock().expect("no panic while it is held")
    }

    async fn arrives(&self, cluster: Option<&str>) -> Result<(), RelayError> {
        let now = self.runtime.elapsed();
        if cluster == Some(WELL) && now < self.design.well_until {
            return Ok(());
        }
        self.works().unanswered.push(now);
        if cluster == Some(BUSY) {
            self.runtime.sleep(BUSY_MS).await;
            return Err(RelayError::Busy("as designed".to_owned()));
        }
        if cluster == Some(HANGS) {
            self.runtime.sleep(PATIENCE_MS).await;
        }
        Err(RelayError::Unreachable("as designed".to_owned()))
    }

    /// Begins what has its turn.
    fn hand_out(&self) {
        loop {
            let request = {
                let mut works = self.works();
                if works.running >= self.design.slots {
                    return;
                }
                let Some(name) = works.queue.pop_front() else { return };
                let stand = works.states.remove(&name);
                let Some(FleetTaskState::Waiting(request)) = stand else {
                    stand.into_iter().for_each(|stand| drop(works.states.insert(name.clone(), stand)));
                    continue;
                };
                works.running += 1;
                *works.starts.entry((name.unit.clone(), name.attempt)).or_default() += 1;
                works.states.insert(name, FleetTaskState::Running);
                request
            };
            self.runtime.spawn(self.clone().work(request));
        }
    }

    async fn work(self, request: Box<EnsureTask>) {
        self.runtime.sleep(self.design.millis).await;
        let well = request.task.attempt > self.design.fails;
        let callback = match well {
            true => Callback::new(CallbackStatus::Succeeded),
            false => Callback::failed(ReasonCode::Failed, "as designed"),
        };
        {
            let mut works = self.works();
            if !matches!(works.states.get(&request.task), Some(FleetTaskState::Running)) {
                return;
            }
            works.states.insert(request.task.clone(), FleetTaskState::Ended(Box::new(callback.clone())));
            works.running -= 1;
        }
        self.hand_out();
        let body = serde_json::to_vec(&callback).expect("callbacks are JSON");
        while self.design.calls_back
            && self.functions.callback(request.callback.token.clone(), body.clone()).await.is_err()
        {
            self.runtime.sleep(AGAIN_MS).await;
        }
    }
}

#[async_trait]
impl ebb_flow::ports::RelayClient for FleetRelays {
    async fn ensure(&self, cluster: Option<&str>, request: EnsureTask) -> Result<TaskState, RelayError> {
        self.arrives(cluster).await?;
        let name = request.task.clone();
        if !self.works().states.contains_key(&name) {
            let mut works = self.works();
            works.states.insert(name.clone(), FleetTaskState::Waiting(Box::new(request)));
            works.queue.push_back(name.clone());
        }
        self.hand_out();
        self.get(cluster, &name).await
    }

    async fn cancel(&self, cluster: Option<&str>, name: &TaskId, _: Duration) -> Result<TaskState, RelayError> {
        self.arrives(cluster).await?;
        {
            let mut works = self.works();
            if let Some(FleetTaskState::Ended(callback)) = works.states.get(name) {
                return Ok(TaskState::Ended(callback.clone()));
            }
            if let Some(FleetTaskState::Running) = works.states.insert(name.clone(), FleetTaskState::Tombstoned) {
                works.killed += 1;
                works.running -= 1;
            }
        }
        self.hand_out();
        Ok(TaskState::Tombstoned)
    }

    async fn get(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.arrives(cluster).await?;
        let mut works = self.works();
        Ok(match works.states.get(name) {
            None => TaskState::Unknown,
            Some(FleetTaskState::Running) => TaskState::running(""),
            Some(FleetTaskState::Ended(callback)) => TaskState::Ended(callback.clone()),
            Some(FleetTaskState::Tombstoned) => TaskState::Tombstoned,
            Some(FleetTaskState::Waiting(_)) => {
                works.waits += 1;
                TaskState::Queued { ahead: 0 }
            }
        })
    }

    async fn acknowledge(&self, cluster: Option<&str>, _: &TaskId) -> Result<(), RelayError> {
        self.arrives(cluster).await
    }

    async fn release(&self, cluster: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.arrives(cluster).await
    }
}

/// The server of all webhooks, which refuses connections.
struct RefusingServer(Arc<Mutex<FleetTasks>>);

#[async_trait]
impl HttpCall for RefusingServer {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let key = request.headers.iter().find(|(name, _)| name == IDEMPOTENCY_KEY);
        let key = key.map(|(_, value)| value.clone()).unwrap_or_default();
        *self.0.lock().expect("no panic while it is held").calls.entry(key).or_default() += 1;
        Err(CallError::Connect("as designed".to_owned()))
    }
}

/// A simulation with many targets.
pub struct Fleet {
    pub runtime: SimRuntime,
    pub table: Arc<SimTable>,
    functions: Arc<SimFunctions>,
    tasks: Arc<Mutex<FleetTasks>>,
    ledger: Arc<Ledger>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.functions.set_env(None);
        self.runtime.clear();
    }
}

fn plugin(design: &FleetScenario) -> String {
    let head = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: fleet@1.0.0\nrunners:\n  shell: {image: \"busybox:1.37\"}\n\
                defaults: {timeout: 10m, retry: {attempts: 3, backoff: 30s, maxBackoff: 30s}}\npreStart:\n";
    let unit = |number: usize| format!("  u{number}: {{pod: {{runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}}}\n");
    let webhook = |number: usize| format!("  w{number}: {{webhook: {{url: \"https://nowhere.example.org/\"}}}}\n");
    let scripts = (0..design.units).map(unit);
    head.to_owned() + &scripts.chain((0..design.webhooks).map(webhook)).collect::<String>()
}

impl Fleet {
    /// A simulation without targets, in which the schedule runs.
    pub fn new(design: FleetScenario) -> Self {
        let runtime = SimRuntime::default();
        let table = Arc::new(SimTable::new(runtime.clone()));
        table.stop_recording();
        table.set_latency(1, LATENCY_MS);
        let ledger = Arc::<Ledger>::default();
        let functions = Arc::new(SimFunctions::new(runtime.clone(), Arc::clone(&table)));
        let tasks = Arc::<Mutex<FleetTasks>>::default();
        let relay = FleetRelays {
            runtime: runtime.clone(),
            functions: Arc::clone(&functions),
            design,
            tasks: Arc::clone(&tasks),
        };
        let faults = QueueFaults { lost: design.lost, ..QueueFaults::default() };
        functions.set_env(Some(Env {
            store: table.clone(),
            clock: Arc::new(SimClock(runtime.clone())),
            random: Arc::new(SimRandom::new(1)),
            relay: Arc::new(relay),
            egress: Arc::new(RefusingServer(Arc::clone(&tasks))),
            platform: Arc::new(ScenarioPlatform::new(runtime.clone(), Arc::clone(&ledger))),
            queue: Arc::new(ScenarioQueue::new(runtime.clone(), Arc::clone(&functions), 1, faults)),
            settings: settings(MAX_IN_FLIGHT_MS),
            cache: InstanceCache::default(),
        }));
        let document = plugin(&design);
        let item = PluginItem {
            name: "fleet".to_owned(),
            version: "1.0.0".to_owned(),
            dialect: "ebb".to_owned(),
            digest: ebb_protocol::id::digest(document.as_bytes()),
            document,
            created: runtime.now(),
            withdrawn: None,
        };
        table.state().plugins.insert((item.name.clone(), item.version.clone()), item);
        let (own, schedule) = (runtime.clone(), Arc::clone(&functions));
        runtime.spawn(async move {
            loop {
                own.sleep(SWEEP_MS).await;
                // As on AWS, the next minute waits for no sweep.
                let functions = Arc::clone(&schedule);
                own.spawn(async move {
                    functions.sweep().await.ok();
                });
            }
        });
        Self { runtime, table, functions, tasks, ledger }
    }

    /// Returns the events in the clusters so far.
    pub fn works(&self) -> MutexGuard<'_, FleetTasks> {
        self.tasks.lock().expect("no panic while it is held")
    }

    /// Asks for `count` targets in a cluster, all at once, to live for so many minutes.
    pub fn create(&self, cluster: &str, count: usize, ttl_minutes: u64) {
        for number in 0..count {
            let name = format!("{cluster}-{number}");
            let document = format!(
                "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\ncluster: {cluster}\nttl: {ttl_minutes}m\n\
                 resources: {{r: {{plugin: fleet@1.0.0}}}}\n"
            );
            let event = LifecycleData {
                kind: "sandbox".to_owned(),
                uid: format!("uid-{name}"),
                name,
                generation: 1,
                document: Some(document),
                routing_key: None,
            };
            let (runtime, functions) = (self.runtime.clone(), Arc::clone(&self.functions));
            self.runtime.spawn(async move {
                while functions.lifecycle(LifecycleType::Created, event.clone()).await.is_err() {
                    runtime.sleep(AGAIN_MS).await;
                }
            });
        }
    }

    /// Lets time pass.
    pub fn advance(&self, millis: u64) {
        let runtime = self.runtime.clone();
        self.runtime.run(async move { runtime.sleep(millis).await });
    }

    /// How many targets of a cluster are in a phase.
    pub fn count(&self, cluster: &str, phase: TargetPhase) -> usize {
        let state = self.table.state();
        let of = state.targets.values().filter(|target| target.name.starts_with(cluster));
        of.filter(|target| target.phase == phase).count()
    }

    /// When the platform was told a notification of this type.
    pub fn notifications(&self, outcome: &str) -> Vec<u64> {
        let ledger = self.ledger.state();
        ledger.notifications.iter().filter(|(_, told)| told == outcome).map(|(at, _)| *at).collect()
    }

    /// For how many milliseconds something has been due: of targets, and of runs outside of `cluster` or in it.
    pub fn overdue(&self, cluster: &str) -> (u64, u64) {
        let (now, state) = (self.runtime.now(), self.table.state());
        let since = |due: Option<Timestamp>| due.map_or(0, |at| now.since(at).0);
        let mut longest = (0, 0);
        for head in state.heads.values().filter_map(|heads| heads.get(&Shard::ROOT)) {
            let is_in = head.facts.as_ref().is_some_and(|facts| facts.name.starts_with(cluster));
            let longest = if is_in { &mut longest.1 } else { &mut longest.0 };
            *longest = since(head.head.due).max(*longest);
        }
        longest.0 = state.targets.values().map(|target| since(target.due)).fold(longest.0, u64::max);
        longest
    }

    /// Errors that no repetition helps.
    pub fn broken(&self) -> Vec<String> {
        self.functions.broken()
    }
}
