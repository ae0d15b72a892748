//! Units that delete objects, and units that destroy resources of InfraKit. The compiler adds one to postStop for each
//! object unit and each `infrakit` unit of preStart and postStart. They undo their unit like any other undo, and are last
//! in the list.

use std::collections::BTreeMap;

use ebb_engine::Hook;

use super::checked::{BoundResource, CompiledUnit};
use super::defaults::{
    BACKOFF_MS, MAX_BACKOFF_MS, REMOVAL_ATTEMPTS, REMOVAL_TIMEOUT_MS, TIMEOUT_MS, attempts, max_backoff,
};
use crate::plan::{Action, HookPlan, Plan, RequiredEvidence, RetryPolicy, UnitPlan, UnitRef};

/// The suffix to the name of the unit that is undone. Names in documents contain no full stop.
const SUFFIX: &str = ".removal";

pub(super) fn is_kept(unit: &CompiledUnit<'_>) -> bool {
    let made = match &unit.plan.action {
        Action::Object(_) => true,
        Action::Infrakit(_) => unit.doc.cleanup.is_none(),
        Action::Pod(_) | Action::Webhook(_) | Action::Removal | Action::Destroy => false,
    };
    made && unit.hook <= Hook::PostStart
}

/// Adds the undos to the plan, without their order.
pub(super) fn add(plan: &mut Plan, instances: &[BoundResource<'_>]) {
    let units = instances.iter().flat_map(|instance| {
        let units = instance.checked.units.iter().zip(&instance.unit_refs);
        units.map(move |(unit, at)| (unit, *at, instance.checked.required_evidence()))
    });
    let kept: BTreeMap<UnitRef, Option<RequiredEvidence>> =
        units.filter(|(unit, ..)| is_kept(unit)).map(|(_, at, evidence)| (at, evidence)).collect();
    let undos = kept.into_iter().filter_map(|(at, evidence)| Some(UnitPlan { evidence, ..undo(plan.unit(at)?, at) }));
    let undos: Vec<UnitPlan> = undos.collect();
    match plan.hooks.iter_mut().find(|hook| hook.hook == Hook::PostStop) {
        Some(hook) => hook.units.extend(undos),
        None if undos.is_empty() => {}
        // It is the last hook of the lifecycle, so it is the last in the list.
        None => plan.hooks.push(HookPlan { hook: Hook::PostStop, units: undos }),
    }
}

fn undo(unit: &UnitPlan, at: UnitRef) -> UnitPlan {
    let hook = Hook::PostStop;
    let (action, reads, attempts, max_backoff_ms, least_timeout_ms) = match unit.action {
        // A plugin gets the rendered properties and tags to find its resource.
        Action::Infrakit(_) => (Action::Destroy, unit.reads.clone(), attempts(hook), max_backoff(hook), TIMEOUT_MS),
        _ => (Action::Removal, Vec::new(), REMOVAL_ATTEMPTS, MAX_BACKOFF_MS, REMOVAL_TIMEOUT_MS),
    };
    let retry = RetryPolicy { attempts, backoff_ms: BACKOFF_MS, max_backoff_ms, ..RetryPolicy::default() };
    UnitPlan {
        key: match unit.key.split_once('[') {
            Some((key, entry)) => format!("{key}{SUFFIX}[{entry}"),
            None => format!("{}{SUFFIX}", unit.key),
        },
        entry: unit.entry.clone(),
        action,
        cluster: unit.cluster.clone(),
        reads,
        undoes: vec![at],
        // A resource that takes long to create takes long to delete.
        timeout_ms: unit.timeout_ms.max(least_timeout_ms),
        retry,
        source: unit.source.clone(),
        ..UnitPlan::default()
    }
}
