//! Derives the next steps of a run from its state after a write.

use crate::graph::{Graph, Unit};
use crate::state::{Attempt, RunView, UnitProgress};

/// The write after which the next steps are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowCause {
    /// The caller's own write made this unit done or failed.
    Fresh(Unit),
    /// The unit was done or failed before. Its writer may have crashed before it took the next steps.
    Repeated(Unit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    Succeeded,
    /// A unit failed, and no other unit can run.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextSteps {
    /// The units to dispatch, with their attempts.
    pub dispatch: Vec<(Unit, Attempt)>,
    /// The outcome of the run, if no unit can run.
    pub run_outcome: Option<RunOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowResult {
    Known(NextSteps),
    /// The view is not sufficient: read all items with strong reads and call again (ReadAllItems).
    ReadAll,
}

/// Returns the next steps after `cause`. `view` must contain the item that `cause` wrote.
///
/// If several writers complete a join in different items, at least one reads all of their writes, because its strong
/// reads come after its own write. Several may do so. The caller must handle a dispatch by each of them.
pub fn follow(graph: &Graph, view: &RunView, cause: FollowCause) -> FollowResult {
    let (FollowCause::Fresh(unit) | FollowCause::Repeated(unit)) = cause;
    let mut dispatch = Vec::new();
    if view.status(unit) == UnitProgress::Done {
        for &successor in graph.successors(unit) {
            match readiness(graph, view, successor) {
                UnitReadiness::Waiting => {}
                UnitReadiness::Unknown => return FollowResult::ReadAll,
                UnitReadiness::Ready => match (view.status(successor), cause) {
                    (UnitProgress::Open(attempt), _) => dispatch.push((successor, attempt)),
                    (UnitProgress::Done | UnitProgress::Failed, _) => {}
                    // The unit cannot have started before, because its dependency was completed only now.
                    (UnitProgress::Unknown, FollowCause::Fresh(_)) => dispatch.push((successor, Attempt::FIRST)),
                    (UnitProgress::Unknown, FollowCause::Repeated(_)) => return FollowResult::ReadAll,
                },
            }
        }
    }
    if !dispatch.is_empty() {
        return FollowResult::Known(NextSteps { dispatch, run_outcome: None });
    }
    if view.known_units(graph).any(|unit| is_in_flight(graph, view, unit)) {
        return FollowResult::Known(NextSteps { dispatch, run_outcome: None });
    }
    if !view.is_complete() {
        return FollowResult::ReadAll;
    }
    FollowResult::Known(NextSteps { dispatch, run_outcome: Some(outcome(view)) })
}

/// Returns the units that may be running: all dependencies are done, and the unit is neither done nor failed. Needs a
/// complete view for a complete list.
pub fn in_flight(graph: &Graph, view: &RunView) -> Vec<(Unit, Attempt)> {
    view.known_units(graph)
        .filter(|&unit| is_in_flight(graph, view, unit))
        .filter_map(|unit| match view.status(unit) {
            UnitProgress::Open(attempt) => Some((unit, attempt)),
            _ => None,
        })
        .collect()
}

/// Returns true if an attempt of `unit` may have started. Needs a complete view.
pub fn may_have_started(graph: &Graph, view: &RunView, unit: Unit) -> bool {
    match view.status(unit) {
        UnitProgress::Done | UnitProgress::Failed => true,
        UnitProgress::Open(_) | UnitProgress::Unknown => readiness(graph, view, unit) != UnitReadiness::Waiting,
    }
}

/// Returns the outcome of a run in which no unit can run.
pub fn outcome(view: &RunView) -> RunOutcome {
    if view.any_failed() { RunOutcome::Failed } else { RunOutcome::Succeeded }
}

fn is_in_flight(graph: &Graph, view: &RunView, unit: Unit) -> bool {
    matches!(view.status(unit), UnitProgress::Open(_)) && readiness(graph, view, unit) == UnitReadiness::Ready
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnitReadiness {
    Ready,
    Waiting,
    /// All known dependencies are done. The others are in items that were not read.
    Unknown,
}

fn readiness(graph: &Graph, view: &RunView, unit: Unit) -> UnitReadiness {
    let mut result = UnitReadiness::Ready;
    for &dependency in graph.dependencies(unit) {
        match view.status(dependency) {
            UnitProgress::Done => {}
            UnitProgress::Failed | UnitProgress::Open(_) => return UnitReadiness::Waiting,
            UnitProgress::Unknown => result = UnitReadiness::Unknown,
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::accept::{RunEvent, accept};
    use crate::state::{Epoch, HeadState, SHARD, Shard};

    /// A run in which a write returns only its own item, as the table does.
    struct TestRun {
        graph: Graph,
        heads: BTreeMap<Shard, HeadState>,
        /// The number of reads of all items.
        reads: usize,
        sent: BTreeMap<Unit, usize>,
        ends: Vec<RunOutcome>,
    }

    impl TestRun {
        fn new(graph: Graph) -> Self {
            let heads = BTreeMap::from([(Shard::ROOT, HeadState::new(Epoch::FIRST))]);
            let sent = graph.roots().map(|unit| (unit, 1)).collect();
            Self { graph, heads, reads: 0, sent, ends: Vec::new() }
        }

        fn write(&mut self, event: RunEvent) -> Shard {
            let patch = accept(event);
            let after = patch.apply(self.heads.get(&patch.shard), Epoch::FIRST).expect("no event is repeated");
            self.heads.insert(patch.shard, after);
            patch.shard
        }

        fn whole(&self) -> RunView {
            RunView::whole(&self.graph, self.heads.clone())
        }

        /// Ends a unit and returns the next steps. Reads all items if necessary.
        fn end(&mut self, unit: Unit, well: RunOutcome) -> NextSteps {
            let (attempt, epoch) = (Attempt::FIRST, Epoch::FIRST);
            let shard = self.write(match well {
                RunOutcome::Succeeded => RunEvent::Succeeded { unit, attempt, epoch },
                RunOutcome::Failed => RunEvent::Failed { unit, attempt, epoch },
            });
            let view = RunView::new(&self.graph, [(shard, self.heads[&shard].clone())]);
            let next = match follow(&self.graph, &view, FollowCause::Fresh(unit)) {
                FollowResult::Known(known) => known,
                FollowResult::ReadAll => {
                    self.reads += 1;
                    match follow(&self.graph, &self.whole(), FollowCause::Fresh(unit)) {
                        FollowResult::Known(known) => known,
                        FollowResult::ReadAll => panic!("all items were read"),
                    }
                }
            };
            for (unit, _) in &next.dispatch {
                *self.sent.entry(*unit).or_default() += 1;
            }
            self.ends.extend(next.run_outcome);
            next
        }
    }

    fn graph(dependencies: Vec<Vec<u32>>) -> Graph {
        let units = dependencies.into_iter().map(|list| list.into_iter().map(Unit).collect());
        Graph::new(units.collect()).unwrap()
    }

    const SUCCEEDED: RunOutcome = RunOutcome::Succeeded;

    #[test]
    fn a_fan_in_reads_all_items_about_once_per_item() {
        let mut lists = vec![vec![]; 600];
        lists.push((0..600).collect());
        let mut run = TestRun::new(graph(lists));
        for unit in 0..600 {
            let next = run.end(Unit(unit), SUCCEEDED);
            let expected = if unit == 599 { vec![(Unit(600), Attempt::FIRST)] } else { vec![] };
            assert_eq!((next.dispatch, next.run_outcome), (expected, None), "after {unit}");
        }
        assert!(run.reads <= 4, "{} reads of 3 items", run.reads);
        assert_eq!(run.end(Unit(600), SUCCEEDED).run_outcome, Some(SUCCEEDED));
    }

    #[test]
    fn a_fan_in_with_alternating_items_reads_all_items_about_once_per_item() {
        let mut lists = vec![vec![]; 600];
        lists.push((0..600).collect());
        let mut run = TestRun::new(graph(lists));
        let mut order: Vec<u32> = (0..600).collect();
        order.sort_by_key(|unit| unit % 200);
        for unit in order {
            run.end(Unit(unit), SUCCEEDED);
        }
        assert_eq!(run.sent[&Unit(600)], 1);
        assert!(run.reads <= 4, "{} reads of 3 items", run.reads);
    }

    #[test]
    fn a_fan_out_is_dispatched_without_reading_all_items() {
        let mut lists = vec![vec![]];
        lists.extend(vec![vec![0]; 600]);
        let mut run = TestRun::new(graph(lists));
        assert_eq!(run.end(Unit(0), SUCCEEDED).dispatch.len(), 600);
        assert_eq!(run.reads, 0, "a fresh result of a fan-out needs no other item");
        for unit in 1..=600 {
            let over = run.end(Unit(unit), SUCCEEDED).run_outcome;
            assert_eq!(over.is_some(), unit == 600, "{unit}");
        }
        assert!(run.reads <= 4, "{} reads of 3 items", run.reads);
    }

    #[test]
    fn a_chain_reads_all_items_only_at_its_end() {
        let lists = (0..600_u32).map(|unit| unit.checked_sub(1).into_iter().collect()).collect();
        let mut run = TestRun::new(graph(lists));
        for unit in 0..599 {
            let next = run.end(Unit(unit), SUCCEEDED);
            assert_eq!(next.dispatch, [(Unit(unit + 1), Attempt::FIRST)]);
        }
        assert_eq!(run.reads, 0);
        assert_eq!(run.end(Unit(599), SUCCEEDED).run_outcome, Some(SUCCEEDED));
        assert!(run.reads <= 1);
    }

    #[test]
    fn a_repeated_result_reads_all_items_before_a_dispatch_to_an_unread_item() {
        let graph = graph((0..300_u32).map(|unit| unit.checked_sub(1).into_iter().collect()).collect());
        let mut head = HeadState::new(Epoch::FIRST);
        head.done = (0..SHARD).collect();
        let view = RunView::new(&graph, [(Shard::ROOT, head)]);
        let last = Unit(SHARD - 1);
        assert_eq!(follow(&graph, &view, FollowCause::Repeated(last)), FollowResult::ReadAll);
        let known = NextSteps { dispatch: vec![(Unit(SHARD), Attempt::FIRST)], run_outcome: None };
        assert_eq!(follow(&graph, &view, FollowCause::Fresh(last)), FollowResult::Known(known));
    }

    #[test]
    fn units_in_flight_and_units_that_may_have_started() {
        // 0 is done, 1 has failed, 2 has its third attempt. The others depend on these.
        let graph = graph(vec![vec![], vec![], vec![], vec![0], vec![0, 1], vec![0, 2], vec![0, 3]]);
        let attempts = [(2, Attempt(3)), (3, Attempt(2))].into();
        let head = HeadState { done: [0].into(), failed: [1].into(), attempts, ..HeadState::new(Epoch::FIRST) };
        let view = RunView::whole(&graph, [(Shard::ROOT, head.clone())]);
        assert_eq!(in_flight(&graph, &view), [(Unit(2), Attempt(3)), (Unit(3), Attempt(2))]);
        let started: Vec<u32> =
            graph.units().filter(|&unit| may_have_started(&graph, &view, unit)).map(|unit| unit.0).collect();
        assert_eq!(started, [0, 1, 2, 3]);
        let next = follow(&graph, &view, FollowCause::Repeated(Unit(0)));
        assert_eq!(next, FollowResult::Known(NextSteps { dispatch: vec![(Unit(3), Attempt(2))], run_outcome: None }));
        // A failure has no successors, but ends the run if nothing else runs.
        let next = follow(&graph, &view, FollowCause::Fresh(Unit(1)));
        assert_eq!(next, FollowResult::Known(NextSteps { dispatch: vec![], run_outcome: None }));
        let head = HeadState { done: [0, 3, 6].into(), failed: [1, 2].into(), ..head };
        let view = RunView::whole(&graph, [(Shard::ROOT, head)]);
        assert_eq!(in_flight(&graph, &view), []);
        let next = follow(&graph, &view, FollowCause::Fresh(Unit(2)));
        assert_eq!(next, FollowResult::Known(NextSteps { dispatch: vec![], run_outcome: Some(RunOutcome::Failed) }));
    }

    /// Generates graphs with units in three items, mostly without edges.
    fn spread() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<u32>, Vec<u32>)> {
        let edge = (0..44_usize, 0..44_usize);
        let edges = prop::collection::vec(edge, 0..66);
        let orders = prop::collection::vec(any::<u32>(), 44);
        let fates = prop::collection::vec(0..12_u32, 44);
        (edges, orders, fates).prop_map(|(edges, orders, fates)| {
            // 44 units at every twelfth position of 528. The others have no edges.
            let mut lists = vec![vec![]; 528];
            for (from, to) in edges {
                if from < to {
                    lists[to * 12].push(u32::try_from(from * 12).unwrap());
                }
            }
            (lists, orders, fates)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_written_item_leads_to_the_same_steps_as_all_items((lists, orders, fates) in spread()) {
            let mut run = TestRun::new(graph(lists));
            let mut open: Vec<Unit> = run.graph.roots().collect();
            let mut before: Vec<Unit> = open.clone();
            while !open.is_empty() {
                let weight = |unit: &Unit| (orders[unit.0 as usize / 12 % 44] ^ unit.0.wrapping_mul(2_654_435_761), unit.0);
                let at = (0..open.len()).min_by_key(|&at| weight(&open[at])).expect("one is open");
                let unit = open.swap_remove(at);
                let well = match unit.0.is_multiple_of(12) && fates[unit.0 as usize / 12] == 0 {
                    true => RunOutcome::Failed,
                    false => RunOutcome::Succeeded,
                };
                let next = run.end(unit, well);
                let after: Vec<Unit> = in_flight(&run.graph, &run.whole()).into_iter().map(|(unit, _)| unit).collect();
                let fresh: Vec<Unit> = after.iter().copied().filter(|unit| !before.contains(unit)).collect();
                let sent: Vec<Unit> = next.dispatch.iter().map(|(unit, _)| *unit).collect();
                prop_assert_eq!(&sent, &fresh, "after {:?}", unit);
                prop_assert_eq!(next.run_outcome.is_some(), after.is_empty(), "after {:?}", unit);
                open.extend(sent);
                before = after;
            }
            prop_assert_eq!(run.ends.clone(), vec![outcome(&run.whole())]);
            prop_assert!(run.sent.values().all(|&times| times == 1));
        }
    }
}
