//! A simulation with many targets, from its seed to what was wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ebb_documents::plan::Plan;
use ebb_engine::{TargetPhase, Timestamp};
use ebb_flow::{DeploymentSettings, Env, InstanceCache};
use ebb_store::{DueItem, PluginItem, TargetHead};

use super::super::functions::FunctionFaults;
use super::super::{
    ExcludedFaults, FaultInjector, FaultKind, SimClock, SimFunctions, SimRandom, SimRuntime, SimTable, settings,
};
use super::executor::SimExecutor;
use super::ledger::{SimLedger, TimeBounds};
use super::platform::{KIND, PlatformSender, SimInstance};
use super::queue::{MessageCount, SimQueue};
use super::registry::{self, SimPace};
use super::relay::{SimClusters, UNREACHABLE};
use super::scenario::TargetScenario;
use super::{checks, relay, servers};

const SWEEP_MS: u64 = 60_000;
/// The simulation is looked at this often.
const POLL_MS: u64 = 5_000;
/// An operator looks at what is stuck this often.
const RESCUE_MS: u64 = 120_000;
/// After this much virtual time a simulation that has not come to rest is given up.
const PATIENCE_MS: u64 = 24 * 3_600_000;
/// Nothing is due for longer, whatever else hangs. The time of sweeps that are left out or die does not count.
const LATEST_MS: u64 = 20 * 60_000;
/// How long it is watched after the end: longer than the queue can hold a message.
pub(super) const LINGER_MS: u64 = 1_800_000;
/// A function's timeout; with transport and skew less than [`MAX_IN_FLIGHT_MS`].
const FUNCTION_MS: u64 = 28_000;
const MAX_IN_FLIGHT_MS: u64 = 30_000;
/// A sweep that comes to its end leaves nothing as due as it was that the index names, whatever else hangs. Failing operations
/// and a lack of time keep it from some things, and from the same thing not so many times.
const SWEEPS: u32 = 3;
/// Names of targets in a simulation.
const TARGETS: u64 = 5;
/// Names of targets that wait for a silent cluster begin so.
const BYSTANDER: &str = "bystander";
/// How many of them there are at most, and how long after its creation one may be deleted.
const BYSTANDERS: u64 = 4;
const BYSTANDER_MS: u64 = 600_000;
const BYSTANDER_PLUGIN: &str = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: bystander@1.0.0\n\
    runners:\n  shell: {image: \"busybox:1.37\"}\n\
    preStart:\n  u0: {pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n  \
    u1: {pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n\
    postStop:\n  x0: {undoes: u0, pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n";
/// Slots of a cluster that has few, and units that an invocation sends that sends few, at most.
const FEW: u64 = 3;

/// What a simulation came to.
#[derive(Clone, Debug)]
pub struct SimReport {
    /// Lives that the platform asked for.
    pub instances: u64,
    /// How often each kind of fault happened, in the order of [`FaultKind::ALL`].
    pub injected: Vec<u64>,
    /// How often each could have happened.
    pub injection_points: Vec<u64>,
    /// What the platform was told, however often.
    pub notifications: BTreeSet<String>,
    pub attempts: u64,
    pub invocations: u64,
    /// What must not be; empty for a simulation that is as it should be.
    pub violations: Vec<String>,
    /// What happened, for people; if it was asked for.
    pub trace: Vec<String>,
}

/// Whether a story is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceMode {
    Kept,
    Off,
}

/// Everything of a simulation.
pub(super) struct Simulation {
    pub(super) runtime: SimRuntime,
    pub(super) table: Arc<SimTable>,
    pub(super) functions: Arc<SimFunctions>,
    pub(super) ledger: Arc<SimLedger>,
    pub(super) faults: Arc<FaultInjector>,
    pub(super) counted: Arc<MessageCount>,
    pub(super) instances: Vec<SimInstance>,
    pub(super) scenarios: Vec<TargetScenario>,
    plans: Mutex<BTreeMap<String, Arc<Plan>>>,
    pace: SimPace,
    executor: Arc<SimExecutor>,
    clusters: SimClusters,
    /// When sweeps began that were left out or died.
    lost_sweeps: Arc<Mutex<Vec<Timestamp>>>,
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.functions.set_env(None);
        self.runtime.clear();
    }
}

/// Runs the simulation of a seed, without the excluded faults.
pub fn simulate(seed: u64, excluded: &ExcludedFaults, trace: TraceMode) -> SimReport {
    let random = SimRandom::new(seed ^ 0x5eed);
    let designs: Vec<TargetScenario> =
        (0..1 + random.below(2)).map(|_| TargetScenario::random(random.bits())).collect();
    let mut simulation = Simulation::new(designs, FaultInjector::new(seed, excluded), seed, SimPace::Random, trace);
    simulation.populate(&random, seed);
    simulation.populate_silence(&random, seed);
    simulation.run(&random);
    simulation.report()
}

/// Lets one target of a design live from its creation to its end, with these faults. Its units take their time one
/// after the other.
pub fn simulate_target(design: &TargetScenario, name: &str, faults: FaultInjector, trace: TraceMode) -> SimReport {
    let mut simulation = Simulation::new(vec![design.clone()], faults, 1, SimPace::Steady, trace);
    let (document, changed) = (design.document.replace("NAME", name), String::new());
    simulation.register_units(name, "uid-1", &document, 1);
    let instance = SimInstance { name: name.to_owned(), uid: "uid-1".to_owned(), document, changed, expires: false };
    simulation.instances.push(instance.clone());
    simulation.table.inject_faults(Arc::clone(&simulation.faults));
    simulation.sweep();
    let sender = PlatformSender(Arc::clone(&simulation.executor));
    let (platform, created) = (sender.clone(), instance.clone());
    simulation.runtime.run(async move { platform.create(&created).await });
    simulation.run_until(&SimRandom::new(1), |table, ledger| {
        let over = matches!(phase(table), Some(TargetPhase::Ready | TargetPhase::Failed));
        over && is_quiet(ledger, table)
    });
    let setup = phase(&simulation.table);
    if setup != Some(TargetPhase::Ready) {
        simulation.ledger.report_violation(format!("its setup has ended as {setup:?}"));
    }
    simulation.runtime.run(async move { sender.delete(&instance).await });
    simulation.end(&SimRandom::new(1));
    simulation.report()
}

/// The phase of the only target.
fn phase(table: &SimTable) -> Option<TargetPhase> {
    table.state().targets.values().next().map(|target| target.phase)
}

impl Simulation {
    fn new(scenarios: Vec<TargetScenario>, faults: FaultInjector, seed: u64, pace: SimPace, trace: TraceMode) -> Self {
        let runtime = SimRuntime::default();
        let table = Arc::new(SimTable::new(runtime.clone()));
        if trace == TraceMode::Off {
            table.stop_recording();
        }
        let bounds =
            TimeBounds { max_in_flight: MAX_IN_FLIGHT_MS, sending: settings(MAX_IN_FLIGHT_MS).response_window().0 };
        let ledger = Arc::new(SimLedger::new(runtime.clone(), Arc::clone(&table), bounds, trace == TraceMode::Kept));
        let functions = Arc::new(SimFunctions::new(runtime.clone(), Arc::clone(&table)));
        let faults = Arc::new(faults);
        let executor = Arc::new(SimExecutor {
            runtime: runtime.clone(),
            functions: Arc::clone(&functions),
            ledger: Arc::clone(&ledger),
            faults: Arc::clone(&faults),
        });
        let bystander = (BYSTANDER.to_owned(), "1.0.0".to_owned(), BYSTANDER_PLUGIN.to_owned());
        let plugins = scenarios.iter().flat_map(|design| &design.plugins).chain([&bystander]);
        for (name, version, document) in plugins {
            let plugin = PluginItem {
                name: name.clone(),
                version: version.clone(),
                dialect: "ebb".to_owned(),
                digest: ebb_protocol::id::digest(document.as_bytes()),
                document: document.clone(),
                created: runtime.now(),
                withdrawn: None,
            };
            table.state().plugins.insert((name.clone(), version.clone()), plugin);
        }
        let counted = Arc::<MessageCount>::default();
        let few = |kind| faults.should_inject(kind).then(|| 1 + faults.random_below(kind, FEW) as usize);
        let (slots, sends) = (few(FaultKind::SlotsScarce), few(FaultKind::DispatchesScarce));
        let clusters = SimClusters::new(Arc::clone(&executor), slots.unwrap_or(usize::MAX));
        let (relays, servers) = (clusters.clone(), servers::ServerMemory::default());
        let away_until = Arc::<Mutex<u64>>::default();
        let (own, count) = (Arc::clone(&executor), Arc::clone(&counted));
        let store = Arc::clone(&table);
        let instance = move || Env {
            store: store.clone(),
            clock: Arc::new(SimClock(own.runtime.clone())),
            random: Arc::new(SimRandom::new(seed ^ own.functions.invocations())),
            relay: Arc::new(relay::SimRelay(relays.clone())),
            egress: Arc::new(servers::SimServers::new(Arc::clone(&own), &servers)),
            platform: Arc::new(servers::SimPlatform::new(&own, &away_until)),
            queue: Arc::new(SimQueue {
                runtime: own.runtime.clone(),
                functions: Arc::clone(&own.functions),
                ledger: Arc::clone(&own.ledger),
                faults: Arc::clone(&own.faults),
                counted: Arc::clone(&count),
            }),
            settings: DeploymentSettings {
                max_dispatches: sends.unwrap_or(settings(MAX_IN_FLIGHT_MS).max_dispatches),
                ..settings(MAX_IN_FLIGHT_MS)
            },
            cache: InstanceCache::default(),
        };
        functions.inject_faults(FunctionFaults {
            timeout: FUNCTION_MS,
            faults: Arc::clone(&faults),
            instance: Box::new(instance),
        });
        let (instances, plans) = (Vec::new(), Mutex::default());
        Self {
            runtime,
            table,
            functions,
            ledger,
            faults,
            counted,
            instances,
            scenarios,
            plans,
            pace,
            executor,
            clusters,
            lost_sweeps: Arc::default(),
        }
    }

    /// Makes up the instances, and tells the servers who is who.
    fn populate(&mut self, random: &SimRandom, seed: u64) {
        for target in 0..1 + random.below(TARGETS) {
            let name = format!("t{target}");
            for instance in 0..1 + random.below(3) {
                let uid = format!("{name}-{instance}");
                let expires = random.below(6) == 0;
                let design = &self.scenarios[random.below(self.scenarios.len() as u64) as usize];
                let plain = design.document.replace("NAME", &name);
                let ttl = plain.replace("resources:", &format!("ttl: {}m\nresources:", 2 + instance));
                let document = if expires { ttl } else { plain.clone() };
                let changed = plain.replace("resources:", "ttl: 9h\nresources:");
                self.register_units(&name, &uid, &document, seed);
                self.instances.push(SimInstance { name: name.clone(), uid, document, changed, expires });
            }
        }
    }

    /// Makes up instances of targets that wait for a cluster that gives no answer.
    fn populate_silence(&mut self, random: &SimRandom, seed: u64) {
        if !self.faults.should_inject(FaultKind::ClusterUnreachable) {
            return;
        }
        for number in 0..1 + random.below(BYSTANDERS) {
            let name = format!("{BYSTANDER}-{number}");
            let document = format!(
                "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\ncluster: {UNREACHABLE}\n\
                 resources: {{r: {{plugin: bystander@1.0.0}}}}\n"
            );
            let uid = format!("{name}-0");
            self.register_units(&name, &uid, &document, seed);
            self.instances.push(SimInstance { name, uid, changed: document.clone(), document, expires: false });
        }
    }

    fn bystanders(&self) -> Vec<SimInstance> {
        self.instances.iter().filter(|instance| instance.name.starts_with(BYSTANDER)).cloned().collect()
    }

    /// Tells the servers who is who in an instance.
    fn register_units(&self, name: &str, uid: &str, document: &str, seed: u64) {
        match self.plan(name, document) {
            Ok(plan) => {
                let mut state = self.ledger.state();
                for part in registry::units(&plan, KIND, name, uid, seed, self.pace) {
                    state.units.insert(part.key.clone(), part);
                }
            }
            Err(wrong) => self.ledger.report_violation(format!("the document of {uid} is not taken: {wrong}")),
        }
    }

    /// The plan of a document; targets that differ in their names have the same.
    fn plan(&self, name: &str, document: &str) -> Result<Arc<Plan>, String> {
        let key = document.replacen(&format!("name: {name}\n"), "name: NAME\n", 1);
        let known = self.plans.lock().expect("no panic while it is held").get(&key).cloned();
        if let Some(plan) = known {
            return Ok(plan);
        }
        let (table, name, document) = (Arc::clone(&self.table), name.to_owned(), document.to_owned());
        let compiled = self.runtime.run(async move {
            ebb_flow::target::lifecycle::compile_document(
                table.as_ref(),
                &name,
                &document,
                ebb_flow::target::changes::PinnedVersions::Latest,
            )
            .await
        });
        let Some(Ok((plan, _))) = compiled else { return Err(format!("{compiled:?}")) };
        let plan = Arc::new(plan);
        self.plans.lock().expect("no panic while it is held").insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    fn run(&self, random: &SimRandom) {
        self.table.inject_faults(Arc::clone(&self.faults));
        if random.below(2) == 0 {
            self.table.set_latency(random.bits(), random.below(40));
        }
        let sender = PlatformSender(Arc::clone(&self.executor));
        for instance in self.bystanders() {
            let (platform, random) = (sender.clone(), SimRandom::new(random.bits()));
            self.runtime.spawn(async move {
                platform.create(&instance).await;
                if random.below(2) == 0 {
                    platform.pause(random.below(BYSTANDER_MS)).await;
                    platform.delete(&instance).await;
                }
            });
        }
        let names = self.instances.iter().map(|instance| instance.name.clone());
        let names: BTreeSet<String> = names.filter(|name| !name.starts_with(BYSTANDER)).collect();
        for name in &names {
            let instances = self.instances.iter().filter(|instance| instance.name == *name).cloned().collect();
            self.runtime.spawn(sender.clone().run(instances, SimRandom::new(random.bits())));
        }
        if random.below(2) == 0 {
            let names = names.iter().cloned().collect();
            self.runtime.spawn(sender.clone().operate(names, SimRandom::new(random.bits())));
        }
        self.sweep();
        self.end(random);
    }

    /// Lets time pass until `is_over`; an operator sees to what is stuck.
    fn run_until(&self, random: &SimRandom, is_over: impl Fn(&SimTable, &SimLedger) -> bool + Send + 'static) {
        let (runtime, ledger, table) = (self.runtime.clone(), Arc::clone(&self.ledger), Arc::clone(&self.table));
        let (sender, random, pace) =
            (PlatformSender(Arc::clone(&self.executor)), SimRandom::new(random.bits()), self.pace);
        let overdue = Arc::<AtomicU64>::default();
        let (worst, lost) = (Arc::clone(&overdue), Arc::clone(&self.lost_sweeps));
        let rested = self.runtime.run(async move {
            // The platform begins at the same time.
            runtime.sleep(1).await;
            let mut rescue = RESCUE_MS;
            while !is_over(&table, &ledger) {
                worst.fetch_max(waited(&table, &lost), Ordering::Relaxed);
                if runtime.elapsed() >= PATIENCE_MS {
                    return false;
                }
                if runtime.elapsed() >= rescue {
                    rescue = runtime.elapsed() + RESCUE_MS;
                    let stuck = stuck(&table);
                    if !stuck.is_empty() {
                        ledger.repair();
                    }
                    for name in stuck {
                        match pace {
                            SimPace::Random => sender.operation(&name, &random).await,
                            SimPace::Steady => sender.retry(&name).await,
                        }
                    }
                }
                runtime.sleep(POLL_MS).await;
            }
            true
        });
        let overdue = overdue.load(Ordering::Relaxed);
        if overdue > LATEST_MS {
            self.ledger.report_violation(format!(
                "something was due for {overdue} ms, without those of sweeps that were left out or died"
            ));
        }
        if rested != Some(true) {
            self.ledger.report_violation("it does not come to rest".to_owned());
        }
    }

    /// Lets everything come to its end, watches it for a while, and checks it.
    fn end(&self, random: &SimRandom) {
        self.run_until(random, |table, ledger| is_at_rest(ledger, table, Some(BYSTANDER)));
        self.clusters.answer();
        let (sender, bystanders) = (PlatformSender(Arc::clone(&self.executor)), self.bystanders());
        self.runtime.run(async move {
            for instance in &bystanders {
                sender.delete(instance).await;
            }
        });
        self.run_until(random, |table, ledger| is_at_rest(ledger, table, None));
        let end = self.runtime.elapsed();
        let runtime = self.runtime.clone();
        self.runtime.run(async move { runtime.sleep(LINGER_MS).await });
        if !is_at_rest(&self.ledger, &self.table, None) {
            self.ledger.report_violation("it comes to life again".to_owned());
        }
        checks::all(self, end);
    }

    /// Begins the schedule.
    fn sweep(&self) {
        let (runtime, functions, faults) =
            (self.runtime.clone(), Arc::clone(&self.functions), Arc::clone(&self.faults));
        let (table, ledger) = (Arc::clone(&self.table), Arc::clone(&self.ledger));
        let lost = Arc::clone(&self.lost_sweeps);
        self.runtime.spawn(async move {
            let mut passed_over: BTreeMap<(Timestamp, DueItem), u32> = BTreeMap::new();
            loop {
                runtime.sleep(SWEEP_MS).await;
                let begun = runtime.now();
                // A sweep that died is followed by the next one.
                if faults.should_inject(FaultKind::SweepMissed) || functions.sweep().await.is_err() {
                    lost.lock().expect("no panic while it is held").push(begun);
                    continue;
                }
                let due = table.due_since(begun);
                passed_over = due
                    .into_iter()
                    .map(|(one, is_indexed)| {
                        let sweeps = passed_over.get(&one).copied().unwrap_or(0) + u32::from(is_indexed);
                        (one, sweeps)
                    })
                    .collect();
                for ((since, due), _) in passed_over.iter().filter(|(_, sweeps)| **sweeps == SWEEPS) {
                    ledger.report_violation(format!("{SWEEPS} sweeps have passed over {due:?}, due since {since:?}"));
                }
            }
        });
    }

    fn report(&self) -> SimReport {
        let state = self.ledger.state();
        let mut story: Vec<(u64, String)> = state.trace.clone();
        story.extend(self.table.state().writes.iter().cloned());
        story.sort_by_key(|(at, _)| *at);
        SimReport {
            instances: self.instances.len() as u64,
            injected: self.faults.injected(),
            injection_points: self.faults.injection_points(),
            notifications: state.notifications.iter().map(|told| told.kind.clone()).collect(),
            attempts: state.attempts.len() as u64,
            invocations: self.functions.invocations(),
            violations: state.violations.clone(),
            trace: story.into_iter().map(|(at, line)| format!("{at:>9} {line}")).collect(),
        }
    }
}

fn stuck(table: &SimTable) -> Vec<String> {
    let state = table.state();
    let stuck = state.targets.values().filter(|target| target.phase == TargetPhase::Stuck);
    stuck.map(|target| target.name.clone()).collect()
}

/// Returns for how many milliseconds the most urgent thing is due, without those of sweeps that were lost since.
fn waited(table: &SimTable, lost: &Mutex<Vec<Timestamp>>) -> u64 {
    let overdue = table.overdue();
    let lost = lost.lock().expect("no panic while it is held");
    let since = lost.iter().rev().take_while(|at| table.now().since(**at).0 <= overdue);
    overdue.saturating_sub(since.count() as u64 * SWEEP_MS)
}

/// Returns whether all instances are over but those of targets whose names begin as `without` says.
fn is_at_rest(ledger: &SimLedger, table: &SimTable, without: Option<&str>) -> bool {
    let is_without = |target: &TargetHead| without.is_some_and(|name| target.name.starts_with(name));
    let gone = |target: &TargetHead| target.phase == TargetPhase::Gone && target.waiting.is_none();
    let is_over = |target: &TargetHead| gone(target) || is_without(target);
    table.state().targets.values().all(is_over) && is_quiet_without(ledger, table, without)
}

/// Returns true if nothing runs, and the platform knows what it has to.
fn is_quiet(ledger: &SimLedger, table: &SimTable) -> bool {
    is_quiet_without(ledger, table, None)
}

fn is_quiet_without(ledger: &SimLedger, table: &SimTable, without: Option<&str>) -> bool {
    // What an open run holds back is told when it is closed.
    let told = |target: &TargetHead| target.notification.as_ref().is_none_or(|tell| tell.delivered_by.is_some());
    table.state().targets.values().all(told) && table.is_at_rest_without(without) && ledger.state().active == 0
}
