//! The units of one hook and their dependencies.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The maximum number of units of one hook. The state of so many fits into one head item.
pub const MAX_UNITS: usize = 1_000;

/// A unit by its position in the plan of its hook, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unit(pub u32);

impl Unit {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A list of dependencies that is not a valid graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Units depend on each other. The path starts and ends with the same unit.
    #[error("{} units wait for each other in a cycle", .0.len() - 1)]
    Cycle(Vec<Unit>),
    /// A dependency names a missing unit.
    #[error("unit {} depends on unit {}, which does not exist", .unit.0, .dependency.0)]
    Unknown { unit: Unit, dependency: Unit },
    #[error("{0} units are more than the limit of {MAX_UNITS}")]
    TooMany(usize),
}

/// A directed acyclic graph of units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    dependencies: Vec<Vec<Unit>>,
    successors: Vec<Vec<Unit>>,
    /// The units whose failure neither fails the run nor stops the units that depend on them.
    tolerated: BTreeSet<Unit>,
}

impl Graph {
    /// Creates a graph in which unit `i` depends on `dependencies[i]`. Repeated dependencies count once.
    ///
    /// # Errors
    /// Returns [`GraphError`] for a cycle (including a self-reference), an unknown unit, or too many units.
    pub fn new(dependencies: Vec<Vec<Unit>>) -> Result<Self, GraphError> {
        let size = dependencies.len();
        if size > MAX_UNITS {
            return Err(GraphError::TooMany(size));
        }
        let mut clean = Vec::with_capacity(size);
        let mut successors = vec![Vec::new(); size];
        for (position, list) in dependencies.into_iter().enumerate() {
            let unit = unit_at(position);
            let set: BTreeSet<Unit> = list.into_iter().collect();
            for &dependency in &set {
                match successors.get_mut(dependency.index()) {
                    Some(followers) => followers.push(unit),
                    None => return Err(GraphError::Unknown { unit, dependency }),
                }
            }
            clean.push(set.into_iter().collect::<Vec<_>>());
        }
        let graph = Self { dependencies: clean, successors, tolerated: BTreeSet::new() };
        match topological_order(&graph.indices()) {
            Err(path) => Err(GraphError::Cycle(path.into_iter().map(unit_at).collect())),
            Ok(_) => Ok(graph),
        }
    }

    /// Returns the graph in which the failure of each of `units` neither fails the run nor stops the units that depend on it.
    #[must_use]
    pub fn tolerating(self, units: impl IntoIterator<Item = Unit>) -> Self {
        Self { tolerated: units.into_iter().collect(), ..self }
    }

    /// Returns true if the failure of `unit` neither fails the run nor stops the units that depend on it.
    pub fn tolerates(&self, unit: Unit) -> bool {
        self.tolerated.contains(&unit)
    }

    pub fn len(&self) -> usize {
        self.dependencies.len()
    }

    pub fn is_empty(&self) -> bool {
        self.dependencies.is_empty()
    }

    pub fn units(&self) -> impl Iterator<Item = Unit> + use<> {
        (0..self.len()).map(unit_at)
    }

    /// Returns the dependencies of `unit` in ascending order, or none for an unknown unit.
    pub fn dependencies(&self, unit: Unit) -> &[Unit] {
        self.dependencies.get(unit.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns the units that depend on `unit` in ascending order, or none for an unknown unit.
    pub fn successors(&self, unit: Unit) -> &[Unit] {
        self.successors.get(unit.index()).map_or(&[], Vec::as_slice)
    }

    pub fn roots(&self) -> impl Iterator<Item = Unit> + '_ {
        self.units().filter(|&unit| self.dependencies(unit).is_empty())
    }

    /// Returns a topological order. Ties are in the order of the plan.
    pub fn order(&self) -> Vec<Unit> {
        topological_order(&self.indices()).unwrap_or_default().into_iter().map(unit_at).collect()
    }

    fn indices(&self) -> Vec<Vec<usize>> {
        self.dependencies.iter().map(|list| list.iter().map(|unit| unit.index()).collect()).collect()
    }
}

/// Returns an order in which each node comes after its dependencies. Ties are in the order of the nodes.
///
/// # Errors
/// Returns a cycle: a path that ends where it begins, in which each node depends on the next.
pub fn topological_order(dependencies: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut missing: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut followers = vec![Vec::new(); dependencies.len()];
    for (at, list) in dependencies.iter().enumerate() {
        list.iter().for_each(|&first| followers[first].push(at));
    }
    let mut ready: BTreeSet<usize> = (0..dependencies.len()).filter(|&at| missing[at] == 0).collect();
    let mut order = Vec::with_capacity(dependencies.len());
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for &follower in &followers[at] {
            missing[follower] -= 1;
            if missing[follower] == 0 {
                ready.insert(follower);
            }
        }
    }
    // Every remaining node depends on a cycle, directly or not, so following open dependencies leads into one.
    let Some(mut at) = missing.iter().position(|&missing| missing > 0) else { return Ok(order) };
    let mut step_of = vec![None; dependencies.len()];
    let mut path = Vec::new();
    loop {
        let first = step_of[at].replace(path.len());
        path.push(at);
        if let Some(first) = first {
            return Err(path.split_off(first));
        }
        at = dependencies[at].iter().copied().find(|&next| missing[next] > 0).unwrap_or(at);
    }
}

/// Positions are below [`MAX_UNITS`], so the number always fits.
fn unit_at(position: usize) -> Unit {
    Unit(u32::try_from(position).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(dependencies: &[&[u32]]) -> Result<Graph, GraphError> {
        Graph::new(dependencies.iter().map(|list| list.iter().map(|&n| Unit(n)).collect()).collect())
    }

    #[test]
    fn edges_are_stored_once_at_both_ends_and_order_the_units() {
        assert_eq!(graph(&[&[2], &[0], &[], &[0, 1]]).unwrap().order(), [2, 0, 1, 3].map(Unit));
        let graph = graph(&[&[], &[0, 0], &[1, 0], &[], &[2, 3]]).unwrap();
        let edges = |ends: &[Unit]| ends.iter().map(|unit| unit.0).collect::<Vec<_>>();
        let before: Vec<_> = graph.units().map(|unit| edges(graph.dependencies(unit))).collect();
        let after: Vec<_> = graph.units().map(|unit| edges(graph.successors(unit))).collect();
        assert_eq!(before, [vec![], vec![0], vec![0, 1], vec![], vec![2, 3]]);
        assert_eq!(after, [vec![1, 2], vec![2], vec![4], vec![4], vec![]]);
        assert_eq!((graph.len(), graph.is_empty()), (5, false));
        assert!(graph.roots().eq([Unit(0), Unit(3)]));
        assert_eq!([graph.dependencies(Unit(5)), graph.successors(Unit(5))], [&[] as &[Unit]; 2]);
        assert!(Graph::new(vec![]).unwrap().is_empty());
    }

    #[test]
    fn cycles_unknown_dependencies_and_too_many_units_are_rejected() {
        let error = graph(&[&[], &[0, 3], &[1], &[2], &[3]]).unwrap_err();
        assert_eq!(error, GraphError::Cycle([1, 3, 2, 1].map(Unit).to_vec()));
        assert_eq!(graph(&[&[0]]).unwrap_err(), GraphError::Cycle([0, 0].map(Unit).to_vec()));
        let (unit, dependency) = (Unit(0), Unit(7));
        assert_eq!(graph(&[&[7]]).unwrap_err(), GraphError::Unknown { unit, dependency });
        assert_eq!(Graph::new(vec![Vec::new(); MAX_UNITS + 1]).unwrap_err(), GraphError::TooMany(MAX_UNITS + 1));
    }
}
