//! Units that delete objects. The compiler adds one to postStop for each object unit of preStart and postStart. They
//! undo their unit like any other undo, and are last in the list.

use super::defaults::{BACKOFF_MS, TIMEOUT_MS, attempts, max_backoff};
use crate::plan::{Action, HookName, HookPlan, Plan, RetryPolicy, UnitPlan, UnitRef};

/// The suffix to the name of the unit whose objects are deleted. Names in documents contain no full stop.
const SUFFIX: &str = ".removal";

/// Returns true if a unit's objects stay until a removal.
pub(super) fn is_kept(hook: HookName, action: &Action) -> bool {
    hook <= HookName::PostStart && matches!(action, Action::Object(_))
}

/// Adds the removals to the plan, without their order.
pub(super) fn add(plan: &mut Plan) {
    let kept = plan.hooks.iter().flat_map(|hook| {
        hook.units.iter().zip(0..).filter_map(|(unit, number)| {
            let at = UnitRef { hook: hook.hook, unit: number };
            is_kept(hook.hook, &unit.action).then(|| removal(unit, at))
        })
    });
    let removals: Vec<UnitPlan> = kept.collect();
    if removals.is_empty() {
        return;
    }
    match plan.hooks.iter_mut().find(|hook| hook.hook == HookName::PostStop) {
        Some(hook) => hook.units.extend(removals),
        // It is the last hook of the lifecycle, so it is the last in the list.
        None => plan.hooks.push(HookPlan { hook: HookName::PostStop, units: removals }),
    }
}

fn removal(unit: &UnitPlan, at: UnitRef) -> UnitPlan {
    let hook = HookName::PostStop;
    UnitPlan {
        key: format!("{}{SUFFIX}", unit.key),
        action: Action::Removal,
        cluster: unit.cluster.clone(),
        dependencies: Vec::new(),
        reads: Vec::new(),
        when: None,
        inputs: Vec::new(),
        outputs: Default::default(),
        undoes: vec![at],
        ordered_after: Vec::new(),
        // Objects that take long to create take long to delete.
        timeout_ms: unit.timeout_ms.max(TIMEOUT_MS),
        retry: RetryPolicy {
            attempts: attempts(hook),
            backoff_ms: BACKOFF_MS,
            max_backoff_ms: max_backoff(hook),
            on: Vec::new(),
        },
        source: unit.source.clone(),
    }
}
