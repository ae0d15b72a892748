//! Everything together, and the instance of one target in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_engine::{RunPhase, Shard, TargetPhase};
use ebb_flow::{Env, InstanceCache};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_store::{PluginItem, TargetHead};

use super::executor::ScenarioExecutor;
use super::relay::UNREACHABLE;
use super::{
    CallbackFaults, Ledger, QueueFaults, Scenario, ScenarioPlatform, ScenarioQueue, ScenarioRelay, ScenarioServer,
    SimClock, SimFunctions, SimRandom, SimRuntime, SimTable, settings,
};

const SWEEP_MS: u64 = 60_000;
/// The platform looks, and repeats what was not answered, this often.
const POLL_MS: u64 = 1_000;
/// After this much virtual time an instance that has not come to rest is given up.
const PATIENCE_MS: u64 = 6 * 3_600_000;
/// Nothing is due for longer, whatever else hangs. The time of sweeps that died does not count.
const LATEST_MS: u64 = 5 * 60_000;
/// How long the simulation is watched after the end: longer than the queue can hold a message.
const LINGER_MS: u64 = 1_200_000;
/// A target that waits for a cluster that gives no answer, and the plugin of its only unit.
const BYSTANDER: &str = "bystander";
const BYSTANDER_PLUGIN: &str = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: bystander@1.0.0\n\
    runners:\n  shell: {image: \"busybox:1.37\"}\n\
    preStart:\n  waits: {pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n";

/// What goes wrong in a simulation, and its settings that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioFaults {
    pub queue: QueueFaults,
    pub callbacks: CallbackFaults,
    /// Percent of requests to the relay that it does not answer.
    pub relay: u8,
    /// True if another target waits for a cluster that gives no answer.
    pub unreachable_cluster: bool,
    /// How long its work waits for a turn there, in milliseconds.
    pub slot_wait_ms: u64,
    /// How many works run there at one time.
    pub slots: usize,
    /// Percent of requests to webhook units that do not arrive.
    pub outside: u8,
    /// Longest time of an operation of the table, in milliseconds.
    pub latency_ms: u64,
    /// `L` of the protocol, in milliseconds.
    pub max_in_flight_ms: u64,
}

impl Default for ScenarioFaults {
    fn default() -> Self {
        Self {
            queue: QueueFaults::default(),
            callbacks: CallbackFaults::default(),
            relay: 0,
            unreachable_cluster: false,
            slot_wait_ms: 0,
            slots: usize::MAX,
            outside: 0,
            latency_ms: 0,
            max_in_flight_ms: 30_000,
        }
    }
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioEnd {
    /// Where the target stood when its setup had come to rest; `None`: there was no target.
    pub setup: Option<TargetPhase>,
    pub phase: Option<TargetPhase>,
    /// Units that are done, by hook and position.
    pub done: BTreeSet<(String, u32)>,
    /// Units that have failed for good.
    pub failed: BTreeSet<(String, u32)>,
    pub remaining: BTreeSet<(String, String)>,
    /// What the platform was told, however often.
    pub notifications: BTreeSet<String>,
    /// What must never be: unanswered waits, refused callbacks, errors that no repetition mends.
    pub violations: Vec<String>,
}

/// A simulation with one target.
pub struct ScenarioSimulation {
    pub runtime: SimRuntime,
    pub table: Arc<SimTable>,
    pub ledger: Arc<Ledger>,
    pub functions: Arc<SimFunctions>,
    pub queue: Arc<ScenarioQueue>,
    pub relay: Arc<ScenarioRelay>,
    pub scenario: Arc<Scenario>,
    /// For how long anything was due after a sweep, in milliseconds.
    overdue: AtomicU64,
    unreachable_cluster: bool,
}

impl Drop for ScenarioSimulation {
    fn drop(&mut self) {
        self.functions.set_env(None);
        self.runtime.clear();
    }
}

impl ScenarioSimulation {
    /// A simulation in which `scenario`'s plugin is published and nothing else has happened.
    pub fn new(scenario: &Scenario, faults: ScenarioFaults) -> Self {
        let runtime = SimRuntime::default();
        let scenario = Arc::new(scenario.clone());
        let table = Arc::new(SimTable::new(runtime.clone()));
        let ledger = Arc::new(Ledger::default());
        let functions = Arc::new(SimFunctions::new(runtime.clone(), Arc::clone(&table)));
        let work = Arc::new(ScenarioExecutor::new(
            Arc::clone(&functions),
            runtime.clone(),
            Arc::clone(&ledger),
            Arc::clone(&scenario),
            faults.callbacks,
        ));
        let queue =
            Arc::new(ScenarioQueue::new(runtime.clone(), Arc::clone(&functions), scenario.seed ^ 0x9e0e, faults.queue));
        let relay = Arc::new(ScenarioRelay::new(Arc::clone(&work), faults.relay, faults.slot_wait_ms, faults.slots));
        functions.set_env(Some(Env {
            store: table.clone(),
            clock: Arc::new(SimClock(runtime.clone())),
            random: Arc::new(SimRandom::new(scenario.seed)),
            relay: relay.clone(),
            egress: Arc::new(ScenarioServer::new(work, faults.outside)),
            platform: Arc::new(ScenarioPlatform::new(runtime.clone(), Arc::clone(&ledger))),
            queue: queue.clone(),
            settings: settings(faults.max_in_flight_ms),
            cache: InstanceCache::default(),
        }));
        for (name, document) in [("world", scenario.plugin()), (BYSTANDER, BYSTANDER_PLUGIN.to_owned())] {
            let plugin = PluginItem {
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                dialect: "ebb".to_owned(),
                digest: ebb_protocol::id::digest(document.as_bytes()),
                document,
                created: runtime.now(),
                withdrawn: None,
            };
            table.state().plugins.insert((plugin.name.clone(), plugin.version.clone()), plugin);
        }
        if faults.latency_ms > 0 {
            table.set_latency(scenario.seed, faults.latency_ms);
        }
        let (overdue, unreachable_cluster) = (AtomicU64::new(0), faults.unreachable_cluster);
        Self { runtime, table, ledger, functions, queue, relay, scenario, overdue, unreachable_cluster }
    }

    /// The lifecycle webhook of an instance of this uid.
    pub fn event(&self, asked: LifecycleType, uid: &str) -> LifecycleData {
        LifecycleData {
            kind: "sandbox".to_owned(),
            name: "s".to_owned(),
            uid: uid.to_owned(),
            generation: 1,
            document: (asked == LifecycleType::Created).then(|| self.scenario.document()),
            routing_key: None,
        }
    }

    /// The target.
    pub fn target(&self) -> Option<TargetHead> {
        self.table.state().targets.get(&("sandbox".to_owned(), "s".to_owned())).cloned()
    }

    /// Sends a lifecycle webhook until it is answered. Gives what was wrong with it, if anything.
    pub fn send_lifecycle(&self, asked: LifecycleType) -> impl Future<Output = Option<String>> + Send + 'static {
        self.send_lifecycle_of(asked, "uid-1")
    }

    /// As [`Self::send_lifecycle`], of another instance of the same name.
    pub fn send_lifecycle_of(
        &self,
        asked: LifecycleType,
        uid: &str,
    ) -> impl Future<Output = Option<String>> + Send + 'static {
        self.send(asked, self.event(asked, uid))
    }

    fn send(
        &self,
        asked: LifecycleType,
        event: LifecycleData,
    ) -> impl Future<Output = Option<String>> + Send + 'static {
        let (functions, runtime) = (Arc::clone(&self.functions), self.runtime.clone());
        async move {
            loop {
                match functions.lifecycle(asked, event.clone()).await {
                    Ok(Ok(_)) => return None,
                    Ok(Err(refused)) => return Some(format!("{asked:?}: {refused:?}")),
                    Err(_) => runtime.sleep(POLL_MS).await,
                }
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        let target = self.target();
        let moving = target.as_ref().is_some_and(|target| {
            matches!(target.phase, TargetPhase::Starting | TargetPhase::Stopping)
                || target.notification.as_ref().is_some_and(|pending| pending.delivered_by.is_none())
        });
        !moving && self.table.is_at_rest_without(Some(BYSTANDER)) && self.ledger.state().active == 0
    }

    /// Lets time pass until nothing moves; false: it still does after hours.
    pub fn run_until_idle(self: &Arc<Self>) -> bool {
        let simulation = Arc::clone(self);
        let waited = self.runtime.run(async move {
            let until = simulation.runtime.elapsed() + PATIENCE_MS;
            while !simulation.is_at_rest() {
                if simulation.runtime.elapsed() >= until {
                    return false;
                }
                simulation.runtime.sleep(POLL_MS).await;
            }
            true
        });
        waited == Some(true)
    }

    /// Begins the schedule.
    pub fn sweep(self: &Arc<Self>) {
        let sweeper = Arc::clone(self);
        self.runtime.spawn(async move {
            // The times of sweeps that died, with the pauses before them.
            let mut lost: Vec<Range<u64>> = Vec::new();
            loop {
                let began = sweeper.runtime.elapsed();
                sweeper.runtime.sleep(SWEEP_MS).await;
                // A sweep that died is followed by the next one.
                let died = sweeper.functions.sweep().await.is_err();
                let now = sweeper.runtime.elapsed();
                if died {
                    lost.push(began..now);
                }
                let overdue = sweeper.table.overdue();
                let due = now.saturating_sub(overdue);
                let of_dead = lost.iter().map(|lost| lost.end.saturating_sub(lost.start.max(due))).sum::<u64>();
                sweeper.overdue.fetch_max(overdue.saturating_sub(of_dead), Ordering::Relaxed);
            }
        });
    }

    /// Asks for the target, lets its setup come to rest, deletes it, lets that come to rest, and watches for a while.
    pub fn run(self: &Arc<Self>) -> ScenarioEnd {
        let mut wrong = Vec::new();
        self.sweep();
        if self.unreachable_cluster {
            let document = format!(
                "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {BYSTANDER}\ncluster: {UNREACHABLE}\n\
                 resources: {{r: {{plugin: bystander@1.0.0}}}}\n"
            );
            let event = LifecycleData {
                name: BYSTANDER.to_owned(),
                document: Some(document),
                ..self.event(LifecycleType::Created, "uid-2")
            };
            wrong.extend(self.runtime.run(self.send(LifecycleType::Created, event)).flatten());
        }
        // A target that was deleted before it was created is refused as stale.
        wrong.extend(
            self.runtime
                .run(self.send_lifecycle(LifecycleType::Created))
                .flatten()
                .filter(|why| !why.contains("stale")),
        );
        if !self.run_until_idle() {
            wrong.push("the setup does not end".to_owned());
        }
        let setup = self.target().map(|target| target.phase);
        wrong.extend(self.runtime.run(self.send_lifecycle(LifecycleType::Deleted)).flatten());
        if !self.run_until_idle() {
            wrong.push("the teardown does not end".to_owned());
        }
        let watch = self.runtime.clone();
        self.runtime.run(async move { watch.sleep(LINGER_MS).await });
        if !self.run_until_idle() {
            wrong.push("it comes to life again".to_owned());
        }
        self.end(setup, wrong)
    }

    /// How it stands.
    pub fn end(&self, setup: Option<TargetPhase>, mut wrong: Vec<String>) -> ScenarioEnd {
        let ledger = self.ledger.state();
        wrong.extend(ledger.refused.iter().cloned());
        wrong.extend(self.functions.broken());
        let overdue = self.overdue.load(Ordering::Relaxed);
        if overdue > LATEST_MS {
            wrong.push(format!("something was due for {overdue} ms"));
        }
        let mut done = BTreeSet::new();
        let mut failed = BTreeSet::new();
        for (run, heads) in &self.table.state().heads {
            let facts = heads.get(&Shard::ROOT).and_then(|root| root.facts.as_ref());
            if facts.is_some_and(|facts| facts.name == BYSTANDER) {
                continue;
            }
            let hook = ebb_protocol::id::hook_name(run.hook()).to_owned();
            for (shard, head) in heads {
                let name = |slot: &u32| (hook.clone(), shard.unit(*slot).0);
                done.extend(head.head.done.iter().map(name));
                failed.extend(head.head.failed.iter().map(name));
                if *shard == Shard::ROOT && head.head.phase != RunPhase::Closed {
                    wrong.push(format!("{run} is {:?}", head.head.phase));
                }
            }
        }
        let phase = self.target().map(|target| target.phase);
        let told = ledger.notifications.iter().map(|(_, what)| what.clone()).collect();
        ScenarioEnd {
            setup,
            phase,
            done,
            failed,
            remaining: ledger.objects.clone(),
            notifications: told,
            violations: wrong,
        }
    }

    /// What happened, for people.
    pub fn trace(&self) -> String {
        let mut lines: BTreeMap<(u64, usize), String> = BTreeMap::new();
        let state = self.table.state();
        let ledger = self.ledger.state();
        let mut add = |at: u64, line: String| {
            let number = lines.len();
            lines.insert((at, number), format!("{at:>9} {line}"));
        };
        for (at, what) in &state.writes {
            add(*at, format!("write {what}"));
        }
        for sent in &ledger.sent {
            add(sent.at, format!("sent {sent:?}"));
        }
        for end in &ledger.finished {
            add(end.at, format!("finished {end:?}"));
        }
        for (at, what) in &ledger.notifications {
            add(*at, format!("told {what}"));
        }
        for (at, what) in self.queue.sent() {
            add(at, format!("queued {what}"));
        }
        lines.into_values().collect::<Vec<_>>().join("\n")
    }
}
