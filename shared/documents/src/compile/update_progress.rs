//! The progress of the `update` units of a resource.

use super::plan_content::units_of;
use crate::plan::{HookName, Plan, UnitPlan, UnitRef};

/// Returns true if the last update of a resource by `update` units is complete, or there was none.
pub(super) fn is_updated(plan: &Plan, name: &str, is_done: &impl Fn(UnitRef) -> bool) -> bool {
    let last = last_update(plan, name).map(HookName::Update);
    let mut units = last.into_iter().flat_map(|hook| units_of(&plan.hooks, hook));
    units.all(|(at, unit)| !is_update(unit, at.hook, name) || is_done(at))
}

/// Returns the number of the last update that has `update` units of a resource.
pub(super) fn last_update(plan: &Plan, name: &str) -> Option<u32> {
    plan.hooks.iter().rev().find_map(|hook| match hook.hook {
        HookName::Update(number) if hook.units.iter().any(|unit| is_update(unit, hook.hook, name)) => Some(number),
        _ => None,
    })
}

/// Returns true for an `update` unit of a resource.
fn is_update(unit: &UnitPlan, hook: HookName, name: &str) -> bool {
    unit.stage == Some(hook) && unit.resource() == name
}
