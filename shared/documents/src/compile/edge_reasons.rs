//! The edges of a plan, for previews and graphs.

use super::plan_content::is_bound;
use crate::plan::{HookPlan, UnitPlan, UnitRef};

/// The reason why one unit waits for another of its hook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeReason {
    Reads(String),
    /// The `after` of the waiting unit names the other one, or a bound object waits for the resource that it names.
    After,
    /// The unit that waits undoes something on which the other one depends.
    TeardownOrder,
}

/// Returns the units for which a unit of the hook waits, each with the reason. A unit that reads two outputs of another
/// unit has two edges to it.
pub fn edges<'p>(hook: &'p HookPlan, unit: &UnitPlan) -> Vec<(&'p UnitPlan, EdgeReason)> {
    let mut edges = Vec::new();
    for &dependency in &unit.dependencies {
        let Some(first) = hook.units.get(dependency as usize) else { continue };
        let at = UnitRef { hook: hook.hook, unit: dependency };
        let read = unit.reads.iter().filter(|read| read.at == at);
        let mut reasons: Vec<EdgeReason> = read.map(|read| EdgeReason::Reads(read.output.clone())).collect();
        // `after` names units of the same plugin, and none that the compiler added.
        let is_after = first.resource() == unit.resource()
            && !unit.ordered_after.contains(&dependency)
            && ![first, unit].iter().any(|unit| unit.action.is_added());
        if reasons.is_empty() {
            let by_author = is_after || is_bound(unit);
            reasons.push(if by_author { EdgeReason::After } else { EdgeReason::TeardownOrder });
        }
        edges.extend(reasons.into_iter().map(|reason| (first, reason)));
    }
    edges
}
