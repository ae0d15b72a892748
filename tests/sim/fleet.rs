//! Many targets in clusters that answer, hang or refuse, and whose places for work are limited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Shard, TargetPhase, Timestamp};
use ebb_flow::ports::RelayError;
use ebb_flow::{Env, Warm};
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_store::PluginItem;
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::Lifecycle;
use ebb_wire::relay::{Ensure, WorkName, WorkState};
use ebb_wire::unit::IDEMPOTENCY_KEY;

use super::{Clock, Functions, Ledger, Platform, Queue, QueueFaults, Random, Runtime, Table, settings};

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
const LANDING_MS: u64 = 30_000;

/// The documents of the targets, and the behavior of the cluster that answers.
#[derive(Clone, Copy, Debug)]
pub struct Design {
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

enum Stand {
    Waiting(Box<Ensure>),
    Running,
    Ended(Box<Callback>),
    Tombstoned,
}

/// The events in the clusters.
#[derive(Default)]
pub struct Works {
    stands: BTreeMap<WorkName, Stand>,
    line: VecDeque<WorkName>,
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
struct Relays {
    runtime: Runtime,
    functions: Arc<Functions>,
    design: Design,
    works: Arc<Mutex<Works>>,
}

impl Relays {
    fn works(&self) -> MutexGuard<'_, Works> {
        self.works.lock().expect("no panic while it is held")
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
                let Some(name) = works.line.pop_front() else { return };
                let stand = works.stands.remove(&name);
                let Some(Stand::Waiting(request)) = stand else {
                    stand.into_iter().for_each(|stand| drop(works.stands.insert(name.clone(), stand)));
                    continue;
                };
                works.running += 1;
                *works.starts.entry((name.unit.clone(), name.attempt)).or_default() += 1;
                works.stands.insert(name, Stand::Running);
                request
            };
            self.runtime.spawn(self.clone().work(request));
        }
    }

    async fn work(self, request: Box<Ensure>) {
        self.runtime.sleep(self.design.millis).await;
        let well = request.name.attempt > self.design.fails;
        let callback = match well {
            true => Callback::new(CallbackStatus::Succeeded),
            false => Callback::failed(ReasonCode::Failed, "as designed"),
        };
        {
            let mut works = self.works();
            if !matches!(works.stands.get(&request.name), Some(Stand::Running)) {
                return;
            }
            works.stands.insert(request.name.clone(), Stand::Ended(Box::new(callback.clone())));
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
impl ebb_flow::ports::Relay for Relays {
    async fn ensure(&self, cluster: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        self.arrives(cluster).await?;
        let name = request.name.clone();
        if !self.works().stands.contains_key(&name) {
            let mut works = self.works();
            works.stands.insert(name.clone(), Stand::Waiting(Box::new(request)));
            works.line.push_back(name.clone());
        }
        self.hand_out();
        self.get(cluster, &name).await
    }

    async fn cancel(
        &self,
        cluster: Option<&str>,
        name: &WorkName,
        _: Duration,
    ) -> Result<WorkState, RelayError> {
        self.arrives(cluster).await?;
        {
            let mut works = self.works();
            if let Some(Stand::Ended(callback)) = works.stands.get(name) {
                return Ok(WorkState::Ended(callback.clone()));
            }
            if let Some(Stand::Running) = works.stands.insert(name.clone(), Stand::Tombstoned) {
                works.killed += 1;
                works.running -= 1;
            }
        }
        self.hand_out();
        Ok(WorkState::Tombstoned)
    }

    async fn get(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.arrives(cluster).await?;
        let mut works = self.works();
        Ok(match works.stands.get(name) {
            None => WorkState::Unknown,
            Some(Stand::Running) => WorkState::running(""),
            Some(Stand::Ended(callback)) => WorkState::Ended(callback.clone()),
            Some(Stand::Tombstoned) => WorkState::Tombstoned,
            Some(Stand::Waiting(_)) => {
                works.waits += 1;
                WorkState::Waiting { before: 0 }
            }
        })
    }

    async fn acknowledge(&self, cluster: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        self.arrives(cluster).await
    }

    async fn release(&self, cluster: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.arrives(cluster).await
    }
}

/// The server of all webhooks, which refuses connections.
struct Nowhere(Arc<Mutex<Works>>);

#[async_trait]
impl Call for Nowhere {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let key = request.headers.iter().find(|(name, _)| name == IDEMPOTENCY_KEY);
        let key = key.map(|(_, value)| value.clone()).unwrap_or_default();
        *self.0.lock().expect("no panic while it is held").calls.entry(key).or_default() += 1;
        Err(CallError::Connect("as designed".to_owned()))
    }
}

/// A world with many targets.
pub struct Fleet {
    pub runtime: Runtime,
    pub table: Arc<Table>,
    functions: Arc<Functions>,
    works: Arc<Mutex<Works>>,
    ledger: Arc<Ledger>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.functions.surround(None);
        self.runtime.clear();
    }
}

fn plugin(design: &Design) -> String {
    let head = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: fleet@1.0.0\nrunners:\n  shell: {image: \"busybox:1.37\"}\n\
                defaults: {timeout: 10m, retry: {attempts: 3, backoff: 30s, maxBackoff: 30s}}\npreStart:\n";
    let unit =
        |number: usize| format!("  u{number}: {{pod: {{runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}}}\n");
    let webhook =
        |number: usize| format!("  w{number}: {{webhook: {{url: \"https://nowhere.example.org/\"}}}}\n");
    let scripts = (0..design.units).map(unit);
    head.to_owned() + &scripts.chain((0..design.webhooks).map(webhook)).collect::<String>()
}

impl Fleet {
    /// A world without targets, in which the schedule runs.
    pub fn new(design: Design) -> Self {
        let runtime = Runtime::default();
        let table = Arc::new(Table::new(runtime.clone()));
        table.be_silent();
        table.slow_down(1, LATENCY_MS);
        let ledger = Arc::<Ledger>::default();
        let functions = Arc::new(Functions::new(runtime.clone(), Arc::clone(&table)));
        let works = Arc::<Mutex<Works>>::default();
        let relay = Relays {
            runtime: runtime.clone(),
            functions: Arc::clone(&functions),
            design,
            works: Arc::clone(&works),
        };
        let faults = QueueFaults { lost: design.lost, ..QueueFaults::default() };
        functions.surround(Some(Env {
            store: table.clone(),
            clock: Arc::new(Clock(runtime.clone())),
            random: Arc::new(Random::new(1)),
            relay: Arc::new(relay),
            outside: Arc::new(Nowhere(Arc::clone(&works))),
            platform: Arc::new(Platform::new(runtime.clone(), Arc::clone(&ledger))),
            queue: Arc::new(Queue::new(runtime.clone(), Arc::clone(&functions), 1, faults)),
            settings: settings(LANDING_MS),
            warm: Warm::default(),
        }));
        let document = plugin(&design);
        let item = PluginItem {
            name: "fleet".to_owned(),
            version: "1.0.0".to_owned(),
            dialect: "ebb".to_owned(),
            digest: ebb_wire::id::digest(document.as_bytes()),
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
        Self { runtime, table, functions, works, ledger }
    }

    /// Returns the events in the clusters so far.
    pub fn works(&self) -> MutexGuard<'_, Works> {
        self.works.lock().expect("no panic while it is held")
    }

    /// Asks for `count` targets in a cluster, all at once, to live for so many minutes.
    pub fn create(&self, cluster: &str, count: usize, ttl_minutes: u64) {
        for number in 0..count {
            let name = format!("{cluster}-{number}");
            let document = format!(
                "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\ncluster: {cluster}\nttl: {ttl_minutes}m\n\
                 resources: {{r: {{plugin: fleet@1.0.0}}}}\n"
            );
            let event = Lifecycle {
                kind: "sandbox".to_owned(),
                uid: format!("uid-{name}"),
                name,
                generation: 1,
                document: Some(document),
                routing_key: None,
            };
            let (runtime, functions) = (self.runtime.clone(), Arc::clone(&self.functions));
            self.runtime.spawn(async move {
                while functions.lifecycle(Asked::Created, event.clone()).await.is_err() {
                    runtime.sleep(AGAIN_MS).await;
                }
            });
        }
    }

    /// Lets time pass.
    pub fn pass(&self, millis: u64) {
        let runtime = self.runtime.clone();
        self.runtime.run(async move { runtime.sleep(millis).await });
    }

    /// How many targets of a cluster are in a phase.
    pub fn count(&self, cluster: &str, phase: TargetPhase) -> usize {
        let state = self.table.state();
        let of = state.targets.values().filter(|target| target.name.starts_with(cluster));
        of.filter(|target| target.phase == phase).count()
    }

    /// When the platform was told an outcome of this type.
    pub fn told(&self, outcome: &str) -> Vec<u64> {
        let ledger = self.ledger.state();
        ledger.told.iter().filter(|(_, told)| told == outcome).map(|(at, _)| *at).collect()
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
