//! What follows from the state after a write.

use crate::graph::{Graph, Unit};
use crate::state::{Attempt, Shard, Status, View};

/// What the caller has just learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its own write made this unit done or failed.
    Fresh(Unit),
    /// The unit was so already: whoever wrote it may have died before acting on it.
    Again(Unit),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every unit is done.
    Succeeded,
    /// Something failed for good, and nothing can move any more.
    Failed,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Units to send, with the try to send them at.
    pub dispatch: Vec<(Unit, Attempt)>,
    /// Set when nothing can move any more.
    pub over: Option<Outcome>,
}

/// The answer to "what follows?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This follows.
    Known(Follow),
    /// The view does not tell: read all items of the run, strongly consistent, and ask again.
    LookAtAll,
}

/// What follows from `cause`, given the items in `view`, one of which must be the one that `cause` wrote.
///
/// Reads are strong and come after the write: of the writers that complete a join's last units in several items,
/// at least one sees all of them. Several may; sending a unit twice is harmless.
pub fn follow(graph: &Graph, view: &View, cause: Cause) -> Next {
    let (Cause::Fresh(unit) | Cause::Again(unit)) = cause;
    let mut dispatch = Vec::new();
    if view.status(unit) == Status::Done {
        for &successor in graph.successors(unit) {
            match readiness(graph, view, successor) {
                Readiness::Waiting => {}
                Readiness::Unknown => return Next::LookAtAll,
                Readiness::Ready => match (view.status(successor), cause) {
                    (Status::Open(attempt), _) => dispatch.push((successor, attempt)),
                    (Status::Done | Status::Failed, _) => {}
                    // Nobody can have started it before this unit was done, which it is only just now.
                    (Status::Unknown, Cause::Fresh(_)) => dispatch.push((successor, Attempt::FIRST)),
                    (Status::Unknown, Cause::Again(_)) => return Next::LookAtAll,
                },
            }
        }
    }
    if !dispatch.is_empty() {
        return Next::Known(Follow { dispatch, over: None });
    }
    if view.known_units(graph).any(|unit| is_in_flight(graph, view, unit)) {
        return Next::Known(Follow { dispatch, over: None });
    }
    if !view.is_complete() {
        return Next::LookAtAll;
    }
    Next::Known(Follow { dispatch, over: Some(outcome(view)) })
}

/// The units that may be running: everything that they wait for is done, and they are not over. Complete only for
/// a complete view.
pub fn in_flight(graph: &Graph, view: &View) -> Vec<(Unit, Attempt)> {
    view.known_units(graph)
        .filter(|&unit| is_in_flight(graph, view, unit))
        .filter_map(|unit| match view.status(unit) {
            Status::Open(attempt) => Some((unit, attempt)),
            _ => None,
        })
        .collect()
}

/// Whether any try of `unit` may ever have been started, by the state of a whole run.
pub fn may_have_started(graph: &Graph, view: &View, unit: Unit) -> bool {
    match view.status(unit) {
        Status::Done | Status::Failed => true,
        Status::Open(_) | Status::Unknown => readiness(graph, view, unit) != Readiness::Waiting,
    }
}

/// How a run in which nothing moves has ended.
pub fn outcome(view: &View) -> Outcome {
    if view.any_failed() { Outcome::Failed } else { Outcome::Succeeded }
}

fn is_in_flight(graph: &Graph, view: &View, unit: Unit) -> bool {
    matches!(view.status(unit), Status::Open(_)) && readiness(graph, view, unit) == Readiness::Ready
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Ready,
    Waiting,
    /// All that is known is done; the rest is in items that were not read.
    Unknown,
}

fn readiness(graph: &Graph, view: &View, unit: Unit) -> Readiness {
    let mut answer = Readiness::Ready;
    for &dependency in graph.dependencies(unit) {
        match view.status(dependency) {
            Status::Done => {}
            Status::Failed | Status::Open(_) => return Readiness::Waiting,
            Status::Unknown => answer = Readiness::Unknown,
        }
    }
    answer
}

/// The shards that hold any of `units`, ascending.
pub fn shards(units: impl IntoIterator<Item = Unit>) -> Vec<Shard> {
    let set: std::collections::BTreeSet<Shard> = units.into_iter().map(|unit| Shard::of(unit).0).collect();
    set.into_iter().collect()
}
