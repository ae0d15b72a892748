//! Begins the run that waits for the end of another run of the target: of an update first, then of an event.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::compile::{self, PlanUpdate, UpdateError};
use ebb_documents::plan::{Plan, UnitRef};
use ebb_engine::target::{PhaseChange, next_event, update as decide_update};
use ebb_engine::{Hook, RunPhase, TargetPhase, lets_pass};
use ebb_protocol::{ErrorCode, HistoryChange, TargetKey, limits};
use ebb_store::{PendingUpdate, RefusedUpdate, TargetHead};

use crate::advance::policy_check::{CheckedUpdate, check_replacements};
use crate::advance::{Continuation, transition};
use crate::instance::requester::check_losses;
use crate::instance::target_document::load_plan;
use crate::instance::{due, history, rejected_events};
use crate::{CompiledPlan, Env, FlowError, FlowResult, Rejection, RequestError, Run};

/// Begins the update that waits for the end of a run, unless a run of the target is active. Returns the continuation of
/// the run that has begun.
///
/// Only a scheduled sweep lists the refused update of a source as rejected. Before that, the update waits.
pub(crate) async fn start_update(
    env: &Env,
    is_scheduled: bool,
    key: TargetKey<'_>,
) -> FlowResult<Option<Continuation>> {
    for _ in 0..crate::ATTEMPTS {
        let Some(target) = env.store.read_target(key).await? else { return Ok(None) };
        let Some(pending) = target.pending_update.clone() else { return Ok(None) };
        if !is_updatable(env, &target).await? {
            return Ok(None);
        }
        let current = env.plan_of(&target).await?;
        let wanted = env.plan(&target.update_key(&pending), &pending.plan).await?;
        let other_key = pending.routing_key.is_some() && pending.routing_key != target.routing_key;
        let plans = (&*current, &wanted.plan);
        let merged = match merge(env, &target, false, plans).await {
            Ok(None) if other_key => rekeyed(env, &target, plans).await.map(Some),
            merged => merged,
        };
        // The policy, and what exists, may have changed since the update was accepted.
        let checked = match merged {
            Ok(Some(update)) => {
                let request = (pending.keeps_resources, pending.since, env.now());
                match check_losses(&target, &current.plan, &update, request) {
                    Ok(()) => Box::pin(check_replacements(env, &target, plans, update)).await.map(Some),
                    Err(refused) => Err(refused.into()),
                }
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let ended = match checked {
            Ok(Some(update)) => begin(env, &target, &pending, update, None).await?,
            Ok(None) => withdraw_update(env, &target, pending.generation, None).await?,
            Err(RequestError::Failed(error)) => return Err(error),
            Err(RequestError::Rejected(rejection)) => {
                let reason = limits::message(&rejection.to_string());
                if target.source.is_some() {
                    if !is_scheduled {
                        return Ok(None);
                    }
                    Box::pin(rejected_events::note_refused_update(env, &target, &reason)).await?;
                }
                tracing::error!(kind = key.kind, name = key.name, reason, "cannot apply the update that has waited");
                let refused = RefusedUpdate { generation: pending.generation, reason };
                withdraw_update(env, &target, target.generation, Some(refused)).await?
            }
        };
        if let Some(continuation) = ended {
            return Ok(continuation);
        }
    }
    Err(FlowError::Contended(key.to_string()))
}

/// Ends the wait of an update that changes nothing or is refused, and begins the first waiting event. The target gets the
/// generation. Returns the continuation of the run that has begun, or `None` if the target has changed meanwhile.
pub(crate) async fn withdraw_update(
    env: &Env,
    target: &TargetHead,
    generation: u64,
    refused: Option<RefusedUpdate>,
) -> FlowResult<Option<Option<Continuation>>> {
    let present = env.plan_of(target).await?;
    let transition = target.update(|after| {
        after.generation = generation;
        after.expires = due::end_of(after, &present.plan, None);
        after.pending_update = None;
        after.refused_update = refused;
        after.due = due::next_due(env, after);
    });
    match env.store.move_target(&transition).await? {
        true => start_event(env, target.target_key()).await.map(Some),
        false => Ok(None),
    }
}

/// Begins the run of the first waiting event, unless a run of the target is active.
pub(crate) async fn start_event(env: &Env, key: TargetKey<'_>) -> FlowResult<Option<Continuation>> {
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(key).await? else { return Ok(None) };
        let Some(step) = next_event(&transition::engine_target(&seen)) else { return Ok(None) };
        if !is_idle(env, &seen).await? {
            return Ok(None);
        }
        let loaded = env.plan_of(&seen).await?;
        let transition = Box::pin(transition::transition(env, &seen, step, &loaded, (None, None))).await?;
        if env.store.move_target(&transition).await? {
            return Box::pin(transition::after_transition(env, transition, &loaded)).await;
        }
    }
    Err(FlowError::Contended(key.to_string()))
}

/// Returns true if a target can be updated now: it lives, and none of its runs is active.
pub(crate) async fn is_updatable(env: &Env, target: &TargetHead) -> FlowResult<bool> {
    Ok(target.phase == TargetPhase::Failed || is_idle(env, target).await?)
}

/// Returns true if the target is ready and none of its runs is active.
pub(crate) async fn is_idle(env: &Env, target: &TargetHead) -> FlowResult<bool> {
    let hook = match target.hook {
        _ if target.phase != TargetPhase::Ready => return Ok(false),
        Some(hook @ (Hook::PostStart | Hook::Event(_))) => hook,
        // Without units in postStart, the run of preStart has ended.
        _ => return Ok(true),
    };
    let Some((run, head)) = Run::load_with_head(env, &target.run(hook)).await? else { return Ok(true) };
    let is_closed = head.phase == RunPhase::Closed;
    // A closed run of postStart with other units is being retried. Units of a resource that an update has removed stay as
    // they were.
    if !is_closed || hook != Hook::PostStart {
        return Ok(is_closed);
    }
    let mut open = run.graph().units().filter(|&unit| !lets_pass(run.graph(), &head, unit)).peekable();
    if open.peek().is_none() {
        return Ok(true);
    }
    let present = env.plan_of(target).await?;
    Ok(open.all(|unit| run.is_former(unit, &present)))
}

/// Returns true if the last run of a target was that of an event and nothing of it can run any more: it is closed or
/// removed, or an update has replaced its units.
pub(crate) async fn has_ended_event(env: &Env, target: &TargetHead) -> FlowResult<bool> {
    let Some(hook @ Hook::Event(_)) = target.hook else { return Ok(false) };
    let id = target.run(hook);
    let present = env.store.read_run(&id).await?;
    Ok(present.is_none_or(|present| present.head.phase == RunPhase::Closed) || Run::load(env, &id).await?.is_none())
}

/// Returns the effect of a document on the present instance of a target, or on the one that waits for its name. Returns
/// `None` if the document changes nothing.
pub(crate) async fn merge(
    env: &Env,
    target: &TargetHead,
    is_waiting: bool,
    (current, wanted): (&CompiledPlan, &Plan),
) -> Result<Option<PlanUpdate>, RequestError> {
    let done = if is_waiting { None } else { done_units(env, target, current).await? };
    let is_done = |at: UnitRef| done.as_ref().is_none_or(|done| done.contains(&at));
    compile::update(&current.plan, wanted, is_done).map_err(refused)
}

/// Checks that a document in place of the update that waits loses nothing that this update protects, as if it had begun.
pub(crate) async fn check_replaced(env: &Env, target: &TargetHead, wanted: &Plan) -> Result<(), RequestError> {
    let Some(pending) = &target.pending_update else { return Ok(()) };
    let replaced = env.plan(&target.update_key(pending), &pending.plan).await?;
    if let Some(update) = compile::update(&replaced.plan, wanted, |_| true).map_err(refused)? {
        let kept = |lost: Rejection| format!("{lost} (generation {}, which waits, protects it)", pending.generation);
        check_losses(target, &replaced.plan, &update, (false, env.now(), env.now()))
            .map_err(|lost| RequestError::refused(ErrorCode::Protected, kept(lost)))?;
    }
    Ok(())
}

/// Returns an update that changes only the routing key. An update of a failed target runs the units that are not done with
/// the new key. Without this run the target would stay failed.
pub(crate) async fn rekeyed(
    env: &Env,
    target: &TargetHead,
    (current, wanted): (&CompiledPlan, &Plan),
) -> Result<PlanUpdate, RequestError> {
    if target.phase == TargetPhase::Failed {
        let done = done_units(env, target, current).await?;
        let is_done = |at: UnitRef| done.as_ref().is_none_or(|done| done.contains(&at));
        return compile::complete(&current.plan, wanted, is_done).map_err(refused);
    }
    Ok(PlanUpdate { plan: current.plan.clone(), resources: BTreeMap::new(), lost: BTreeSet::new(), number: None })
}

/// Begins the update of a living target to a merged plan. The history keeps `text` as its document. Returns the continuation
/// of the run that has begun, or `None` if the target has changed meanwhile.
pub(crate) async fn begin(
    env: &Env,
    target: &TargetHead,
    pending: &PendingUpdate,
    CheckedUpdate { update: PlanUpdate { plan, number, .. }, stays_failed }: CheckedUpdate,
    text: Option<String>,
) -> FlowResult<Option<Option<Continuation>>> {
    let plan = load_plan(plan, text).await?;
    let state = plan.loaded.plan.update.as_ref();
    let mut changed = TargetHead {
        generation: pending.generation,
        changed_by: pending.by.clone(),
        updates: state.map_or(target.updates, |state| state.number),
        plan: plan.loaded.digest.clone(),
        plugins: plan.plugins,
        labels: TargetHead::stored_labels(&plan.loaded.plan.target.labels),
        routing_key: pending.routing_key.clone().or_else(|| target.routing_key.clone()),
        active: target.active.max(Some(pending.since)),
        pending_update: None,
        refused_update: None,
        ..target.clone()
    };
    changed.expires = due::end_of(&changed, &plan.loaded.plan, None);
    let Some(mut step) = decide_update(&transition::engine_target(&changed), number) else { return Ok(None) };
    if stays_failed {
        step = PhaseChange::reported(TargetPhase::Failed, None);
    }
    // A run of an event can begin in the same transaction. It does not apply the document.
    let document = plan.text.as_deref().filter(|_| number.is_some());
    let mut transition = Box::pin(transition::transition(env, &changed, step, &plan.loaded, (None, document))).await?;
    transition.expected_version = Some(target.version);
    if number.is_none() {
        let updated = history::entry(env, &changed, HistoryChange::Updated, transition.target.since);
        transition.entry = Some(history::applied(updated, (plan.text.as_deref(), &plan.loaded.plan)));
    }
    if !env.store.begin_instance(&transition, &target.instance_key(), plan.json.as_bytes(), env.now()).await? {
        return Ok(None);
    }
    Box::pin(transition::after_transition(env, transition, &plan.loaded)).await.map(Some)
}

/// Returns the units of a failed target that are done, or whose failure is tolerated. All units of a ready target are.
async fn done_units(env: &Env, target: &TargetHead, current: &CompiledPlan) -> FlowResult<Option<BTreeSet<UnitRef>>> {
    if target.phase != TargetPhase::Failed {
        return Ok(None);
    }
    let mut done = BTreeSet::new();
    for hook in current.lifecycle_hooks().filter(|hook| !hook.is_teardown()) {
        let Some((run, head)) = Run::load_with_head(env, &target.run(hook)).await? else { continue };
        let units = run.graph().units().filter(|&unit| lets_pass(run.graph(), &head, unit));
        done.extend(units.map(|unit| UnitRef { hook, unit: unit.0 }));
    }
    Ok(Some(done))
}

fn refused(error: UpdateError) -> RequestError {
    let code = match error {
        UpdateError::Fixed(_) => ErrorCode::FixedField,
        UpdateError::TooLarge { .. } => ErrorCode::PlanTooLarge,
    };
    RequestError::refused(code, error.to_string())
}
