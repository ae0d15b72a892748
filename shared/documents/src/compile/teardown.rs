//! The order of teardown across resources. A resource is removed after the resources that are wired to its outputs.
//!
//! Let `a` and `b` be setup units of different resources, and let `b` depend on `a`, directly or not. In postStop, `x`
//! undoes `a`, and `y` undoes or reads `b`. Then `x` waits for `y`. Explicit edges have priority: an edge that would
//! close a cycle is omitted.
//!
//! Within a resource, `after` decides the order. It cannot name the removals of objects. A removal runs after all units
//! that undo or read the object, or that undo or read units that depend on it. It runs before the units that undo the
//! inputs of the object unit.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::order;
use crate::plan::{HookName, UnitRef};

/// A unit of postStop.
pub(super) struct TeardownUnit<'a> {
    pub(super) resource: &'a str,
    /// The setup units that it undoes.
    pub(super) undoes: &'a [UnitRef],
    /// The setup units that it undoes or reads.
    pub(super) touches: Vec<UnitRef>,
    /// The units of postStop that it waits for.
    pub(super) dependencies: &'a [u32],
    pub(super) order: OrderSource,
}

/// The source of the order of a unit within its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderSource {
    /// The author of the plugin, by `after`.
    Author,
    Compiler,
}

/// Returns the additional edges as pairs `(x, y)`: `x` waits for `y`. `users` has, for each setup unit, the setup units
/// that wait for it or read it.
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

/// Returns true if the compiler decides the order of `x` and `y`.
fn is_ours(x: &TeardownUnit<'_>, y: &TeardownUnit<'_>) -> bool {
    // A unit that still reads an object must not wait until the object is gone.
    let needs = || y.undoes.iter().any(|at| x.touches.contains(at));
    x.resource != y.resource || x.order == OrderSource::Compiler || (y.order == OrderSource::Compiler && !needs())
}

/// Returns the edges that close no cycle with the explicit edges or with each other.
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
