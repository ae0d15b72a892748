//! Sending one unit: it is rendered, and sent to where it runs.

use ebb_documents::plan::UnitRef;
use ebb_documents::render::{self, ProducerState, RenderedUnit, SkipReason};
use ebb_engine::Timestamp;
use ebb_protocol::callback::ReasonCode;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::AttemptRef;
use crate::run::attempt_end::AttemptEnd;
use crate::run::dispatch_outcome::{DispatchOutcome, DispatchReason};
use crate::run::head::Run;
use crate::run::inputs::{self, InvocationCache};
use crate::run::relay_task::{ensure, ensure_task, task_body};
use crate::run::undo::{self, UndoDecision};
use crate::run::wakeup::{AttemptWakeup, postpone, record_start};
use crate::run::webhook::{WebhookDispatch, post_webhook};

/// Renders and sends a try. Idempotent: the receiver knows a try by its name, so a repetition only asks for its state.
///
/// # Errors
/// The store's. A receiver that fails is an answer, not an error.
pub async fn send(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    memory: &InvocationCache,
    sender: DispatchReason,
) -> Result<DispatchOutcome, FlowError> {
    let Some(unit) = run.unit(this.unit) else {
        return Err(FlowError::Broken(format!("run {} has no unit {}", run.id, this.unit.0)));
    };
    let mut known = inputs::read_inputs(env, run, unit, memory).await?;
    let mut more = 0;
    let mut possible = Timestamp(0);
    if !unit.undoes.is_empty() {
        match undo::decide(env, run, unit, this, memory).await? {
            UndoDecision::Nothing(why) => return Ok(DispatchOutcome::ended(AttemptEnd::Skipped(why))),
            UndoDecision::Later(at) => {
                postpone(env, run, this, at).await?;
                return Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(at))));
            }
            UndoDecision::Remove { made, remaining: further, may_act_until: until } => {
                known.extend(undo::undo_inputs(env, unit, made).await?);
                // A skipped unit has no outputs. The undo removes what the other units made all the same.
                let skipped = known.values_mut().filter(|produced| **produced == ProducerState::Skipped);
                skipped.for_each(|produced| *produced = ProducerState::Absent);
                more = further;
                possible = until;
            }
        }
    }
    let at = UnitRef { hook: run.hook().into(), unit: this.unit.0 };
    let rendered = render::unit(&run.loaded.plan, &run.loaded.compiled, at, &run.target_facts(), &known);
    // Many requests may be under way at a time, and each may take long.
    drop(known);
    let sent = match rendered {
        Err(error) => DispatchOutcome::failed(ReasonCode::Render, &error.to_string()),
        Ok(RenderedUnit::Skipped(reason)) => DispatchOutcome::ended(AttemptEnd::Skipped(skip_text(&reason))),
        Ok(RenderedUnit::Webhook(request)) => {
            let call = WebhookDispatch { request, remaining: more, may_act_until: possible };
            post_webhook(env, run, this, unit, call, sender).await?
        }
        Ok(rendered) => match task_body(run, this, unit, rendered) {
            Some(work) => ensure_task(env, run, this, ensure(env, run, this, unit, work, more), sender).await?,
            None => return Err(FlowError::Broken(format!("{} is rendered as what it is not", unit.key))),
        },
    };
    if sender == DispatchReason::SweepStart
        && unit.action.is_relayed()
        && matches!(sent.end, Some(AttemptEnd::Failed(_)))
    {
        // An earlier sender may have reached the relay.
        record_start(env, run, this).await?;
    }
    Ok(DispatchOutcome { remaining: more, ..sent })
}

fn skip_text(reason: &SkipReason) -> String {
    match reason {
        SkipReason::WhenFalse => "its `when` is false".to_owned(),
        SkipReason::ReadsSkipped { unit, output } => {
            format!("it reads output `{output}` of `{unit}`, which was skipped")
        }
    }
}
