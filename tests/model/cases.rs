//! The cases of the model: graphs with budgets of faults.

use super::choice::FaultBudget;
use super::simulation::{ModelGraph, ModelUpdate, OutputMode};
use crate::simulation::UnitAction;

/// A graph with a budget of faults.
#[derive(Clone, Debug)]
pub struct ModelCase {
    pub name: String,
    pub graph: ModelGraph,
    /// The faults of one path.
    pub budget: FaultBudget,
    /// Maximum number of unusual steps of a path (see `order.rs`). `u32::MAX` has no limit.
    pub unusual: u32,
}

impl ModelCase {
    /// Changes the graph.
    pub(super) fn with(mut self, change: impl FnOnce(&mut ModelGraph)) -> Self {
        change(&mut self.graph);
        self
    }
}

pub(super) const WHOLE: u32 = u32::MAX;
/// Maximum number of unusual steps in graphs that are too large to be explored completely.
const FEW: u32 = 2;

/// The status of a gateway whose server did not respond in time.
pub(super) const GATEWAY: u16 = 504;
const KINDS: [UnitAction; 3] = [UnitAction::Pod, UnitAction::Once, UnitAction::Later];
/// No faults, and at most two concurrent invocations.
pub(super) const CALM: FaultBudget = FaultBudget {
    deaths: 0,
    losses: 0,
    kills: 0,
    drops: 0,
    duplicates: 0,
    contradictions: 0,
    failures: 0,
    sweeps: 0,
    ticks: 0,
    deletions: 0,
    updates: 0,
    concurrent: 1,
};

pub(super) fn case(name: &str, runs: UnitAction, reads: &[&[usize]], budget: FaultBudget) -> ModelCase {
    let graph = ModelGraph {
        units: reads.iter().map(|reads| (runs, reads.to_vec())).collect(),
        idempotent: true,
        attempts: 2,
        outputs: OutputMode::Id,
        slots: None,
        max_dispatches: None,
        gateway: None,
        unreachable: None,
        updates: Vec::new(),
    };
    let units = match runs {
        UnitAction::Pod => "pods",
        UnitAction::Later => "webhooks that call back",
        _ => "webhooks that answer at once",
    };
    ModelCase { name: format!("{name}, {units}"), graph, budget, unusual: WHOLE }
}

pub(super) const ONE: &[&[usize]] = &[&[]];
pub(super) const CHAIN: &[&[usize]] = &[&[], &[0]];
const FAN_IN: &[&[usize]] = &[&[], &[], &[0, 1]];
pub(super) const TWO: &[&[usize]] = &[&[], &[]];
const DIAMOND: &[&[usize]] = &[&[], &[0], &[0], &[1, 2]];

/// Returns the cases of the tests: small graphs with all orders, and larger ones with few unusual steps.
pub fn cases() -> Vec<ModelCase> {
    let small = all().into_iter().filter(|(large, _)| !large).map(|(_, case)| case);
    small.chain(with_few()).chain(hurried()).chain(scarce()).chain(updated()).collect()
}

fn with_few() -> impl Iterator<Item = ModelCase> {
    let faults = [
        ("deleted", FaultBudget { deletions: 1, ..CALM }),
        ("a death, deleted", FaultBudget { deaths: 1, deletions: 1, ..CALM }),
    ];
    let shapes = [("fan-in", FAN_IN), ("diamond", DIAMOND)];
    let all = KINDS.into_iter().flat_map(move |runs| {
        shapes.into_iter().flat_map(move |shape| faults.into_iter().map(move |fault| (runs, shape, fault)))
    });
    all.map(|(runs, (shape, reads), (what, budget))| {
        let name = format!("{shape}: {what}, {FEW} unusual steps");
        ModelCase { unusual: FEW, ..case(&name, runs, reads, budget) }
    })
}

/// Returns large cases with a limit of unusual steps.
fn hurried() -> impl Iterator<Item = ModelCase> {
    const UNUSUAL: u32 = 4;
    [UnitAction::Pod, UnitAction::Later].into_iter().map(|runs| {
        let name = format!("one: a hurry, a sweep, {UNUSUAL} unusual steps");
        let budget = FaultBudget { ticks: 1, sweeps: 1, ..CALM };
        ModelCase { unusual: UNUSUAL, ..case(&name, runs, ONE, budget) }
    })
}

/// Returns cases of two independent units with limited resources.
fn scarce() -> Vec<ModelCase> {
    use UnitAction::{Once, Pod};
    let two = |name: &str, runs, budget| {
        let case = case(&format!("two, {name}"), runs, TWO, budget);
        ModelCase { unusual: FEW, ..case }
    };
    let (delete, drop) = (FaultBudget { deletions: 1, ..CALM }, FaultBudget { drops: 1, ..CALM });
    let sends_one = |graph: &mut ModelGraph| graph.max_dispatches = Some(1);
    let is_silent = |graph: &mut ModelGraph| graph.unreachable = Some(1);
    vec![
        two("one at a time: deleted", Once, delete).with(sends_one),
        two("one at a time: a lost message", Pod, drop).with(sends_one),
        two("one at a time: a lost message", Once, drop).with(sends_one),
        two("one place: deleted", Pod, delete).with(|graph| graph.slots = Some(1)),
        two("one of them in a silent cluster", Pod, CALM).with(is_silent),
        two("one of them in a silent cluster: a sweep", Pod, FaultBudget { sweeps: 1, ..CALM }).with(is_silent),
        two("behind a gateway: a lost answer, deleted", Once, FaultBudget { losses: 1, ..delete })
            .with(|graph| graph.gateway = Some(GATEWAY)),
    ]
}

/// Returns a case in which the document of the target is updated.
pub(super) fn update_case(
    name: &str,
    runs: UnitAction,
    reads: &[&[usize]],
    updates: &[ModelUpdate],
    budget: FaultBudget,
) -> ModelCase {
    case(name, runs, reads, budget).with(|graph| graph.updates = updates.to_vec())
}

/// Returns cases in which the document of the target is updated.
fn updated() -> Vec<ModelCase> {
    let changes =
        [("added", ModelUpdate::Added), ("removed", ModelUpdate::Removed), ("replaced", ModelUpdate::Replaced)];
    let mut cases = Vec::new();
    let mut add = |unusual: u32, name: &str, runs, reads, updates: &[ModelUpdate], budget| {
        let name = format!("update, {name}, {unusual} unusual steps");
        cases.push(ModelCase { unusual, ..update_case(&name, runs, reads, updates, budget) });
    };
    let any = FaultBudget { updates: 1, deletions: 1, deaths: 1, drops: 1, ..CALM };
    for (runs, (change, update)) in KINDS.into_iter().flat_map(|runs| changes.map(|change| (runs, change))) {
        let fault = "at any time, a death, a lost message, deleted";
        add(FEW, &format!("one {change}: {fault}"), runs, ONE, &[update], any);
        add(1, &format!("chain, one {change}: {fault}"), runs, CHAIN, &[update], any);
    }
    // A second result of the first attempt, or a first result of an attempt that ran out of time.
    let late = [("second", FaultBudget { contradictions: 1, ..CALM }), ("late", FaultBudget { ticks: 1, ..CALM })];
    for (what, budget) in late {
        let budget = FaultBudget { updates: 1, ..budget };
        add(3, &format!("one removed: a {what} result"), UnitAction::Later, ONE, &[ModelUpdate::Removed], budget);
    }
    let failures = FaultBudget { failures: 2, ..CALM };
    for (change, update) in &changes[1..] {
        let both = [*update, ModelUpdate::Labelled];
        add(FEW, &format!("one {change}: two failures, another update"), UnitAction::Pod, ONE, &both, failures);
    }
    cases
}

/// Returns the cases with all orders that take a minute or more each.
pub fn large_cases() -> Vec<ModelCase> {
    all().into_iter().filter(|(large, _)| *large).map(|(_, case)| case).collect()
}

/// Returns all cases with all orders, and whether each is large.
fn all() -> Vec<(bool, ModelCase)> {
    let mut cases = Vec::new();
    for runs in KINDS {
        let later = runs == UnitAction::Later;
        let mut one = |large: bool, name: &str, budget| {
            cases.push((large, case(&format!("one: {name}"), runs, ONE, budget)));
        };
        one(false, "calm", CALM);
        one(false, "deleted", FaultBudget { deletions: 1, ..CALM });
        one(false, "a death", FaultBudget { deaths: 1, ..CALM });
        one(false, "a lost answer", FaultBudget { losses: 1, ..CALM });
        one(false, "a lost message", FaultBudget { drops: 1, ..CALM });
        one(false, "twice", FaultBudget { duplicates: 1, ..CALM });
        if later {
            one(true, "two results", FaultBudget { contradictions: 1, ..CALM });
            one(true, "three results, deleted", FaultBudget { contradictions: 2, deletions: 1, ..CALM });
        }
        one(false, "a failure", FaultBudget { failures: 1, ..CALM });
        one(false, "both tries fail", FaultBudget { failures: 2, ..CALM });
        one(false, "a sweep at any time", FaultBudget { sweeps: 1, ..CALM });
        one(false, "a hurry", FaultBudget { ticks: 1, ..CALM });
        one(false, "a failure, a sweep", FaultBudget { failures: 1, sweeps: 1, ..CALM });
        one(runs != UnitAction::Once, "a hurry, a sweep", FaultBudget { ticks: 1, sweeps: 1, ..CALM });
    }
    for runs in [UnitAction::Once, UnitAction::Later] {
        // With callbacks, the environment alone determines the order.
        let beside = u8::from(runs == UnitAction::Once);
        let budget = FaultBudget { losses: 1, deletions: 1, concurrent: beside, ..CALM };
        let only = case("one, tried once: a lost answer, deleted", runs, ONE, budget);
        cases.push((true, only.with(|graph| graph.attempts = 1)));
    }
    for runs in KINDS {
        let webhook = runs != UnitAction::Pod;
        let mut two = |large: bool, name: &str, budget| {
            cases.push((large, case(&format!("chain: {name}"), runs, CHAIN, budget)));
        };
        two(false, "calm", CALM);
        two(webhook, "deleted", FaultBudget { deletions: 1, ..CALM });
        two(runs == UnitAction::Later, "a death", FaultBudget { deaths: 1, ..CALM });
        two(runs == UnitAction::Later, "twice", FaultBudget { duplicates: 1, ..CALM });
        two(false, "a failure", FaultBudget { failures: 1, ..CALM });
    }
    for runs in KINDS {
        let mut add = |large: bool, shape: &str, reads, what: &str, budget| {
            cases.push((large, case(&format!("{shape}: {what}"), runs, reads, budget)));
        };
        add(runs == UnitAction::Later, "fan-in", FAN_IN, "calm", CALM);
        add(true, "fan-in", FAN_IN, "a death", FaultBudget { deaths: 1, ..CALM });
        add(true, "diamond", DIAMOND, "calm", CALM);
    }
    cases
}
