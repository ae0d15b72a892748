//! The order of taking away across resources: what others were wired to goes last.
//!
//! If `y` in postStop takes away (or reads) something that was made with the help of what `x` of another resource
//! takes away, then `x` waits for `y`. Explicit edges win: an edge that would close a cycle is left out.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::order;
use crate::plan::{Moment, UnitAt};

/// What is known of a unit of postStop.
pub(super) struct Undoing<'a> {
    pub(super) resource: &'a str,
    /// Setup units that it takes away.
    pub(super) undoes: &'a [UnitAt],
    /// Setup units that it takes away or reads.
    pub(super) touches: Vec<UnitAt>,
    /// What it waits for in postStop.
    pub(super) dependencies: &'a [u32],
}

/// Pairs `(x, y)`: x has to wait for y as well. `users` has, for each setup unit, the setup units that wait for it or
/// read it.
pub(super) fn edges(units: &[Undoing<'_>], users: &HashMap<UnitAt, Vec<UnitAt>>) -> Vec<(usize, usize)> {
    let mut touched_by: HashMap<UnitAt, Vec<usize>> = HashMap::new();
    for (y, unit) in units.iter().enumerate() {
        unit.touches
            .iter()
            .filter(|at| at.moment <= Moment::AfterReady)
            .for_each(|&at| touched_by.entry(at).or_default().push(y));
    }
    let mut wanted: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (x, unit) in units.iter().enumerate() {
        let mut seen: HashSet<UnitAt> = unit.undoes.iter().copied().collect();
        let mut open: VecDeque<UnitAt> = unit.undoes.iter().copied().collect();
        while let Some(at) = open.pop_front() {
            for &user in users.get(&at).map_or(&[][..], Vec::as_slice) {
                if !seen.insert(user) {
                    continue;
                }
                let undone = touched_by.get(&user).map_or(&[][..], Vec::as_slice);
                let others = undone.iter().copied().filter(|&y| y != x && units[y].resource != unit.resource);
                wanted.extend(others.map(|y| (x, y)));
                open.push_back(user);
            }
        }
    }
    let wanted: Vec<(usize, usize)> =
        wanted.into_iter().filter(|&(x, y)| !units[x].dependencies.contains(&(y as u32))).collect();
    without_cycles(units, wanted)
}

/// The edges that close no cycle with the explicit ones, nor with each other.
fn without_cycles(units: &[Undoing<'_>], wanted: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut graph: Vec<Vec<usize>> =
        units.iter().map(|unit| unit.dependencies.iter().map(|&n| n as usize).collect()).collect();
    let explicit = graph.clone();
    wanted.iter().for_each(|&(x, y)| graph[x].push(y));
    if order::cycle(&graph).is_none() {
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
