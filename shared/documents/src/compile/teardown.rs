//! The order of teardown. A resource is removed after everything that depends on it.
//!
//! Let `a` and `b` be setup units, and let `b` depend on `a`, directly or not. In postStop, `x` undoes `a`, and `y`
//! undoes or reads `b`, or is a unit of another resource that reads `a`. Then `x` waits for `y`. Explicit edges have
//! priority: an edge that would close a cycle is omitted. `x` does not wait for `y` either if `x` itself reads or undoes
//! what `y` undoes.
//!
//! The rule applies to units of different resources, and to units of one resource with a plugin of Ebb's dialect. There,
//! `after` adds edges, and an `after` against the rule wins. Within a resource with Signadot's plugin, the author alone
//! decides: its delete steps start at once, except those that read another delete step. Signadot promises that, and its
//! plugins rely on it.
//!
//! `after` cannot name the units that the compiler adds: removals of objects, and units that destroy resources of
//! InfraKit. Such a unit runs after all units that undo or read the unit that it undoes, or that undo or read units that
//! depend on it. It runs before the units that undo the inputs of that unit.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use ebb_engine::topological_order;

use super::reads::READ_STEPS;
use crate::plan::UnitRef;

pub(super) struct TeardownUnit<'a> {
    pub(super) resource: &'a str,
    pub(super) undoes: &'a [UnitRef],
    /// The setup units that it undoes or reads.
    pub(super) touches: BTreeSet<UnitRef>,
    pub(super) dependencies: &'a [u32],
    pub(super) order: OrderSource,
}

/// The source of the order of a unit within its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderSource {
    /// The author of Signadot's plugin.
    Author,
    /// The reverse of the setup, and `after` of the author.
    Setup,
    Compiler,
}

impl TeardownUnit<'_> {
    /// Returns true if the unit undoes a setup unit, and the rule makes it wait for everything that depends on that one.
    fn waits_for_users_of(&self, at: UnitRef) -> bool {
        let free_to_wait = match self.order {
            OrderSource::Compiler => true,
            OrderSource::Setup => self.touches.len() == 1,
            OrderSource::Author => false,
        };
        free_to_wait && self.undoes.contains(&at)
    }
}

/// Returns the additional edges as pairs `(x, y)`: `x` waits for `y`. `users` has, for each setup unit, the setup units
/// that wait for it or read it. Returns none if `count` does not allow the steps.
pub(super) fn edges(
    count: &dyn Fn(u64) -> bool,
    units: &[TeardownUnit<'_>],
    users: &HashMap<UnitRef, Vec<UnitRef>>,
) -> Vec<(usize, usize)> {
    let mut touched_by: HashMap<UnitRef, Vec<usize>> = HashMap::new();
    for (y, unit) in units.iter().enumerate() {
        unit.touches.iter().filter(|at| at.hook.is_setup()).for_each(|&at| touched_by.entry(at).or_default().push(y));
    }
    let teardown = Teardown { units, users, touched_by };
    // Without cycles, direct edges are enough.
    let direct = teardown.wanted(count, true);
    if topological_order(&teardown.graph(&direct)).is_ok() {
        return direct;
    }
    teardown.without_cycles(count, teardown.wanted(count, false))
}

struct Teardown<'a> {
    units: &'a [TeardownUnit<'a>],
    users: &'a HashMap<UnitRef, Vec<UnitRef>>,
    /// The units of postStop that undo or read a setup unit.
    touched_by: HashMap<UnitRef, Vec<usize>>,
}

impl Teardown<'_> {
    /// Returns the edges of the rule, sorted, without those that are explicit. With `direct`, an edge is missing if it
    /// follows from others: `x` waits for a unit between them, which waits for `y`.
    fn wanted(&self, count: &dyn Fn(u64) -> bool, direct: bool) -> Vec<(usize, usize)> {
        let mut wanted: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (x, unit) in self.units.iter().enumerate() {
            let touching = |at: UnitRef| self.touched_by.get(&at).map_or(&[][..], Vec::as_slice);
            let others =
                |at: UnitRef| touching(at).iter().copied().filter(|&y| y != x && is_ours(unit, &self.units[y]));
            let mut seen: HashSet<UnitRef> = unit.undoes.iter().copied().collect();
            let mut open: VecDeque<UnitRef> = unit.undoes.iter().copied().collect();
            while let Some(at) = open.pop_front() {
                for &user in self.users.get(&at).map_or(&[][..], Vec::as_slice) {
                    if !seen.insert(user) {
                        continue;
                    }
                    let before = wanted.len();
                    wanted.extend(others(user).map(|y| (x, y)));
                    let edges = (wanted.len() - before) as u64;
                    if !count(1 + touching(user).len() as u64 + READ_STEPS * edges) {
                        return Vec::new();
                    }
                    if !(direct && others(user).any(|y| self.units[y].waits_for_users_of(user))) {
                        open.push_back(user);
                    }
                }
            }
            // A unit of another resource that touches what `unit` undoes still reads it.
            let readers = unit.undoes.iter().flat_map(|&at| others(at));
            let is_foreign = |y: usize| self.units[y].resource != unit.resource;
            wanted.extend(readers.filter(|&y| unit.order == OrderSource::Compiler || is_foreign(y)).map(|y| (x, y)));
        }
        wanted.into_iter().filter(|&(x, y)| !self.units[x].dependencies.contains(&(y as u32))).collect()
    }

    /// Returns the explicit edges and these.
    fn graph(&self, wanted: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let explicit = self.units.iter().map(|unit| unit.dependencies.iter().map(|&n| n as usize).collect());
        let mut graph: Vec<Vec<usize>> = explicit.collect();
        wanted.iter().for_each(|&(x, y)| graph[x].push(y));
        graph
    }

    /// Returns the edges that close no cycle with the explicit edges or with each other.
    fn without_cycles(&self, count: &dyn Fn(u64) -> bool, wanted: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
        let mut graph = self.graph(&[]);
        let mut kept = Vec::new();
        for (x, y) in wanted {
            let Some(reached) = reaches(count, &graph, y, x) else { return Vec::new() };
            if !reached {
                graph[x].push(y);
                kept.push((x, y));
            }
        }
        kept
    }
}

/// Returns true if the compiler decides the order of `x` and `y`.
fn is_ours(x: &TeardownUnit<'_>, y: &TeardownUnit<'_>) -> bool {
    // A unit that still reads something must not wait until it is gone.
    let needs = || y.undoes.iter().any(|at| x.touches.contains(at));
    x.resource != y.resource
        || x.order == OrderSource::Compiler
        || ((x.order == OrderSource::Setup || y.order == OrderSource::Compiler) && !needs())
}

/// Returns true if a path leads from a unit to another one, or `None` if there are too many steps.
fn reaches(count: &dyn Fn(u64) -> bool, graph: &[Vec<usize>], from: usize, to: usize) -> Option<bool> {
    let mut seen = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            return Some(true);
        }
        if !count(1 + graph[at].len() as u64) {
            return None;
        }
        open.extend(graph[at].iter().copied().filter(|&next| seen.insert(next)));
    }
    Some(false)
}
