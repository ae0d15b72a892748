//! The units that take objects away: one in postStop for each object that is applied before the target is ready or
//! after it. No document names them; they undo what they take away as any undo does, and come last.

use super::defaults::{BACKOFF_MS, TIMEOUT_MS, attempts, hook_name, max_backoff};
use crate::plan::{Action, HookName, HookPlan, Plan, RetryPolicy, UnitPlan, UnitRef};

/// What is behind the name of the unit whose objects are removed. No author's name has a full stop.
const SUFFIX: &str = ".removal";

/// Whether a unit's objects stay until a removal.
pub(super) fn is_kept(moment: HookName, work: &Action) -> bool {
    moment <= HookName::PostStart && matches!(work, Action::Object(_))
}

/// Adds the removals to the plan, without order.
pub(super) fn add(plan: &mut Plan) {
    let kept = plan.hooks.iter().flat_map(|event| {
        event.units.iter().zip(0..).filter_map(|(unit, number)| {
            let at = UnitRef { hook: event.hook, unit: number };
            is_kept(event.hook, &unit.action).then(|| removal(unit, at))
        })
    });
    let removals: Vec<UnitPlan> = kept.collect();
    if removals.is_empty() {
        return;
    }
    let moment = HookName::PostStop;
    match plan.hooks.iter_mut().find(|event| event.hook == moment) {
        Some(event) => event.units.extend(removals),
        // The last of a life, so the last in the list.
        None => {
            plan.hooks.push(HookPlan { event: hook_name(moment).to_owned(), hook: moment, units: removals });
        }
    }
}

fn removal(unit: &UnitPlan, at: UnitRef) -> UnitPlan {
    let moment = HookName::PostStop;
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
        // What takes long to come takes long to go.
        timeout_ms: unit.timeout_ms.max(TIMEOUT_MS),
        retry: RetryPolicy {
            attempts: attempts(moment),
            backoff_ms: BACKOFF_MS,
            max_backoff_ms: max_backoff(moment),
            on: Vec::new(),
        },
        source: unit.source.clone(),
    }
}
