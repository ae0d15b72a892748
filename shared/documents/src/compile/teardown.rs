//! The order of teardown across resources: a resource that others were wired to is removed last.
//!
//! Let `y` in postStop undo (or read) a unit that was made with outputs of a unit that `x` of another resource undoes.
//! Then `x` waits for `y`. Explicit edges win: an edge that would close a cycle is left out.
//!
//! Within a resource, its author decides the order. The author cannot name the removals of objects. A removal comes after
//! all units that undo or read the object, or what was made with it, and before those that undo its own inputs.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::order;
use crate::plan::{HookName, UnitRef};

/// A unit of postStop.
pub(super) struct TeardownUnit<'a> {
    pub(super) resource: &'a str,
    /// Setup units that it undoes.
    pub(super) undoes: &'a [UnitRef],
    /// Setup units that it undoes or reads.
    pub(super) touches: Vec<UnitRef>,
    /// The units of postStop that it waits for.
    pub(super) dependencies: &'a [u32],
    pub(super) order: OrderSource,
}

/// The source of the order of a unit among those of its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderSource {
    /// Its author: `after`.
    Author,
    Compiler,
}

/// Pairs `(x, y)`: x has to wait for y as well. `users` has, for each setup unit, the setup units that wait for it or
/// read it.
pub(super) fn edges(units: &[TeardownUnit<'_>], users: &HashMap<UnitRef, Vec<UnitRef>>) -> Vec<(usize, usize)> {
    let mut touched_by: HashMap<UnitRef, Vec<usize>> = HashMap::new();
    for (y, unit) in units.iter().enumerate() {
        unit.touches
            .iter()
            .filter(|at| at.hook <= HookName::PostStart)
            .for_each(|&at| touched_by.entry(at).or_default().push(y));
    }
    let mut wanted: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (x, unit) in units.iter().enumerate() {
        let others = |at: UnitRef| {
            let touching = touched_by.get(&at).map_or(&[][..], Vec::as_slice).iter().copied();
            touching.filter(move |&y| y != x && is_ours(unit, &units[y]))
        };
        let mut seen: HashSet<UnitRef> = unit.undoes.iter().copied().collect();
        let mut open: VecDeque<UnitRef> = unit.undoes.iter().copied().collect();
        while let Some(at) = open.pop_front() {
            for &user in users.get(&at).map_or(&[][..], Vec::as_slice) {
                if !seen.insert(user) {
                    continue;
                }
                wanted.extend(others(user).map(|y| (x, y)));
                open.push_back(user);
            }
        }
        if unit.order == OrderSource::Compiler {
            wanted.extend(unit.undoes.iter().flat_map(|&at| others(at)).map(|y| (x, y)));
        }
    }
    let wanted: Vec<(usize, usize)> =
        wanted.into_iter().filter(|&(x, y)| !units[x].dependencies.contains(&(y as u32))).collect();
    without_cycles(units, wanted)
}

/// Returns true if it is ours to say that `x` waits for `y`.
fn is_ours(x: &TeardownUnit<'_>, y: &TeardownUnit<'_>) -> bool {
    // A unit that still reads an object does not wait until it is gone.
    let needs = || y.undoes.iter().any(|at| x.touches.contains(at));
    x.resource != y.resource || x.order == OrderSource::Compiler || (y.order == OrderSource::Compiler && !needs())
}

/// The edges that close no cycle with the explicit ones, nor with each other.
fn without_cycles(units: &[TeardownUnit<'_>], wanted: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut graph: Vec<Vec<usize>> =
        units.iter().map(|unit| unit.dependencies.iter().map(|&n| n as usize).collect()).collect();
    let explicit = graph.clone();
    wanted.iter().for_each(|&(x, y)| graph[x].push(y));
    if order::order(&graph).is_ok() {
        return wanted;
    }
    let mut graph = explicit;
    let mut kept = Vec::new();
    for (x, y) in wanted {
        if !reaches(&graph, y, x) {
            graph[x].push(y);
            kept.push((x, y));
        }
    }
    kept
}

fn reaches(graph: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut seen = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        open.extend(graph[at].iter().copied().filter(|&next| seen.insert(next)));
    }
    false
}
