//! Graphs, and what may go wrong in each.

use ebb_flow::switch::Rule;

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
const ONE_ITEM: u32 = 256;
const KINDS: [Runs; 3] = [Runs::Pod, Runs::AtOnce, Runs::Later];
/// Nothing goes wrong, and two invocations are under way at a time at most.
const CALM: Budget = Budget {
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

fn case(name: &str, runs: Runs, reads: &[&[usize]], per_item: u32, budget: Budget) -> Case {
    let units = reads.iter().map(|reads| (runs, reads.to_vec())).collect();
    let name = format!("{name}, {}", runs.name());
    Case { name, graph: Graph { units, per_item, tries: 2, says: Says::Id }, budget }
}

const ONE: &[&[usize]] = &[&[]];
const CHAIN: &[&[usize]] = &[&[], &[0]];
const FAN_IN: &[&[usize]] = &[&[], &[], &[0, 1]];
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

/// Where the absence of a rule shows.
pub fn without(rule: Rule) -> Case {
    use Rule as R;
    let one = |runs, budget| case("one", runs, ONE, ONE_ITEM, budget);
    let delete = Budget { deletions: 1, ..CALM };
    match rule {
        R::RecordBeforeHead => one(Runs::Pod, Budget { ticks: 1, ..delete }),
        R::SettleBeforeUndo => one(Runs::Pod, Budget { losses: 2, ticks: 1, ..delete }),
        R::RecordDecides => one(Runs::Later, Budget { ticks: 1, ..CALM }),
        R::CancelByEpoch => case("chain", Runs::Pod, CHAIN, ONE_ITEM, delete),
        R::SealBeforeRead | R::ReopenOnLate => one(Runs::Later, Budget { ticks: 1, ..delete }),
        R::WaitForLanding => one(Runs::AtOnce, Budget { deaths: 1, ..delete }),
        R::UndoEveryAttempt => one(Runs::Later, Budget { ticks: 2, ..CALM }),
        R::RecordAccepted => one(Runs::Later, Budget { sweeps: 1, ticks: 2, ..CALM }),
        R::VersionGuardsRearm => one(Runs::Pod, Budget { failures: 1, sweeps: 1, ticks: 1, ..CALM }),
        R::RearmAfterActing => one(Runs::Pod, Budget { failures: 1, sweeps: 1, deaths: 1, ticks: 1, ..CALM }),
        R::DeadlineFromStart => one(Runs::Pod, Budget { deaths: 1, ticks: 1, ..CALM }),
        R::LookAtAllItems => case("fan-in over items", Runs::Pod, FAN_IN, 1, CALM),
        R::StopEveryItem => case("chain of three over items", Runs::Pod, &[&[], &[0], &[1]], 1, delete),
        R::OneTransaction => one(Runs::Pod, Budget { deaths: 1, ..CALM }),
        R::RedriveKeepsEpoch => {
            case("two", Runs::Later, &[&[], &[]], ONE_ITEM, Budget { ticks: 1, beside: 0, ..delete })
        }
        R::JoinEverySend => one(Runs::AtOnce, CALM),
        R::FailedSendIsDue => {
            case("chain", Runs::Pod, CHAIN, ONE_ITEM, Budget { losses: 1, sweeps: 1, ticks: 1, ..CALM })
        }
        R::RetryIsDue => one(Runs::Pod, Budget { failures: 1, drops: 1, ..CALM }),
        R::KeepExpiredSuccess => one(Runs::Later, Budget { ticks: 1, ..CALM }),
        R::UndoTheUnknown => {
            let mut case = one(Runs::Pod, CALM);
            case.graph.says = Says::Nothing;
            case
        }
        R::StableKey => one(Runs::Pod, Budget { failures: 1, ..CALM }),
    }
}
