//! Derives the next steps of a run from its state after a write.

use crate::graph::{Graph, Unit};
use crate::state::{Attempt, HeadState, UnitProgress};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    /// Each unit is done, or has failed and is tolerated.
    Succeeded,
    /// A unit failed that the graph does not tolerate, and no other unit can run.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextSteps {
    pub dispatch: Vec<(Unit, Attempt)>,
    /// The outcome of the run, if no unit can run.
    pub run_outcome: Option<RunOutcome>,
}

/// Returns the next steps after `unit` was made done or failed. `head` is the state after that write.
///
/// Of several writers that complete a join, only the last one gets a state in which the unit after it is ready. A caller
/// whose result was written before gets the same steps once more.
pub fn follow(graph: &Graph, head: &HeadState, unit: Unit) -> NextSteps {
    let dispatch: Vec<_> = match lets_pass(graph, head, unit) {
        true => graph.successors(unit).iter().filter_map(|&unit| open(graph, head, unit)).collect(),
        false => Vec::new(),
    };
    let can_run = !dispatch.is_empty() || graph.units().any(|unit| open(graph, head, unit).is_some());
    NextSteps { dispatch, run_outcome: (!can_run).then(|| outcome(graph, head)) }
}

/// Returns true if the units that depend on `unit` do not wait for it: it is done, or has failed and is tolerated.
pub fn lets_pass(graph: &Graph, head: &HeadState, unit: Unit) -> bool {
    head.done.contains(&unit) || (head.failed.contains(&unit) && graph.tolerates(unit))
}

/// Returns the units that may be running: all dependencies let it pass, and the unit is neither done nor failed.
pub fn in_flight(graph: &Graph, head: &HeadState) -> Vec<(Unit, Attempt)> {
    graph.units().filter_map(|unit| open(graph, head, unit)).collect()
}

pub fn may_have_started(graph: &Graph, head: &HeadState, unit: Unit) -> bool {
    match head.status(unit) {
        UnitProgress::Done | UnitProgress::Failed => true,
        // A retry also reopens what failed before the unit.
        UnitProgress::Open(attempt) => attempt != Attempt::FIRST || is_ready(graph, head, unit),
    }
}

/// Returns the outcome of a run in which no unit can run.
pub fn outcome(graph: &Graph, head: &HeadState) -> RunOutcome {
    if head.failed.iter().all(|&unit| graph.tolerates(unit)) { RunOutcome::Succeeded } else { RunOutcome::Failed }
}

/// Returns the unit with its attempt if it may be running.
fn open(graph: &Graph, head: &HeadState, unit: Unit) -> Option<(Unit, Attempt)> {
    match head.status(unit) {
        UnitProgress::Open(attempt) if is_ready(graph, head, unit) => Some((unit, attempt)),
        _ => None,
    }
}

fn is_ready(graph: &Graph, head: &HeadState, unit: Unit) -> bool {
    graph.dependencies(unit).iter().all(|&dependency| lets_pass(graph, head, dependency))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{AttemptRef, Epoch, RunEvent, accept};

    fn graph(dependencies: Vec<Vec<u32>>) -> Graph {
        Graph::new(dependencies.into_iter().map(|list| list.into_iter().map(Unit).collect()).collect()).unwrap()
    }

    #[test]
    fn units_in_flight_and_units_that_may_have_started() {
        // 0 is done, 1 has failed, 2 has its third attempt. The others depend on these.
        let graph = graph(vec![vec![], vec![], vec![], vec![0], vec![0, 1], vec![0, 2], vec![0, 3]]);
        let attempts = [(Unit(2), Attempt(3)), (Unit(3), Attempt(2))].into();
        let (done, failed) = ([Unit(0)].into(), [Unit(1)].into());
        let head = HeadState { done, failed, attempts, ..HeadState::new(Epoch::FIRST) };
        assert_eq!(in_flight(&graph, &head), [(Unit(2), Attempt(3)), (Unit(3), Attempt(2))]);
        let started: Vec<u32> =
            graph.units().filter(|&unit| may_have_started(&graph, &head, unit)).map(|unit| unit.0).collect();
        assert_eq!(started, [0, 1, 2, 3]);
        let next = follow(&graph, &head, Unit(0));
        assert_eq!(next, NextSteps { dispatch: vec![(Unit(3), Attempt(2))], run_outcome: None });
        // A failure has no successors, but ends the run if nothing else runs.
        let next = follow(&graph, &head, Unit(1));
        assert_eq!(next, NextSteps { dispatch: vec![], run_outcome: None });
        let head = HeadState { done: [0, 3, 6].map(Unit).into(), failed: [1, 2].map(Unit).into(), ..head };
        assert_eq!(in_flight(&graph, &head), []);
        let next = follow(&graph, &head, Unit(2));
        assert_eq!(next, NextSteps { dispatch: vec![], run_outcome: Some(RunOutcome::Failed) });
        let retried = HeadState { attempts: [(Unit(6), Attempt(4))].into(), ..HeadState::new(Epoch::FIRST) };
        assert_eq!([5, 6].map(|unit| may_have_started(&graph, &retried, Unit(unit))), [false, true]);
        // The same failures are tolerated.
        let graph = graph.tolerating([1, 2].map(Unit));
        let next = follow(&graph, &head, Unit(1));
        assert_eq!(next, NextSteps { dispatch: vec![(Unit(4), Attempt::FIRST)], run_outcome: None });
        assert!([4, 5].map(Unit).iter().all(|&unit| may_have_started(&graph, &head, unit)));
        let head = HeadState { done: [0, 3, 4, 5, 6].map(Unit).into(), ..head };
        assert_eq!(follow(&graph, &head, Unit(5)).run_outcome, Some(RunOutcome::Succeeded));
        let head = HeadState { failed: [1, 2, 5].map(Unit).into(), done: [0, 3, 4, 6].map(Unit).into(), ..head };
        assert_eq!(follow(&graph, &head, Unit(5)).run_outcome, Some(RunOutcome::Failed));
    }

    /// Generates graphs, with the order in which their units end, and which of them fail.
    /// A failure with the fate 1 is tolerated.
    fn runs() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<u32>, Vec<u32>)> {
        let edges = prop::collection::vec((0..44_usize, 0..44_usize), 0..66);
        let orders = prop::collection::vec(any::<u32>(), 44);
        let fates = prop::collection::vec(0..12_u32, 44);
        (edges, orders, fates).prop_map(|(edges, orders, fates)| {
            let mut lists = vec![vec![]; 44];
            for (from, to) in edges {
                if from < to {
                    lists[to].push(u32::try_from(from).unwrap());
                }
            }
            (lists, orders, fates)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_unit_is_dispatched_once_when_it_is_ready((lists, orders, fates) in runs()) {
            let fate = |unit: Unit| fates[unit.0 as usize];
            let graph = graph(lists);
            let tolerated: Vec<Unit> = graph.units().filter(|&unit| fate(unit) == 1).collect();
            let graph = graph.tolerating(tolerated);
            let mut head = HeadState::new(Epoch::FIRST);
            let mut open: Vec<Unit> = graph.roots().collect();
            let mut before = open.clone();
            let mut ends: Vec<RunOutcome> = Vec::new();
            while !open.is_empty() {
                let weight = |unit: &Unit| (orders[unit.0 as usize], unit.0);
                let at = (0..open.len()).min_by_key(|&at| weight(&open[at])).expect("one is open");
                let unit = open.swap_remove(at);
                let attempt = AttemptRef { unit, number: Attempt::FIRST, epoch: Epoch::FIRST };
                let event = match fate(unit) {
                    0 | 1 => RunEvent::Failed(attempt),
                    _ => RunEvent::Succeeded(attempt),
                };
                head = accept(event).apply(&head).expect("no unit is dispatched twice, so none ends twice");
                let next = follow(&graph, &head, unit);
                let after: Vec<Unit> = in_flight(&graph, &head).into_iter().map(|(unit, _)| unit).collect();
                let fresh: Vec<Unit> = after.iter().copied().filter(|unit| !before.contains(unit)).collect();
                let sent: Vec<Unit> = next.dispatch.iter().map(|(unit, _)| *unit).collect();
                prop_assert_eq!(&sent, &fresh, "after {:?}", unit);
                prop_assert_eq!(next.run_outcome.is_some(), after.is_empty(), "after {:?}", unit);
                ends.extend(next.run_outcome);
                open.extend(sent);
                before = after;
            }
            prop_assert_eq!(ends, vec![outcome(&graph, &head)]);
        }
    }
}
