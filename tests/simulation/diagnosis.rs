//! Checks what `ebb why` says about targets that wait.

use ebb_api::queries::why::{CONTINUED, why};
use ebb_flow::FlowError;

use super::*;

/// Checks the summary of each target that is neither ready nor gone. It names a unit of the target, or the sweep that
/// continues the target, which is then due. Each phase of an instance is checked once, and `seen` has those.
///
/// The check reads a copy of the table by a function instance of its own, and no relay responds to it, so it changes nothing.
pub(super) fn check(simulation: &Simulation, seen: &mut BTreeSet<(String, String)>) {
    let mut waiting: Vec<TargetHead> = {
        let state = simulation.table.state();
        let waits = |target: &&TargetHead| !matches!(target.phase, TargetPhase::Ready | TargetPhase::Gone);
        state.targets.values().filter(waits).cloned().collect()
    };
    waiting.retain(|target| seen.insert((target.uid.clone(), format!("{:?} {:?}", target.phase, target.hook))));
    if waiting.is_empty() {
        return;
    }
    let table = Arc::new(simulation.table.copy());
    let faults = Arc::new(FaultInjector::none());
    let executor = Arc::new(SimExecutor { faults, ..SimExecutor::clone(&simulation.platform.0) });
    let (store, relay) = (table.store(), Arc::new(simulation.relay.silent(executor)));
    // Its clock is right.
    let clock = Arc::new(SimClock(simulation.runtime.clone(), 0));
    let Some(instance) = simulation.functions.new_instance() else { return };
    let env = Arc::new(Env { store, clock, relay, ..instance });
    for target in waiting {
        let (env, of) = (Arc::clone(&env), target.clone());
        let explained = simulation.runtime.run(async move {
            let units = env.plan_of(&of).await?;
            let summary = why(&env, of).await?.summary;
            let mut units = units.plan.hooks.iter().flat_map(|hook| &hook.units);
            let is_named = units.any(|unit| summary.contains(&unit.key));
            Ok::<_, FlowError>((summary, is_named))
        });
        let wrong = match explained {
            Some(Ok((_, true))) => continue,
            Some(Ok((summary, false))) if summary.contains(CONTINUED) && is_due(&table.state(), &target) => continue,
            Some(Ok((summary, false))) => format!("names no unit: {summary}"),
            Some(Err(error)) => format!("fails: {error}"),
            None => "does not end".to_owned(),
        };
        simulation.ledger.report_violation(format!("{} is {:?}, and `why` {wrong}", target.uid, target.phase));
    }
}

/// Returns true if a sweep will find the target, or one of its runs.
fn is_due(table: &TableState, target: &TargetHead) -> bool {
    let instance = target.instance_key();
    table.due().any(|(_, due)| match due {
        DueItem::Run(run) => run.as_str().starts_with(&instance),
        DueItem::Target(_, name) => name == target.name,
        DueItem::Desired(_) | DueItem::Source(_) => false,
    })
}
