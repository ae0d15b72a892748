//! A world with many targets, from its seed to what was wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ebb_engine::TargetPhase;
use ebb_flow::{Env, Warm};
use ebb_spec::plan::Plan;
use ebb_store::{PluginItem, TargetHead};

use super::super::functions::Hardship;
use super::super::{Clock, Functions, Mishap, Mishaps, Random, Runtime, Spared, Table, settings};
use super::books::{Books, Bounds};
use super::cast::{self, Pace};
use super::design::Design;
use super::queue::{Counted, Queue};
use super::script::{KIND, Life, Sender};
use super::work::Work;
use super::{checks, outside, relay};

/// The schedule's interval.
const SWEEP_MS: u64 = 60_000;
/// The world is looked at this often.
const LOOK_MS: u64 = 5_000;
/// An operator looks at what is stuck this often.
const RESCUE_MS: u64 = 120_000;
/// After this much virtual time a world that has not come to rest is given up.
const PATIENCE_MS: u64 = 24 * 3_600_000;
/// Nothing is due for longer, whatever else hangs or dies; the schedule itself leaves sweeps out.
const LATEST_MS: u64 = 30 * 60_000;
/// How long it is watched after the end: longer than the queue can hold a message.
pub(super) const LINGER_MS: u64 = 1_800_000;
/// A function's timeout; with transport and skew less than [`LANDING_MS`].
const FUNCTION_MS: u64 = 28_000;
const LANDING_MS: u64 = 30_000;
/// Names of targets in a world.
const TARGETS: u64 = 5;

/// What a world came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Lives that the platform asked for.
    pub lives: u64,
    /// How often each kind of mishap happened, in the order of [`Mishap::ALL`].
    pub reached: Vec<u64>,
    /// How often each could have happened.
    pub chances: Vec<u64>,
    /// What the platform was told, however often.
    pub told: BTreeSet<String>,
    /// Tries that were begun outside.
    pub tries: u64,
    /// Invocations of the functions.
    pub invocations: u64,
    /// What must not be; empty for a world that is as it should be.
    pub wrong: Vec<String>,
    /// What happened, for people; if it was asked for.
    pub story: Vec<String>,
}

/// Whether a story is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Yes.
    Kept,
    /// No.
    Off,
}

/// Everything of a world.
pub(super) struct World {
    pub(super) runtime: Runtime,
    pub(super) table: Arc<Table>,
    pub(super) functions: Arc<Functions>,
    pub(super) books: Arc<Books>,
    pub(super) mishaps: Arc<Mishaps>,
    pub(super) counted: Arc<Counted>,
    pub(super) lives: Vec<Life>,
    pub(super) designs: Vec<Design>,
    plans: Mutex<BTreeMap<String, Arc<Plan>>>,
    pace: Pace,
    work: Arc<Work>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.functions.surround(None);
        self.runtime.clear();
    }
}

/// Lets the world of a seed happen, without the mishaps that it is spared.
pub fn happen(seed: u64, spared: &Spared, trace: Trace) -> Report {
    let random = Random::new(seed ^ 0x5eed);
    let designs: Vec<Design> = (0..1 + random.below(2)).map(|_| Design::random(random.bits())).collect();
    let mut world = World::new(designs, Mishaps::new(seed, spared), seed, Pace::Random, trace);
    world.populate(&random, seed);
    world.play(&random);
    world.report()
}

/// Lets one target of a design live from its creation to its end, with these mishaps. Its units take their time one
/// after the other.
pub fn live(design: &Design, name: &str, mishaps: Mishaps, trace: Trace) -> Report {
    let mut world = World::new(vec![design.clone()], mishaps, 1, Pace::Steady, trace);
    let (document, changed) = (design.document.replace("NAME", name), String::new());
    world.cast(name, "uid-1", &document, 1);
    let life = Life { name: name.to_owned(), uid: "uid-1".to_owned(), document, changed, expires: false };
    world.lives.push(life.clone());
    world.table.suffer(Arc::clone(&world.mishaps));
    world.sweep();
    let sender = Sender(Arc::clone(&world.work));
    let (platform, created) = (sender.clone(), life.clone());
    world.runtime.run(async move { platform.create(&created).await });
    world.rest(&Random::new(1), |table, books| {
        let over = matches!(phase(table), Some(TargetPhase::Ready | TargetPhase::Failed));
        over && is_quiet(books, table)
    });
    let setup = phase(&world.table);
    if setup != Some(TargetPhase::Ready) {
        world.books.blame(format!("its setup has ended as {setup:?}"));
    }
    world.runtime.run(async move { sender.delete(&life).await });
    world.end(&Random::new(1));
    world.report()
}

/// The phase of the only target.
fn phase(table: &Table) -> Option<TargetPhase> {
    table.state().targets.values().next().map(|target| target.phase)
}

impl World {
    fn new(designs: Vec<Design>, mishaps: Mishaps, seed: u64, pace: Pace, trace: Trace) -> Self {
        let runtime = Runtime::default();
        let table = Arc::new(Table::new(runtime.clone()));
        if trace == Trace::Off {
            table.be_silent();
        }
        let bounds = Bounds { landing: LANDING_MS, sending: settings(LANDING_MS).sending().0 };
        let books = Arc::new(Books::new(runtime.clone(), Arc::clone(&table), bounds, trace == Trace::Kept));
        let functions = Arc::new(Functions::new(runtime.clone(), Arc::clone(&table)));
        let mishaps = Arc::new(mishaps);
        let work = Arc::new(Work {
            runtime: runtime.clone(),
            functions: Arc::clone(&functions),
            books: Arc::clone(&books),
            mishaps: Arc::clone(&mishaps),
        });
        for (name, version, document) in designs.iter().flat_map(|design| &design.plugins) {
            let plugin = PluginItem {
                name: name.clone(),
                version: version.clone(),
                dialect: "ebb".to_owned(),
                digest: ebb_wire::id::digest(document.as_bytes()),
                document: document.clone(),
                created: runtime.now(),
            };
            table.state().plugins.insert((name.clone(), version.clone()), plugin);
        }
        let counted = Arc::<Counted>::default();
        let (stands, servers) = (relay::Shared::default(), outside::Shared::default());
        let away_until = Arc::<Mutex<u64>>::default();
        let (own, count) = (Arc::clone(&work), Arc::clone(&counted));
        let store = Arc::clone(&table);
        let instance = move || Env {
            store: store.clone(),
            clock: Arc::new(Clock(own.runtime.clone())),
            random: Arc::new(Random::new(seed ^ own.functions.invocations())),
            relay: Arc::new(relay::Relay::new(Arc::clone(&own), &stands)),
            outside: Arc::new(outside::Outside::new(Arc::clone(&own), &servers)),
            platform: Arc::new(outside::Platform::new(&own, &away_until)),
            queue: Arc::new(Queue {
                runtime: own.runtime.clone(),
                functions: Arc::clone(&own.functions),
                books: Arc::clone(&own.books),
                mishaps: Arc::clone(&own.mishaps),
                counted: Arc::clone(&count),
            }),
            settings: settings(LANDING_MS),
            warm: Warm::default(),
        };
        functions.endure(Hardship {
            timeout: FUNCTION_MS,
            mishaps: Arc::clone(&mishaps),
            instance: Box::new(instance),
        });
        let (lives, plans) = (Vec::new(), Mutex::default());
        Self { runtime, table, functions, books, mishaps, counted, lives, designs, plans, pace, work }
    }

    /// Makes up the lives, and tells the world outside who is who.
    fn populate(&mut self, random: &Random, seed: u64) {
        for target in 0..1 + random.below(TARGETS) {
            let name = format!("t{target}");
            for life in 0..1 + random.below(3) {
                let uid = format!("{name}-{life}");
                let expires = random.below(6) == 0;
                let design = &self.designs[random.below(self.designs.len() as u64) as usize];
                let plain = design.document.replace("NAME", &name);
                let ttl = plain.replace("resources:", &format!("ttl: {}m\nresources:", 2 + life));
                let document = if expires { ttl } else { plain.clone() };
                let changed = plain.replace("resources:", "ttl: 9h\nresources:");
                self.cast(&name, &uid, &document, seed);
                self.lives.push(Life { name: name.clone(), uid, document, changed, expires });
            }
        }
    }

    /// Tells the world outside who is who in a life.
    fn cast(&self, name: &str, uid: &str, document: &str, seed: u64) {
        match self.plan(name, document) {
            Ok(plan) => {
                let mut state = self.books.state();
                for part in cast::parts(&plan, KIND, name, uid, seed, self.pace) {
                    state.parts.insert(part.key.clone(), part);
                }
            }
            Err(wrong) => self.books.blame(format!("the document of {uid} is not taken: {wrong}")),
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
            ebb_flow::receive::compile_document(
                table.as_ref(),
                &name,
                &document,
                ebb_flow::changes::PinnedVersions::Latest,
            )
            .await
        });
        let Some(Ok(Ok((plan, _)))) = compiled else { return Err(format!("{compiled:?}")) };
        let plan = Arc::new(plan);
        self.plans.lock().expect("no panic while it is held").insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    fn play(&self, random: &Random) {
        self.table.suffer(Arc::clone(&self.mishaps));
        if random.below(2) == 0 {
            self.table.slow_down(random.bits(), random.below(40));
        }
        let sender = Sender(Arc::clone(&self.work));
        let names: BTreeSet<String> = self.lives.iter().map(|life| life.name.clone()).collect();
        for name in &names {
            let lives = self.lives.iter().filter(|life| life.name == *name).cloned().collect();
            self.runtime.spawn(sender.clone().play(lives, Random::new(random.bits())));
        }
        if random.below(2) == 0 {
            let names = names.iter().cloned().collect();
            self.runtime.spawn(sender.clone().operate(names, Random::new(random.bits())));
        }
        self.sweep();
        self.end(random);
    }

    /// Lets time pass until `is_over`; an operator sees to what is stuck.
    fn rest(&self, random: &Random, is_over: impl Fn(&Table, &Books) -> bool + Send + 'static) {
        let (runtime, books, table) =
            (self.runtime.clone(), Arc::clone(&self.books), Arc::clone(&self.table));
        let (sender, random, pace) = (Sender(Arc::clone(&self.work)), Random::new(random.bits()), self.pace);
        let overdue = Arc::<AtomicU64>::default();
        let worst = Arc::clone(&overdue);
        let rested = self.runtime.run(async move {
            // The platform begins at the same time.
            runtime.sleep(1).await;
            let mut rescue = RESCUE_MS;
            while !is_over(&table, &books) {
                worst.fetch_max(table.overdue(), Ordering::Relaxed);
                if runtime.elapsed() >= PATIENCE_MS {
                    return false;
                }
                if runtime.elapsed() >= rescue {
                    rescue = runtime.elapsed() + RESCUE_MS;
                    let stuck = stuck(&table);
                    if !stuck.is_empty() {
                        books.mend();
                    }
                    for name in stuck {
                        match pace {
                            Pace::Random => sender.verb(&name, &random).await,
                            Pace::Steady => sender.retry(&name).await,
                        }
                    }
                }
                runtime.sleep(LOOK_MS).await;
            }
            true
        });
        let overdue = overdue.load(Ordering::Relaxed);
        if overdue > LATEST_MS {
            self.books.blame(format!("something was due for {overdue} ms"));
        }
        if rested != Some(true) {
            self.books.blame("it does not come to rest".to_owned());
        }
    }

    /// Lets everything come to its end, watches it for a while, and checks it.
    fn end(&self, random: &Random) {
        self.rest(random, |table, books| is_at_rest(books, table));
        let end = self.runtime.elapsed();
        let runtime = self.runtime.clone();
        self.runtime.run(async move { runtime.sleep(LINGER_MS).await });
        if !is_at_rest(&self.books, &self.table) {
            self.books.blame("it comes to life again".to_owned());
        }
        checks::all(self, end);
    }

    /// Begins the schedule.
    fn sweep(&self) {
        let (runtime, functions, mishaps) =
            (self.runtime.clone(), Arc::clone(&self.functions), Arc::clone(&self.mishaps));
        self.runtime.spawn(async move {
            loop {
                runtime.sleep(SWEEP_MS).await;
                // A sweep that died is followed by the next one.
                if !mishaps.strikes(Mishap::SweepMissed) {
                    functions.sweep().await.ok();
                }
            }
        });
    }

    fn report(&self) -> Report {
        let state = self.books.state();
        let mut story: Vec<(u64, String)> = state.story.clone();
        story.extend(self.table.state().writes.iter().cloned());
        story.sort_by_key(|(at, _)| *at);
        Report {
            lives: self.lives.len() as u64,
            reached: self.mishaps.reached(),
            chances: self.mishaps.chances(),
            told: state.told.iter().map(|told| told.kind.clone()).collect(),
            tries: state.tries.len() as u64,
            invocations: self.functions.invocations(),
            wrong: state.wrong.clone(),
            story: story.into_iter().map(|(at, line)| format!("{at:>9} {line}")).collect(),
        }
    }
}

fn stuck(table: &Table) -> Vec<String> {
    let state = table.state();
    let stuck = state.targets.values().filter(|target| target.phase == TargetPhase::Stuck);
    stuck.map(|target| target.name.clone()).collect()
}

fn is_at_rest(books: &Books, table: &Table) -> bool {
    let gone = |target: &TargetHead| target.phase == TargetPhase::Gone && target.waiting.is_none();
    table.state().targets.values().all(gone) && is_quiet(books, table)
}

/// Whether nothing runs, and the platform knows what it has to.
fn is_quiet(books: &Books, table: &Table) -> bool {
    // What an open run holds back is told when it is closed.
    let told = |target: &TargetHead| target.tell.as_ref().is_none_or(|tell| tell.held_by.is_some());
    table.state().targets.values().all(told) && table.is_at_rest() && books.state().active == 0
}
