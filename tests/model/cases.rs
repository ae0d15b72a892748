//! Graphs, and what may go wrong in each.

use super::choice::Budget;
use super::place::{Graph, Runs, Says};

/// A graph with a budget of faults.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub graph: Graph,
    /// What may go wrong on one path.
    pub budget: Budget,
    /// How many steps of one path may be others than what comes next if nothing goes wrong and nothing overtakes;
    /// `u32::MAX`: all may.
    pub unusual: u32,
}

pub(super) const WHOLE: u32 = u32::MAX;
/// Unusual steps of a path through a graph that is too large for the tests as a whole.
const FEW: u32 = 2;

/// Units per head item that keep a small graph in one.
pub(super) const ONE_ITEM: u32 = 256;
/// The answer of a gateway whose server did not answer in time.
pub(super) const GATEWAY: u16 = 504;
const KINDS: [Runs; 3] = [Runs::Pod, Runs::AtOnce, Runs::Later];
/// Nothing goes wrong, and two invocations are under way at a time at most.
pub(super) const CALM: Budget = Budget {
    deaths: 0,
    losses: 0,
    kills: 0,
    drops: 0,
    doubles: 0,
    contradictions: 0,
    failures: 0,
    sweeps: 0,
    ticks: 0,
    deletions: 0,
    beside: 1,
};

pub(super) fn case(name: &str, runs: Runs, reads: &[&[usize]], per_item: u32, budget: Budget) -> Case {
    let units = reads.iter().map(|reads| (runs, reads.to_vec())).collect();
    let name = format!("{name}, {}", runs.name());
    Case {
        name,
        graph: Graph {
            units,
            per_item,
            tries: 2,
            says: Says::Id,
            places: None,
            sends: None,
            gateway: None,
            silent: None,
        },
        budget,
        unusual: WHOLE,
    }
}

pub(super) const ONE: &[&[usize]] = &[&[]];
pub(super) const CHAIN: &[&[usize]] = &[&[], &[0]];
pub(super) const FAN_IN: &[&[usize]] = &[&[], &[], &[0, 1]];
pub(super) const TWO: &[&[usize]] = &[&[], &[]];
const DIAMOND: &[&[usize]] = &[&[], &[0], &[0], &[1, 2]];

/// What the tests go through: small graphs whole, larger ones by all orders with few unusual steps.
pub fn cases() -> Vec<Case> {
    all()
        .into_iter()
        .filter(|(large, _)| !large)
        .map(|(_, case)| case)
        .chain(with_few())
        .chain(hurried())
        .chain(scarce())
        .collect()
}

fn with_few() -> impl Iterator<Item = Case> {
    let faults = [
        ("deleted", Budget { deletions: 1, ..CALM }),
        ("a death, deleted", Budget { deaths: 1, deletions: 1, ..CALM }),
    ];
    let shapes = [("fan-in", FAN_IN), ("diamond", DIAMOND)];
    let items = [("", ONE_ITEM), (" over two items", 2)];
    let all = KINDS.into_iter().flat_map(move |runs| {
        let each =
            shapes.into_iter().flat_map(move |shape| items.into_iter().map(move |items| (shape, items)));
        each.flat_map(move |shape| faults.into_iter().map(move |fault| (runs, shape, fault)))
    });
    all.map(|(runs, ((shape, reads), (items, per_item)), (what, budget))| {
        let name = format!("{shape}{items}: {what}, {FEW} unusual steps");
        Case { unusual: FEW, ..case(&name, runs, reads, per_item, budget) }
    })
}

/// What is explored whole among the large cases.
fn hurried() -> impl Iterator<Item = Case> {
    const UNUSUAL: u32 = 4;
    [Runs::Pod, Runs::Later].into_iter().map(|runs| {
        let name = format!("one: a hurry, a sweep, {UNUSUAL} unusual steps");
        let budget = Budget { ticks: 1, sweeps: 1, ..CALM };
        Case { unusual: UNUSUAL, ..case(&name, runs, ONE, ONE_ITEM, budget) }
    })
}

/// Two units that wait for nothing, and surroundings that are short of something.
fn scarce() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, runs, budget, change: fn(&mut Graph)| {
        let mut case = case(&format!("two, {name}"), runs, TWO, ONE_ITEM, budget);
        change(&mut case.graph);
        cases.push(Case { unusual: FEW, ..case });
    };
    let delete = Budget { deletions: 1, ..CALM };
    let sends_one: fn(&mut Graph) = |graph| graph.sends = Some(1);
    add("one at a time: deleted", Runs::AtOnce, delete, sends_one);
    for runs in [Runs::Pod, Runs::AtOnce] {
        add("one at a time: a lost message", runs, Budget { drops: 1, ..CALM }, sends_one);
    }
    add("one place: deleted", Runs::Pod, delete, |graph| graph.places = Some(1));
    add("one of them in a silent cluster", Runs::Pod, CALM, |graph| graph.silent = Some(1));
    add("one of them in a silent cluster: a sweep", Runs::Pod, Budget { sweeps: 1, ..CALM }, |graph| {
        graph.silent = Some(1);
    });
    add("behind a gateway: a lost answer, deleted", Runs::AtOnce, Budget { losses: 1, ..delete }, |graph| {
        graph.gateway = Some(GATEWAY);
    });
    cases
}

/// What is explored whole beside it: each takes a minute and more.
pub fn large_cases() -> Vec<Case> {
    all().into_iter().filter(|(large, _)| *large).map(|(_, case)| case).collect()
}

/// All cases, and whether each is a large one.
fn all() -> Vec<(bool, Case)> {
    let mut cases = Vec::new();
    for runs in KINDS {
        let later = runs == Runs::Later;
        let mut one = |large: bool, name: &str, budget| {
            cases.push((large, case(&format!("one: {name}"), runs, ONE, ONE_ITEM, budget)));
        };
        one(false, "calm", CALM);
        one(false, "deleted", Budget { deletions: 1, ..CALM });
        one(false, "a death", Budget { deaths: 1, ..CALM });
        one(false, "a lost answer", Budget { losses: 1, ..CALM });
        one(false, "a lost message", Budget { drops: 1, ..CALM });
        one(false, "twice", Budget { doubles: 1, ..CALM });
        if later {
            one(true, "two results", Budget { contradictions: 1, ..CALM });
            one(true, "three results, deleted", Budget { contradictions: 2, deletions: 1, ..CALM });
        }
        one(false, "a failure", Budget { failures: 1, ..CALM });
        one(false, "both tries fail", Budget { failures: 2, ..CALM });
        one(false, "a sweep at any time", Budget { sweeps: 1, ..CALM });
        one(false, "a hurry", Budget { ticks: 1, ..CALM });
        one(false, "a failure, a sweep", Budget { failures: 1, sweeps: 1, ..CALM });
        one(runs != Runs::AtOnce, "a hurry, a sweep", Budget { ticks: 1, sweeps: 1, ..CALM });
    }
    for runs in [Runs::AtOnce, Runs::Later] {
        // With callbacks, what overtakes what is the outside's alone.
        let beside = u8::from(runs == Runs::AtOnce);
        let budget = Budget { losses: 1, deletions: 1, beside, ..CALM };
        let mut only = case("one, tried once: a lost answer, deleted", runs, ONE, ONE_ITEM, budget);
        only.graph.tries = 1;
        cases.push((true, only));
    }
    for runs in KINDS {
        let webhook = runs != Runs::Pod;
        let mut two = |large: bool, name: &str, budget| {
            cases.push((large, case(&format!("chain: {name}"), runs, CHAIN, ONE_ITEM, budget)));
        };
        two(false, "calm", CALM);
        two(webhook, "deleted", Budget { deletions: 1, ..CALM });
        two(runs == Runs::Later, "a death", Budget { deaths: 1, ..CALM });
        two(runs == Runs::Later, "twice", Budget { doubles: 1, ..CALM });
        two(false, "a failure", Budget { failures: 1, ..CALM });
    }
    for (name, per_item) in [("", ONE_ITEM), (" over two items", 2)] {
        for runs in KINDS {
            let calm_is_large = runs == Runs::Later || per_item < ONE_ITEM;
            let mut add = |large: bool, shape: &str, reads, what: &str, budget| {
                cases.push((large, case(&format!("{shape}{name}: {what}"), runs, reads, per_item, budget)));
            };
            add(calm_is_large, "fan-in", FAN_IN, "calm", CALM);
            add(true, "fan-in", FAN_IN, "a death", Budget { deaths: 1, ..CALM });
            add(true, "diamond", DIAMOND, "calm", CALM);
        }
    }
    cases
}
