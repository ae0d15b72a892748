//! Dispatches one attempt: renders its unit and sends it to its executor, unless an update is a reason to skip the unit.

use std::time::Duration;

use ebb_documents::plan::{Action, HookPlan, Plan, UnitPlan, UnitRef};
use ebb_documents::render::{self, KnownOutputs, ProducerState, RenderError, RenderedUnit};
use ebb_engine::{Attempt, Hook, Timestamp, Unit};
use ebb_protocol::{AttemptRecord, ReasonCode};
use ebb_store::AttemptUpdate;

use crate::run::relay_task::{ensure_task, prevent_start, task_body};
use crate::run::removal::{evidence, visibility};
use crate::run::request::describe::DescribedUnit;
use crate::run::request::repeat::RepeatStep;
use crate::run::request::webhook::post_webhook;
use crate::run::request::webhook_response::UnitAnswers;
use crate::run::request::{describe, infrakit, question, repeat};
use crate::run::undo::{NoDispatch, UndoneResult};
use crate::run::{AttemptContext, inputs, rendered_unit, slots, undo};
use crate::{AttemptEnd, AttemptSuccess, AttemptWakeup, DispatchOutcome, DispatchReason, FlowError, FlowResult};

/// Renders and dispatches an attempt. The call is idempotent: receivers recognise an attempt by its name, so a
/// repetition returns its state. The failure of a receiver is an outcome, not an error.
pub async fn send(context: AttemptContext<'_>, reason: DispatchReason) -> FlowResult<DispatchOutcome> {
    let mut outcome = Box::pin(dispatch(context, reason)).await?;
    if let Some(AttemptEnd::Failed(failure)) = &mut outcome.end
        && !failure.is_made
        && match failure.reason.code {
            ReasonCode::NotStartable | ReasonCode::Render => failure.evidence.is_none(),
            ReasonCode::Connect => failure.is_unsent,
            _ => false,
        }
    {
        failure.is_unsent = is_only_dispatcher(context, failure.reason.code).await?;
    }
    Ok(outcome)
}

/// Returns true if the record of an attempt that failed before its request shows each other dispatcher that may have sent one. Only
/// a first attempt that was not postponed can have one that has recorded nothing. A webhook that cannot be rendered has none: a
/// dispatcher without a lease would have rendered the same. Without a connection, the first sender is certain: each further one
/// records a lease. A relay keeps a record of its own.
async fn is_only_dispatcher(context: AttemptContext<'_>, failure: ReasonCode) -> FlowResult<bool> {
    if failure == ReasonCode::Connect {
        return Ok(context.read_record().await?.unwrap_or_default().has_one_request());
    }
    if context.unit.action.is_relayed() || !context.unit.undoes.is_empty() {
        return Ok(false);
    }
    let is_postponed = |record: AttemptRecord| record.next_dispatch.is_some();
    let is_recorded = context.attempt.number > Attempt::FIRST
        || (failure == ReasonCode::Render && matches!(context.unit.action, Action::Webhook(_)));
    Ok(is_recorded || context.read_record().await?.is_some_and(is_postponed))
}

async fn dispatch(context: AttemptContext<'_>, reason: DispatchReason) -> FlowResult<DispatchOutcome> {
    let AttemptContext { env, run, unit, .. } = context;
    let (mut known, undone) = match unit_inputs(context).await? {
        Ok(inputs) => inputs,
        Err(NoDispatch::Skipped(why)) => return Ok(DispatchOutcome::ended(AttemptEnd::Skipped(why))),
        Err(NoDispatch::Later(at)) => return context.postpone(at, None).await,
    };
    let facts = run.target_facts();
    if let Some((at, why)) = Box::pin(slots::take(context, (&facts, &known))).await? {
        context.update(AttemptUpdate::Postponed(at, Some(why))).await?;
        return Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(at))));
    }
    let begun = env.now();
    if let Some(outcome) = described(context, &mut known, &undone).await? {
        return Ok(DispatchOutcome { remaining: undone.remaining, ..outcome });
    }
    let (mut rendered, mut opened) = rendered_unit::rendered(context, (&facts, &known), None);
    let is_skipped = matches!(rendered, Ok(RenderedUnit::Skipped(_)));
    if undone.is_rejected && !is_skipped && is_of_name(context) {
        return Ok(DispatchOutcome { remaining: undone.remaining, ..unmade() });
    }
    let is_repeated = matches!(&unit.action, Action::Webhook(webhook) if webhook.repeat.is_some());
    if is_repeated && !is_skipped {
        let (facts, opened_before, spent) = (facts.clone(), Vec::new(), question::reserved(env));
        let answers = UnitAnswers { attempt: context, facts, known, opened: opened_before, spent };
        match Box::pin(repeat::ask(&answers, &undone)).await? {
            Some(RepeatStep::End(outcome)) => return Ok(DispatchOutcome { remaining: undone.remaining, ..outcome }),
            Some(RepeatStep::Send(poll)) => {
                (rendered, opened) = rendered_unit::rendered(context, (&answers.facts, &answers.known), Some(&poll));
            }
            None => {}
        }
        known = answers.known;
    }
    let spent = Duration::from_millis(env.now().since(begun).0);
    if !render::reads_values(unit) {
        // This frees memory: many requests may be in progress, each for a long time.
        known.clear();
    }
    let outcome = match rendered {
        // An undo is retried, because an operator can restore the root secret.
        Err(error @ RenderError::Undecryptable { .. }) if !unit.undoes.is_empty() => {
            DispatchOutcome::failed(ReasonCode::Failed, &error.to_string())
        }
        // The setup has made nothing, so the undo has no ID.
        Err(RenderError::Missing { .. }) if undone.is_rejected => unmade(),
        Err(error) => DispatchOutcome::failed(ReasonCode::Render, &error.to_string()),
        Ok(RenderedUnit::Skipped(why)) => {
            DispatchOutcome::ended(match Box::pin(evidence::failure_of(context, None, Some(&why))).await? {
                Some(failure) => AttemptEnd::Failed(failure),
                None => AttemptEnd::Skipped(why),
            })
        }
        Ok(RenderedUnit::Webhook(request)) => {
            let answers = UnitAnswers { attempt: context, facts, known, opened, spent };
            post_webhook(answers, request, &undone, reason).await?
        }
        Ok(RenderedUnit::Infrakit(spec)) => {
            let setup = unit.undoes.first().and_then(|&at| run.loaded.plan.unit(at));
            let ((Action::Infrakit(action), _) | (_, Some(Action::Infrakit(action)))) =
                (&unit.action, setup.map(|setup| &setup.action))
            else {
                return Err(mismatch(&unit.key));
            };
            infrakit::send(context, action, (spec, opened), &undone, reason).await?
        }
        Ok(rendered) => match task_body(context, rendered) {
            Some(body) => ensure_task(context, body, undone.remaining, reason).await?,
            None => return Err(mismatch(&unit.key)),
        },
    };
    let failure = if let Some(AttemptEnd::Failed(failure)) = &outcome.end { Some(failure.reason.code) } else { None };
    let may_begin_later = match failure {
        Some(ReasonCode::NotStartable) => reason != DispatchReason::SweepRepeat,
        Some(ReasonCode::Render) => reason == DispatchReason::SweepStart,
        _ => false,
    };
    if may_begin_later && unit.action.is_relayed() && unit.undoes.is_empty() {
        return prevent_start(context, outcome).await;
    }
    Ok(DispatchOutcome { remaining: undone.remaining, ..outcome })
}

/// Returns the end of an undo whose setup was rejected.
fn unmade() -> DispatchOutcome {
    let removal = Some(evidence::of_rejection());
    DispatchOutcome::ended(AttemptEnd::Succeeded(AttemptSuccess { removal, ..AttemptSuccess::default() }))
}

/// Returns true for an undo by a request that names nothing of its own target. What it would delete can be of another one.
fn is_of_name(context: AttemptContext<'_>) -> bool {
    let unit = context.unit;
    let reads_own = unit.reads.iter().any(|read| unit.undoes.contains(&read.at));
    matches!(unit.action, Action::Webhook(_)) && !reads_own && !context.names_own(&unit.action)
}

/// Adds the outputs that an undo lacks to `known`, by `describe` of the setup. Returns the outcome if the undo has nothing to
/// do, or cannot act now.
async fn described(
    context: AttemptContext<'_>,
    known: &mut KnownOutputs,
    undone: &UndoneResult,
) -> FlowResult<Option<DispatchOutcome>> {
    // A setup whose requests were rejected has made nothing.
    if undone.is_rejected {
        return Ok(None);
    }
    Ok(match Box::pin(describe::undone_unit(context, known)).await? {
        Some(DescribedUnit::Found(at, produced)) => {
            known.insert(at, produced);
            None
        }
        // The request of a unit that waits for a state was answered, and is not sent again.
        Some(DescribedUnit::Unknown(_)) if context.read_record().await?.is_some_and(|record| record.wait.is_some()) => {
            Some(context.repeat(describe::RETRY_SECONDS).await?)
        }
        Some(DescribedUnit::Unknown(why)) => Some(DispatchOutcome::failed(ReasonCode::Failed, &why)),
        // A request may still be processed, or its thing may not be shown yet.
        Some(DescribedUnit::Missing(_)) if undone.may_act_until > context.env.now() => {
            Some(context.postpone(undone.may_act_until, None).await?)
        }
        Some(DescribedUnit::Missing(_)) if undone.shown_by > context.env.now() => {
            Some(context.postpone(undone.shown_by, Some(visibility::SHOWN_LATER)).await?)
        }
        Some(DescribedUnit::Missing(evidence)) => {
            let found_nothing = undone.may_act_until > Timestamp(0);
            let success = AttemptSuccess { removal: Some(evidence), found_nothing, ..AttemptSuccess::default() };
            Some(DispatchOutcome::ended(AttemptEnd::Succeeded(success)))
        }
        None => None,
    })
}

/// What is known before an attempt is rendered.
pub type UnitInputs = Result<(KnownOutputs, UndoneResult), NoDispatch>;

/// Reads the inputs of an attempt. Those of an undo include what it removes. Nothing is written.
pub async fn unit_inputs(context: AttemptContext<'_>) -> FlowResult<UnitInputs> {
    let AttemptContext { env, run, unit, cache, .. } = context;
    let why = match done_before(context).await? {
        None => incomplete(context).await?,
        done => done,
    };
    if let Some(why) = why {
        return Ok(Err(NoDispatch::Skipped(why)));
    }
    let mut known = inputs::read_inputs(env, run, unit, cache).await?;
    if unit.undoes.is_empty() {
        return Ok(Ok((known, UndoneResult::default())));
    }
    let (made, undone) = match undo::decide(context).await? {
        Ok(decided) => decided,
        Err(why) => return Ok(Err(why)),
    };
    known.extend(undo::undo_inputs(context, made).await?);
    // The unit has no outputs because it was skipped. The undo still removes the resources of the other units.
    let skipped = known.values_mut().filter(|produced| **produced == ProducerState::Skipped);
    skipped.for_each(|produced| *produced = ProducerState::Absent);
    Ok(Ok((known, undone)))
}

/// Returns the reason to skip a unit if an update has done the same. After a late success, the unit runs again, because the
/// undo of the update did not remove that result.
async fn done_before(AttemptContext { env, run, unit, cache, .. }: AttemptContext<'_>) -> FlowResult<Option<String>> {
    let mut done = None;
    for undo in &unit.unless {
        let update = cache.earlier_run(env, run, undo.hook).await?;
        // A verification shows that the undo has removed nothing, or that nothing is known.
        let plan = run.loaded.plan.hook_plan(undo.hook);
        let is_after = |other: &UnitPlan| other.verifies && other.dependencies.contains(&undo.unit);
        let verified = plan.into_iter().flat_map(HookPlan::places).filter(|(_, other)| is_after(other));
        let mut all = verified.map(|(at, _)| Unit(at.unit)).chain([Unit(undo.unit)]);
        if all.all(|unit| update.success(unit).is_some()) {
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
async fn incomplete(AttemptContext { env, run, unit, cache, .. }: AttemptContext<'_>) -> FlowResult<Option<String>> {
    let plan = &run.loaded.plan;
    if plan.update.is_none() || !unit.is_plain_pre_stop(run.hook()) {
        return Ok(None);
    }
    for at in setup(plan, unit.resource()) {
        let earlier = cache.earlier_run(env, run, at.hook).await?;
        if !earlier.lets_pass(Unit(at.unit)) {
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

fn mismatch(key: &str) -> FlowError {
    FlowError::Broken(format!("the rendered unit {key} does not match its action"))
}
