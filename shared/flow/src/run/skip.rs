//! Decides which units are skipped because of an update.

use ebb_documents::plan::{Plan, UnitPlan, UnitRef};
use ebb_engine::{Hook, Unit, UnitProgress};

use crate::run::invocation_cache::InvocationCache;
use crate::{Env, FlowResult, Run};

/// Returns the reason to skip a unit, or `None`.
pub async fn reason(env: &Env, run: &Run, unit: &UnitPlan, cache: &InvocationCache) -> FlowResult<Option<String>> {
    match done_before(env, run, unit, cache).await? {
        None => incomplete(env, run, unit, cache).await,
        done => Ok(done),
    }
}

/// Returns the reason to skip a unit if an update has done the same. After a late success, the unit runs again, because the
/// undo of the update did not remove that result.
async fn done_before(env: &Env, run: &Run, unit: &UnitPlan, cache: &InvocationCache) -> FlowResult<Option<String>> {
    let mut done = None;
    for undo in &unit.unless {
        let update = cache.earlier_run(env, run, undo.hook).await?;
        if update.success(Unit(undo.unit)).is_some() {
            done = Some(format!("run {} has done this", update.id));
        }
    }
    if done.is_none() {
        return Ok(None);
    }
    for undone in &unit.undoes {
        let earlier = cache.earlier_run(env, run, undone.hook).await?;
        if earlier.head.as_ref().is_some_and(|head| head.late_marks(Unit(undone.unit)) > 0) {
            return Ok(None);
        }
    }
    Ok(done)
}

/// Returns the reason to skip a unit of preStop whose resource has an incomplete preStart.
async fn incomplete(env: &Env, run: &Run, unit: &UnitPlan, cache: &InvocationCache) -> FlowResult<Option<String>> {
    let plan = &run.loaded.plan;
    if plan.update.is_none() || !unit.is_plain_pre_stop(run.hook()) {
        return Ok(None);
    }
    for at in setup(plan, unit.resource()) {
        let earlier = cache.earlier_run(env, run, at.hook).await?;
        if earlier.head.as_ref().is_none_or(|head| head.status(Unit(at.unit)) != UnitProgress::Done) {
            return Ok(Some(format!("`{}` was never ready", unit.resource())));
        }
    }
    Ok(None)
}

/// Returns the preStart units of a resource in all runs.
fn setup<'a>(plan: &'a Plan, resource: &'a str) -> impl Iterator<Item = UnitRef> + 'a {
    plan.hooks.iter().flat_map(move |hook| {
        let is_setup = |unit: &UnitPlan| unit.stage.unwrap_or(hook.hook) == Hook::PreStart;
        hook.places().filter(move |(_, unit)| unit.resource() == resource && is_setup(unit)).map(|(at, _)| at)
    })
}
