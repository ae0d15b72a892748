//! Explores all orders of steps.

use std::collections::HashMap;

use super::*;

/// Maximum length of a path. A longer one counts as endless.
const LONGEST: usize = 3_000;

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

#[derive(Clone, Debug)]
pub struct Violation {
    pub promise: String,
    pub schedule: Vec<String>,
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
    let mut searches = (0..most).map(|unusual| search(case, unusual, paths));
    searches.find(|explored| explored.violation.is_some()).unwrap_or_else(|| search(case, most, paths))
}

fn search(case: &ModelCase, most: u32, paths: usize) -> ExploreReport {
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
        let place = ModelSimulation::new(&self.documents, &self.case.graph, &self.case.budget);
        let mut schedule = has_schedule.then(Vec::new);
        let wrong = self.walk(&place, schedule.as_mut());
        self.explored.longest = self.explored.longest.max(self.path.len());
        self.explored.violation = wrong.map(|promise| {
            let unusual = self.path.iter().map(|fork| u32::from(fork.taken > 0)).sum();
            Violation { promise, schedule: schedule.unwrap_or_default(), unusual }
        });
    }

    /// Steps to the end of the path, or to a known state. Returns the violation.
    fn walk(&mut self, place: &ModelSimulation, mut schedule: Option<&mut Vec<String>>) -> Option<String> {
        let full = self.case.budget;
        let (mut budget, given) = (full, self.path.len());
        let (mut platform, mut unusual) = (PlatformState::default(), 0);
        let mut order = ActorOrder::default();
        for depth in 0..LONGEST {
            expire(place);
            place.runtime.settle();
            place.collect(&mut platform);
            let is_new = depth >= given;
            if is_new && let Some(wrong) = check::now(place, &platform, budget == full) {
                return Some(wrong);
            }
            let bounded = self.most < WHOLE;
            if is_new && schedule.is_none() {
                let left = self.most - unusual;
                let state = state(place, &budget, &platform, bounded.then_some(&order));
                if self.seen.get(&state).is_some_and(|&known| known >= left) {
                    return None;
                }
                self.seen.insert(state, left);
            }
            let (free, mut choices) = place.choices(&budget, &platform);
            order.sort(place, &mut choices[..free]);
            if choices.is_empty() {
                self.explored.ends += 1;
                return check::end(place, &platform);
            }
            if is_new {
                let open = if unusual < self.most { choices.len() } else { 1 };
                self.path.push(ChoicePoint { taken: 0, choices: open });
            }
            let taken = self.path[depth].taken;
            let choice = choices[taken].clone();
            if let Some(schedule) = &mut schedule {
                schedule.push(place.describe(&choice));
            }
            unusual += u32::from(taken > 0);
            if bounded && taken < free {
                order.put_off(place, &choices[..taken]);
            }
            place.happen(&choice, taken < free, &mut budget, &mut platform);
            if let StepChoice::Tick(at) = choice {
                place.runtime.run(place.runtime.sleep(at.saturating_sub(place.runtime.elapsed())));
            }
        }
        Some("it does not end".to_owned())
    }
}

/// Removes requests that cannot arrive any more.
fn expire(place: &ModelSimulation) {
    let now = place.runtime.elapsed();
    place.environment.state().in_flight.retain(|_, flight| {
        let may_arrive = flight.until >= now;
        if !may_arrive {
            flight.answer(None);
        }
        may_arrive
    });
}

fn state(place: &ModelSimulation, budget: &FaultBudget, platform: &PlatformState, order: Option<&ActorOrder>) -> u64 {
    let now = place.runtime.elapsed();
    let table = {
        let table = place.table.state();
        digest(&(&table.heads, &table.records, &table.accepted, &table.targets, &table.tombstones))
    };
    let points = place.gates.waiting();
    let running = lock(&place.running).clone();
    let outer = place.environment.state();
    let tasks = running.iter().map(|(task, invocation)| {
        // The content of a delivery counts, not its number.
        let (mail, other) = match invocation {
            ModelInvocation::Deliver(number) => (outer.deliveries.get(number), None),
            other => (None, Some(other)),
        };
        let own = points.iter().filter(|(_, point)| point.task == *task);
        let own: Vec<_> = own.map(|(_, point)| (point.kind, &point.what)).collect();
        let is_after_stop = outer.stopped_by.is_some_and(|newest| *task > newest);
        digest(&(mail, other, place.gates.seen(*task), own, is_after_stop, outer.promised_before(*task)))
    });
    let flights = outer.in_flight.values().map(|flight| {
        let by = flight.is_awaited().then(|| place.gates.seen(flight.by));
        digest(&(&flight.request, flight.until, by))
    });
    let mail = outer.deliveries.iter().map(|(number, mail)| {
        let taken = running.values().any(|one| *one == ModelInvocation::Deliver(*number));
        match mail {
            PendingDelivery::Callback { token, body, of, .. } => digest(&(token, body, of, taken)),
            PendingDelivery::Message { message, not_before } => {
                digest(&(message, not_before.saturating_sub(now), taken))
            }
        }
    });
    let (stopped, in_vain) = (outer.stopped_by.is_some(), outer.asked_in_vain);
    digest(&(
        (now, budget, platform, order, table),
        (sorted(tasks), sorted(flights), sorted(mail)),
        (&outer.tasks, &outer.objects, &outer.notifications, &outer.posted, stopped, in_vain),
        outer.promises(|task| running.contains_key(&task)),
    ))
}

fn sorted(hashes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut hashes: Vec<u64> = hashes.collect();
    hashes.sort_unstable();
    hashes
}
