//! The edges of a plan, for previews and graphs.

use ebb_engine::Hook;

use super::plan_content::is_bound;
use crate::plan::{Plan, UnitRef};

/// A dependency between two units of the same hook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DependencyEdge {
    pub hook: Hook,
    /// The key of the unit that runs first.
    pub from: String,
    /// The key of the unit that waits.
    pub to: String,
    pub reason: EdgeReason,
}

/// The reason why one unit waits for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeReason {
    Reads(String),
    /// The `after` of the waiting unit names the other one, or a bound object waits for the resource that it names.
    After,
    /// The unit that waits undoes something on which the other one depends.
    TeardownOrder,
}

/// Returns the edges of all hooks, in the order of the hooks and of the waiting units. A unit that reads two outputs of
/// another unit has two edges to it.
pub fn edges(plan: &Plan) -> Vec<DependencyEdge> {
    let mut edges = Vec::new();
    for (hook, unit) in plan.hooks.iter().flat_map(|hook| hook.units.iter().map(move |unit| (hook, unit))) {
        for &dependency in &unit.dependencies {
            let Some(first) = hook.units.get(dependency as usize) else { continue };
            let edge =
                |why| DependencyEdge { hook: hook.hook, from: first.key.clone(), to: unit.key.clone(), reason: why };
            let at = UnitRef { hook: hook.hook, unit: dependency };
            let read = unit.reads.iter().filter(|read| read.at == at);
            let read: Vec<_> = read.map(|read| edge(EdgeReason::Reads(read.output.clone()))).collect();
            // `after` names units of the same plugin, and none that the compiler added.
            let is_after = first.resource() == unit.resource()
                && !unit.ordered_after.contains(&dependency)
                && ![first, unit].iter().any(|unit| unit.action.is_added());
            if read.is_empty() {
                let by_author = is_after || is_bound(unit);
                edges.push(edge(if by_author { EdgeReason::After } else { EdgeReason::TeardownOrder }));
            }
            edges.extend(read);
        }
    }
    edges
}
