//! Explores all orders of steps.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use super::cases::{ModelCase, WHOLE};
use super::check;
use super::choice::{FaultBudget, PlatformState};
use super::environment::{PendingDelivery, unanswered};
use super::gates::DebugDigest;
use super::order::ActorOrder;
use super::simulation::{ModelDocuments, ModelSimulation};

/// Maximum length of a path. A longer one counts as endless.
const LONGEST: usize = 3_000;

/// The results of an exploration.
#[derive(Clone, Debug, Default)]
pub struct ExploreReport {
    pub states: usize,
    /// Explored paths. Each leads to its end or to a known state.
    pub paths: usize,
    /// Paths to the end of the instance.
    pub ends: usize,
    pub longest: usize,
    pub violation: Option<Violation>,
    /// True if all orders were explored, false if the limit of paths was reached.
    pub complete: bool,
}

/// A violated check and its schedule.
#[derive(Clone, Debug)]
pub struct Violation {
    pub promise: String,
    pub schedule: Vec<String>,
    /// The number of unusual steps.
    pub unusual: u32,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} ({} steps, {} of them unusual)", self.promise, self.schedule.len(), self.unusual)?;
        self.schedule.iter().try_for_each(|step| write!(out, "\n    {step}"))
    }
}

/// A position of the current path.
#[derive(Clone, Copy, Debug)]
struct ChoicePoint {
    taken: usize,
    choices: usize,
}

struct PathSearch<'a> {
    case: &'a ModelCase,
    documents: Arc<ModelDocuments>,
    /// Known states, each with the maximum number of remaining unusual steps.
    seen: HashMap<u64, u32>,
    /// Maximum number of unusual steps of a path.
    most: u32,
    path: Vec<ChoicePoint>,
    explored: ExploreReport,
}

/// Explores all orders of the steps of a case within its limit of unusual steps, up to `paths` paths. Stops at the
/// first violation.
pub fn explore(case: &ModelCase, paths: usize) -> ExploreReport {
    search(case, case.unusual, paths)
}

/// Searches for a violation with the fewest unusual steps, at most `most`.
pub(super) fn shortest(case: &ModelCase, most: u32, paths: usize) -> ExploreReport {
    let mut explored = ExploreReport::default();
    for unusual in 0..=most {
        explored = search(case, unusual, paths);
        if explored.violation.is_some() {
            break;
        }
    }
    explored
}

fn search(case: &ModelCase, most: u32, paths: usize) -> ExploreReport {
    ebb_engine::state::set_units_per_item(case.graph.per_item);
    let documents = Arc::new(ModelDocuments::new(&case.graph));
    let explored = ExploreReport::default();
    let mut search = PathSearch { case, documents, seen: HashMap::new(), most, path: Vec::new(), explored };
    loop {
        search.go(false);
        search.explored.paths += 1;
        search.explored.states = search.seen.len();
        if search.explored.violation.is_some() {
            // Repeats the path to describe its steps.
            search.go(true);
            break;
        }
        if search.explored.paths >= paths {
            break;
        }
        if !search.back() {
            search.explored.complete = true;
            break;
        }
    }
    search.explored
}

impl PathSearch<'_> {
    /// Selects the next path. Returns false if there is none.
    fn back(&mut self) -> bool {
        while let Some(fork) = self.path.last_mut() {
            if fork.taken + 1 < fork.choices {
                fork.taken += 1;
                return true;
            }
            self.path.pop();
        }
        false
    }

    /// Follows the current path and continues with usual steps. With a schedule, describes each step.
    fn go(&mut self, has_schedule: bool) {
        let place = Arc::new(ModelSimulation::new(&self.documents, &self.case.graph, &self.case.budget));
        let given = std::mem::take(&mut self.path);
        let walk = Arc::new(Mutex::new(PathWalk {
            given,
            path: Vec::new(),
            most: self.most,
            seen: std::mem::take(&mut self.seen),
            schedule: has_schedule.then(Vec::new),
            wrong: None,
            ended: false,
        }));
        let (simulation, walker, budget) = (Arc::clone(&place), Arc::clone(&walk), self.case.budget);
        place.runtime.run(async move { step_all(&simulation, &walker, budget).await });
        drop(place);
        let walk = Arc::into_inner(walk).expect("the walk is over").into_inner().expect("it did not panic");
        self.path = walk.path;
        self.seen = walk.seen;
        self.explored.longest = self.explored.longest.max(self.path.len());
        self.explored.ends += usize::from(walk.ended);
        if let Some(what) = walk.wrong {
            let unusual = self.path.iter().filter(|fork| fork.taken > 0).count();
            let unusual = u32::try_from(unusual).unwrap_or(u32::MAX);
            self.explored.violation =
                Some(Violation { promise: what, schedule: walk.schedule.unwrap_or_default(), unusual });
        }
    }
}

struct PathWalk {
    given: Vec<ChoicePoint>,
    path: Vec<ChoicePoint>,
    most: u32,
    seen: HashMap<u64, u32>,
    /// Descriptions of the steps, if requested.
    schedule: Option<Vec<String>>,
    wrong: Option<String>,
    ended: bool,
}

async fn step_all(place: &Arc<ModelSimulation>, walk: &Arc<Mutex<PathWalk>>, mut budget: FaultBudget) {
    let full = budget;
    let mut platform = PlatformState::default();
    let mut unusual = 0;
    let mut order = ActorOrder::default();
    loop {
        expire(place);
        place.runtime.idle().await;
        place.collect(&mut platform);
        let next = {
            let mut walk = walk.lock().expect("no panic while it is held");
            let depth = walk.path.len();
            let new = depth >= walk.given.len();
            if new && let Some(wrong) = check::now(place, &platform, budget == full) {
                walk.wrong = Some(wrong);
                return;
            }
            if depth >= LONGEST {
                walk.wrong = Some("it does not end".to_owned());
                return;
            }
            let bounded = walk.most < WHOLE;
            if new && walk.schedule.is_none() {
                let left = walk.most - unusual;
                match walk.seen.entry(state(place, &budget, &platform, bounded.then_some(&order))) {
                    Entry::Occupied(seen) if *seen.get() >= left => return,
                    Entry::Occupied(mut seen) => {
                        seen.insert(left);
                    }
                    Entry::Vacant(new) => {
                        new.insert(left);
                    }
                }
            }
            let (free, mut choices) = place.choices(&budget, &platform);
            order.sort(place, &mut choices[..free]);
            if choices.is_empty() {
                walk.ended = true;
                walk.wrong = check::end(place, &platform);
                return;
            }
            let open = if unusual < walk.most { choices.len() } else { 1 };
            let fork = walk.given.get(depth).copied().unwrap_or(ChoicePoint { taken: 0, choices: open });
            let choice = choices[fork.taken].clone();
            if let Some(schedule) = &mut walk.schedule {
                schedule.push(place.describe(&choice));
            }
            walk.path.push(fork);
            unusual += u32::from(fork.taken > 0);
            if bounded && fork.taken < free {
                order.put_off(place, &choices[..fork.taken]);
            }
            place.happen(&choice, fork.taken < free, &mut budget, &mut platform);
            choice
        };
        if let super::choice::StepChoice::Tick(at) = next {
            let now = place.runtime.elapsed();
            place.runtime.sleep(at.saturating_sub(now)).await;
        }
    }
}

/// Removes requests that cannot arrive any more.
fn expire(place: &ModelSimulation) {
    let now = place.runtime.elapsed();
    place.environment.state().in_flight.retain(|_, flight| {
        let may_arrive = flight.until >= now;
        if !may_arrive {
            flight.answer(unanswered(&flight.request));
        }
        may_arrive
    });
}

/// Returns a hash of the state.
fn state(place: &ModelSimulation, budget: &FaultBudget, platform: &PlatformState, order: Option<&ActorOrder>) -> u64 {
    let mut digest = DebugDigest::default();
    digest.add(&(place.runtime.elapsed(), budget, platform));
    digest.add(&order.map(ActorOrder::who));
    {
        let table = place.table.state();
        digest.add(&(&table.heads, &table.records, &table.accepted, &table.targets, &table.tombstones));
    }
    let points = place.gates.waiting();
    let running = place.running.lock().expect("no panic while it is held").clone();
    let outer = place.environment.state();
    let mut tasks: Vec<u64> = Vec::new();
    for (task, invocation) in &running {
        let mut one = DebugDigest::default();
        match invocation {
            super::simulation::ModelInvocation::Deliver(number) => one.add(&outer.deliveries.get(number)),
            other => one.add(other),
        }
        one.add(&place.gates.seen(*task));
        for (_, point) in points.iter().filter(|(_, point)| point.task == *task) {
            one.add(&(point.kind, &point.what));
        }
        one.add(&outer.stopped_by.is_some_and(|newest| *task > newest));
        one.add(&outer.promised_before(*task));
        tasks.push(one.end());
    }
    tasks.sort_unstable();
    let mut flights: Vec<u64> = outer
        .in_flight
        .values()
        .map(|flight| {
            let mut one = DebugDigest::default();
            let by = flight.is_awaited().then(|| place.gates.seen(flight.by));
            one.add(&(&flight.request, flight.until, by));
            one.end()
        })
        .collect();
    flights.sort_unstable();
    let mut mail: Vec<u64> = outer
        .deliveries
        .iter()
        .map(|(number, mail)| {
            let taken = running.values().any(|one| *one == super::simulation::ModelInvocation::Deliver(*number));
            let mut one = DebugDigest::default();
            match mail {
                PendingDelivery::Callback { token, body, of, .. } => one.add(&(token, body, of, taken)),
                PendingDelivery::Message { message, not_before } => {
                    let left = not_before.saturating_sub(place.runtime.elapsed());
                    one.add(&(message, left, taken));
                }
            }
            one.end()
        })
        .collect();
    mail.sort_unstable();
    digest.add(&(tasks, flights, mail));
    digest.add(&(
        &outer.tasks,
        &outer.objects,
        &outer.notifications,
        &outer.posted,
        outer.stopped_by.is_some(),
        outer.asked_in_vain,
    ));
    digest.add(&outer.promises(|task| running.contains_key(&task)));
    digest.end()
}
