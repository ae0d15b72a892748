//! Everything together, and the life of one target in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_engine::{RunPhase, Shard, TargetPhase};
use ebb_flow::{Env, Warm};
use ebb_store::{PluginItem, TargetHead};
use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::Lifecycle;

use super::relay::SILENT;
use super::work::Work;
use super::{
    CallbackFaults, Clock, Functions, Ledger, Outside, Platform, Queue, QueueFaults, Random, Relay, Runtime,
    Scenario, Table, settings,
};

const SWEEP_MS: u64 = 60_000;
/// The platform looks, and repeats what was not answered, this often.
const LOOK_MS: u64 = 1_000;
/// After this much virtual time a life that has not come to rest is given up.
const PATIENCE_MS: u64 = 6 * 3_600_000;
/// Nothing is due for longer, whatever else hangs. The time of sweeps that died does not count.
const LATEST_MS: u64 = 5 * 60_000;
/// How long the world is watched after the end: longer than the queue can hold a message.
const LINGER_MS: u64 = 1_200_000;
/// A target that waits for a cluster that gives no answer, and the plugin of its only unit.
const BYSTANDER: &str = "bystander";
const BYSTANDER_PLUGIN: &str = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: bystander@1.0.0\n\
    runners:\n  shell: {image: \"busybox:1.37\"}\n\
    preStart:\n  waits: {pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n";

/// What goes wrong in a world, and its settings that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    pub queue: QueueFaults,
    pub callbacks: CallbackFaults,
    /// Percent of requests to the relay that it does not answer.
    pub relay: u8,
    /// True if another target waits for a cluster that gives no answer.
    pub silent: bool,
    /// How long its work waits for a turn there, in milliseconds.
    pub turn_ms: u64,
    /// How many works run there at one time.
    pub slots: usize,
    /// Percent of requests to webhook units that do not arrive.
    pub outside: u8,
    /// Longest time of an operation of the table, in milliseconds.
    pub latency_ms: u64,
    /// `L` of the protocol, in milliseconds.
    pub landing_ms: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            queue: QueueFaults::default(),
            callbacks: CallbackFaults::default(),
            relay: 0,
            silent: false,
            turn_ms: 0,
            slots: usize::MAX,
            outside: 0,
            latency_ms: 0,
            landing_ms: 30_000,
        }
    }
}

/// How a life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Where the target stood when its setup had come to rest; `None`: there was no target.
    pub setup: Option<TargetPhase>,
    pub phase: Option<TargetPhase>,
    /// Units that are done, by event and position.
    pub done: BTreeSet<(String, u32)>,
    /// Units that have failed for good.
    pub failed: BTreeSet<(String, u32)>,
    pub left: BTreeSet<(String, String)>,
    /// What the platform was told, however often.
    pub told: BTreeSet<String>,
    /// What must never be: unanswered waits, refused callbacks, errors that no repetition mends.
    pub wrong: Vec<String>,
}

/// A world with one target.
pub struct World {
    pub runtime: Runtime,
    pub table: Arc<Table>,
    pub ledger: Arc<Ledger>,
    pub functions: Arc<Functions>,
    pub queue: Arc<Queue>,
    pub relay: Arc<Relay>,
    pub scenario: Arc<Scenario>,
    /// For how long anything was due after a sweep, in milliseconds.
    overdue: AtomicU64,
    silent: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        self.functions.surround(None);
        self.runtime.clear();
    }
}

impl World {
    /// A world in which `scenario`'s plugin is published and nothing else has happened.
    pub fn new(scenario: &Scenario, faults: Faults) -> Self {
        let runtime = Runtime::default();
        let scenario = Arc::new(scenario.clone());
        let table = Arc::new(Table::new(runtime.clone()));
        let ledger = Arc::new(Ledger::default());
        let functions = Arc::new(Functions::new(runtime.clone(), Arc::clone(&table)));
        let work = Arc::new(Work::new(
            Arc::clone(&functions),
            runtime.clone(),
            Arc::clone(&ledger),
            Arc::clone(&scenario),
            faults.callbacks,
        ));
        let queue = Arc::new(Queue::new(
            runtime.clone(),
            Arc::clone(&functions),
            scenario.seed ^ 0x9e0e,
            faults.queue,
        ));
        let relay = Arc::new(Relay::new(Arc::clone(&work), faults.relay, faults.turn_ms, faults.slots));
        functions.surround(Some(Env {
            store: table.clone(),
            clock: Arc::new(Clock(runtime.clone())),
            random: Arc::new(Random::new(scenario.seed)),
            relay: relay.clone(),
            outside: Arc::new(Outside::new(work, faults.outside)),
            platform: Arc::new(Platform::new(runtime.clone(), Arc::clone(&ledger))),
            queue: queue.clone(),
            settings: settings(faults.landing_ms),
            warm: Warm::default(),
        }));
        for (name, document) in [("world", scenario.plugin()), (BYSTANDER, BYSTANDER_PLUGIN.to_owned())] {
            let plugin = PluginItem {
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                dialect: "ebb".to_owned(),
                digest: ebb_wire::id::digest(document.as_bytes()),
                document,
                created: runtime.now(),
                withdrawn: None,
            };
            table.state().plugins.insert((plugin.name.clone(), plugin.version.clone()), plugin);
        }
        if faults.latency_ms > 0 {
            table.slow_down(scenario.seed, faults.latency_ms);
        }
        let (overdue, silent) = (AtomicU64::new(0), faults.silent);
        Self { runtime, table, ledger, functions, queue, relay, scenario, overdue, silent }
    }

    /// The lifecycle webhook of a life of this uid.
    pub fn event(&self, asked: Asked, uid: &str) -> Lifecycle {
        Lifecycle {
            kind: "sandbox".to_owned(),
            name: "s".to_owned(),
            uid: uid.to_owned(),
            generation: 1,
            document: (asked == Asked::Created).then(|| self.scenario.document()),
            routing_key: None,
        }
    }

    /// The target.
    pub fn target(&self) -> Option<TargetHead> {
        self.table.state().targets.get(&("sandbox".to_owned(), "s".to_owned())).cloned()
    }

    /// Sends a lifecycle webhook until it is answered. Gives what was wrong with it, if anything.
    pub fn ask(&self, asked: Asked) -> impl Future<Output = Option<String>> + Send + 'static {
        self.ask_for(asked, "uid-1")
    }

    /// As [`Self::ask`], of another life of the same name.
    pub fn ask_for(&self, asked: Asked, uid: &str) -> impl Future<Output = Option<String>> + Send + 'static {
        self.send(asked, self.event(asked, uid))
    }

    fn send(&self, asked: Asked, event: Lifecycle) -> impl Future<Output = Option<String>> + Send + 'static {
        let (functions, runtime) = (Arc::clone(&self.functions), self.runtime.clone());
        async move {
            loop {
                match functions.lifecycle(asked, event.clone()).await {
                    Ok(Ok(_)) => return None,
                    Ok(Err(refused)) => return Some(format!("{asked:?}: {refused:?}")),
                    Err(_) => runtime.sleep(LOOK_MS).await,
                }
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        let target = self.target();
        let moving = target.as_ref().is_some_and(|target| {
            matches!(target.phase, TargetPhase::Starting | TargetPhase::Stopping)
                || target.tell.as_ref().is_some_and(|tell| tell.held_by.is_none())
        });
        !moving && self.table.is_at_rest_without(Some(BYSTANDER)) && self.ledger.state().active == 0
    }

    /// Lets time pass until nothing moves; false: it still does after hours.
    pub fn rest(self: &Arc<Self>) -> bool {
        let world = Arc::clone(self);
        let waited = self.runtime.run(async move {
            let until = world.runtime.elapsed() + PATIENCE_MS;
            while !world.is_at_rest() {
                if world.runtime.elapsed() >= until {
                    return false;
                }
                world.runtime.sleep(LOOK_MS).await;
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
                let of_dead =
                    lost.iter().map(|lost| lost.end.saturating_sub(lost.start.max(due))).sum::<u64>();
                sweeper.overdue.fetch_max(overdue.saturating_sub(of_dead), Ordering::Relaxed);
            }
        });
    }

    /// Asks for the target, lets its setup come to rest, deletes it, lets that come to rest, and watches for a while.
    pub fn live(self: &Arc<Self>) -> End {
        let mut wrong = Vec::new();
        self.sweep();
        if self.silent {
            let document = format!(
                "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {BYSTANDER}\ncluster: {SILENT}\n\
                 resources: {{r: {{plugin: bystander@1.0.0}}}}\n"
            );
            let event = Lifecycle {
                name: BYSTANDER.to_owned(),
                document: Some(document),
                ..self.event(Asked::Created, "uid-2")
            };
            wrong.extend(self.runtime.run(self.send(Asked::Created, event)).flatten());
        }
        // A target that was deleted before it was created is refused as stale.
        wrong.extend(
            self.runtime.run(self.ask(Asked::Created)).flatten().filter(|why| !why.contains("stale")),
        );
        if !self.rest() {
            wrong.push("the setup does not end".to_owned());
        }
        let setup = self.target().map(|target| target.phase);
        wrong.extend(self.runtime.run(self.ask(Asked::Deleted)).flatten());
        if !self.rest() {
            wrong.push("the teardown does not end".to_owned());
        }
        let watch = self.runtime.clone();
        self.runtime.run(async move { watch.sleep(LINGER_MS).await });
        if !self.rest() {
            wrong.push("it comes to life again".to_owned());
        }
        self.end(setup, wrong)
    }

    /// How it stands.
    pub fn end(&self, setup: Option<TargetPhase>, mut wrong: Vec<String>) -> End {
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
            let event = ebb_wire::id::event_name(run.moment()).to_owned();
            for (shard, head) in heads {
                let name = |slot: &u32| (event.clone(), shard.unit(*slot).0);
                done.extend(head.head.done.iter().map(name));
                failed.extend(head.head.failed.iter().map(name));
                if *shard == Shard::ROOT && head.head.phase != RunPhase::Closed {
                    wrong.push(format!("{run} is {:?}", head.head.phase));
                }
            }
        }
        let phase = self.target().map(|target| target.phase);
        let told = ledger.told.iter().map(|(_, what)| what.clone()).collect();
        End { setup, phase, done, failed, left: ledger.things.clone(), told, wrong }
    }

    /// What happened, for people.
    pub fn story(&self) -> String {
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
        for (at, what) in &ledger.told {
            add(*at, format!("told {what}"));
        }
        for (at, what) in self.queue.sent() {
            add(at, format!("queued {what}"));
        }
        lines.into_values().collect::<Vec<_>>().join("\n")
    }
}
