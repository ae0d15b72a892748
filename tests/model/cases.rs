//! Graphs, and what may go wrong in each.

use super::choice::Budget;
use super::place::{Graph, Runs, Says};

/// A graph with a budget of faults.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// The graph.
    pub graph: Graph,
    /// What may go wrong on one path.
    pub budget: Budget,
}

/// Units per head item that keep a small graph in one.
pub(super) const ONE_ITEM: u32 = 256;
const KINDS: [Runs; 3] = [Runs::Pod, Runs::AtOnce, Runs::Later];
/// Nothing goes wrong, and two invocations are under way at a time at most.
pub(super) const CALM: Budget = Budget {
    deaths: 0,
    losses: 0,
    drops: 0,
    doubles: 0,
    failures: 0,
    sweeps: 0,
    ticks: 0,
    deletions: 0,
    beside: 1,
};

pub(super) fn case(name: &str, runs: Runs, reads: &[&[usize]], per_item: u32, budget: Budget) -> Case {
    let units = reads.iter().map(|reads| (runs, reads.to_vec())).collect();
    let name = format!("{name}, {}", runs.name());
    Case { name, graph: Graph { units, per_item, tries: 2, says: Says::Id }, budget }
}

pub(super) const ONE: &[&[usize]] = &[&[]];
pub(super) const CHAIN: &[&[usize]] = &[&[], &[0]];
pub(super) const FAN_IN: &[&[usize]] = &[&[], &[], &[0, 1]];
const DIAMOND: &[&[usize]] = &[&[], &[0], &[0], &[1, 2]];

/// What is explored whole.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for runs in KINDS {
        let mut one =
            |name: &str, budget| cases.push(case(&format!("one: {name}"), runs, ONE, ONE_ITEM, budget));
        one("calm", CALM);
        one("deleted", Budget { deletions: 1, ..CALM });
        one("a death", Budget { deaths: 1, ..CALM });
        one("a lost answer", Budget { losses: 1, ..CALM });
        one("a lost message", Budget { drops: 1, ..CALM });
        one("twice", Budget { doubles: 1, ..CALM });
        one("a failure", Budget { failures: 1, ..CALM });
        one("both tries fail", Budget { failures: 2, ..CALM });
        one("a sweep at any time", Budget { sweeps: 1, ..CALM });
        one("a hurry", Budget { ticks: 1, ..CALM });
        one("a failure, a sweep", Budget { failures: 1, sweeps: 1, ..CALM });
        one("a hurry, a sweep", Budget { ticks: 1, sweeps: 1, ..CALM });
    }
    for runs in KINDS {
        let budget = Budget { losses: 1, deletions: 1, ..CALM };
        let mut only = case("one, tried once: a lost answer, deleted", runs, ONE, ONE_ITEM, budget);
        only.graph.tries = 1;
        cases.push(only);
    }
    for runs in KINDS {
        let mut two =
            |name: &str, budget| cases.push(case(&format!("chain: {name}"), runs, CHAIN, ONE_ITEM, budget));
        two("calm", CALM);
        two("deleted", Budget { deletions: 1, ..CALM });
        two("a death", Budget { deaths: 1, ..CALM });
        two("twice", Budget { doubles: 1, ..CALM });
        two("a failure", Budget { failures: 1, ..CALM });
    }
    for (name, per_item) in [("", ONE_ITEM), (" over two items", 2)] {
        for runs in KINDS {
            let mut add = |shape: &str, reads, what: &str, budget| {
                cases.push(case(&format!("{shape}{name}: {what}"), runs, reads, per_item, budget));
            };
            add("fan-in", FAN_IN, "calm", CALM);
            add("fan-in", FAN_IN, "a death", Budget { deaths: 1, ..CALM });
            add("diamond", DIAMOND, "calm", CALM);
        }
    }
    cases
}
