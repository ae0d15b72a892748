//! Checks what `ebb why` says about targets that wait.

use ebb_api::queries::why::{CONTINUED, why};
use ebb_flow::FlowError;

use super::*;

pub(super) type SeenPhase = (String, String);

/// Checks the summary of each target that is neither ready nor gone. It names a unit of the target, or the sweep that
/// continues the target, which is then due. Each phase of an instance is checked once, and `seen` has those.
///
/// The check reads a copy of the table by a function instance of its own, and no relay responds to it, so it changes nothing.
pub(super) fn check(simulation: &Simulation, seen: &mut BTreeSet<SeenPhase>) {
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
    let Some(env) = reader(simulation, table.store()).map(Arc::new) else { return };
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

/// Returns the environment of a function that only reads. Its clock is right.
fn reader(simulation: &Simulation, store: Arc<Store>) -> Option<Env> {
    let executor = Arc::new(SimExecutor {
        runtime: simulation.runtime.clone(),
        functions: Arc::clone(&simulation.functions),
        ledger: Arc::clone(&simulation.ledger),
        faults: Arc::new(FaultInjector::none()),
    });
    let clock = Arc::new(SimClock(simulation.runtime.clone(), 0));
    Some(Env {
        store,
        clock,
        relay: Arc::new(simulation.relay.silent(executor)),
        ..simulation.functions.new_instance()?
    })
}
