//! Reopens units: undos after a late success, and failed units that an operator retries.
//!
//! 1. Move the target back to the phase of the run. A later phase of the target stays unchanged.
//! 2. Start the next attempt of each unit.
//! 3. Make the run due.
//!
//! After a crash in between, the target is in the phase of its run and the run is closed. [`crate::advance::retry`],
//! which `sweep` calls for such a target, or the repetition of the late result then continues.

use std::time::Duration;

use ebb_documents::plan::{Action, UnitPlan};
use ebb_engine::retry::{next_block, next_pass};
use ebb_engine::{Attempt, AttemptRef, Epoch, HeadState, RunEvent, RunPhase, UnitProgress, accept, in_flight};
use ebb_protocol::{AttemptResult, FailureReason, Hook, RunId, TargetPhase, Unit};
use ebb_store::{AttemptUpdate, NotificationState, PatchResult, ReceiverState};

use crate::instance::{change_watch, due, outbox, retention};
use crate::run::{AttemptContext, AttemptEnd, AttemptSuccess, InvocationCache, records};
use crate::{Env, FlowError, FlowResult, QueueMessage, Run, loaded_run};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReopenCause {
    /// An operator retries failed units. A unit with a further attempt has already been retried.
    Retry,
    /// An undo has to read a late success. An attempt of the undo that began meanwhile may not have read it.
    LateSuccess,
}

/// Starts the next attempt of `units`, even if their run is closed, and moves a failed, stuck or gone target back to
/// the phase of the run. Returns false if the run does not exist, or the target has moved on. The call can be repeated.
pub async fn reopen(env: &Env, id: &RunId, units: &[Unit], cause: ReopenCause) -> FlowResult<bool> {
    // The epoch is read before the target: a later deletion cancels this epoch, and with it the writes below.
    let Some((run, head)) = Run::load_with_head(env, id).await? else { return Ok(false) };
    reopen_seen(env, &run, &head, units, cause).await
}

/// Does the same as [`reopen`], for a run that was read as `head`.
pub async fn reopen_seen(
    env: &Env,
    run: &Run,
    head: &HeadState,
    units: &[Unit],
    cause: ReopenCause,
) -> FlowResult<bool> {
    if !restore_target(env, run, false).await? {
        return Ok(false);
    }
    record_removals(env, run, head, units).await?;
    if cause == ReopenCause::LateSuccess {
        record_followers(env, run, head, units).await?;
    }
    for &unit in units {
        reopen_unit(env, run, head, unit, cause).await?;
    }
    wake_run(env, run, head.epoch).await?;
    Ok(true)
}

/// Records the success of each undo that is done without a record. *Not found* in the next pass is then no first answer.
async fn record_removals(env: &Env, run: &Run, head: &HeadState, units: &[Unit]) -> FlowResult<()> {
    let is_request =
        |plan: &UnitPlan| !plan.undoes.is_empty() && matches!(plan.action, Action::Webhook(_)) && !plan.only_asks();
    let is_done = |&unit: &Unit| head.status(unit) == UnitProgress::Done && run.unit(unit).is_some_and(is_request);
    let done: Vec<Unit> = units.iter().copied().filter(is_done).collect();
    let records = env.store.read_records(&run.id, &done).await?;
    let cache = InvocationCache::default();
    for unit in done {
        let last = AttemptRef { unit, number: head.attempt(unit), epoch: head.epoch };
        let is_last = |of: Unit, number: Attempt| (of, number) == (unit, last.number);
        if !records.iter().any(|(of, number, record)| is_last(*of, *number) && record.result.is_some()) {
            let context = AttemptContext::new(env, run, last, &cache)?;
            records::put(context, &AttemptEnd::Succeeded(AttemptSuccess::default()), None).await?;
        }
    }
    Ok(())
}

/// Records that the units after `units` may have started. The graph does not show it until `units` are done again: a cancel
/// would take them for units that never started, and a further success of `units` would send their requests again.
async fn record_followers(env: &Env, run: &Run, head: &HeadState, units: &[Unit]) -> FlowResult<()> {
    let is_after = |unit: Unit| run.graph().dependencies(unit).iter().any(|before| units.contains(before));
    for (unit, attempt) in in_flight(run.graph(), head) {
        if attempt == Attempt::FIRST && is_after(unit) {
            // The relay reports the start of a task.
            let update = match run.is_relayed(unit) {
                true => AttemptUpdate::Heartbeat(env.now(), None),
                false => AttemptUpdate::Started(env.now()),
            };
            env.store.update_attempt(&run.id, unit, attempt, &update).await?;
        }
    }
    Ok(())
}

async fn reopen_unit(env: &Env, run: &Run, head: &HeadState, unit: Unit, cause: ReopenCause) -> FlowResult<()> {
    let mut seen = AttemptRef { unit, number: head.attempt(unit), epoch: head.epoch };
    for _ in 0..crate::ATTEMPTS {
        let event = RunEvent::Reopened { seen, to: next_attempt(run, unit, seen.number) };
        let PatchResult::ConditionFailed(Some(present)) = env.store.patch_run(&run.id, &accept(event)).await? else {
            return Ok(());
        };
        let current = present.head.attempt(unit);
        // Another epoch means that the run was cancelled.
        if present.head.epoch != seen.epoch || cause != ReopenCause::LateSuccess || current == seen.number {
            return Ok(());
        }
        seen.number = current;
    }
    Err(FlowError::Contended(format!("run {}", run.id)))
}

/// Completes `units` of a teardown run, even if it is closed: each gets an attempt whose result has the reason. Moves
/// the target back to the run, which continues. Returns false if the target has moved on. The call can be repeated.
pub async fn override_units(
    env: &Env,
    run: &Run,
    head: &HeadState,
    units: &[Unit],
    reason: &FailureReason,
) -> FlowResult<bool> {
    if !restore_target(env, run, true).await? {
        return Ok(false);
    }
    let cache = InvocationCache::default();
    for &unit in units {
        let mut attempt = AttemptRef { unit, number: head.attempt(unit), epoch: head.epoch };
        if head.status(unit) == UnitProgress::Failed {
            let to = next_attempt(run, unit, attempt.number);
            // The override is recorded after this write. If this function is interrupted in between, a retry executes
            // the attempt.
            env.store.patch_run(&run.id, &accept(RunEvent::Reopened { seen: attempt, to })).await?;
            attempt.number = to;
        }
        let end = AttemptEnd::Skipped(String::new());
        let context = AttemptContext::new(env, run, attempt, &cache)?;
        let (result, _) = records::build_result(context, &end, None).await?;
        let result = AttemptResult { reason: Some(reason.clone()), ..result };
        env.store.put_result(&run.id, unit, attempt.number, &result).await?;
        env.store.patch_run(&run.id, &accept(RunEvent::Succeeded(attempt))).await?;
    }
    wake_run(env, run, head.epoch).await?;
    Ok(true)
}

/// Returns the attempt with which a reopened unit continues. An undo begins a new pass over all results.
fn next_attempt(run: &Run, unit: Unit, attempt: Attempt) -> Attempt {
    let Some(plan) = run.unit(unit) else { return next_block(attempt, 1) };
    let next = if plan.undoes.is_empty() { next_block } else { next_pass };
    next(attempt, plan.retry.attempts)
}

/// Makes the run due now, and opens it if it is closed. The version changes, so a concurrent close or reschedule fails.
async fn wake_run(env: &Env, run: &Run, epoch: Epoch) -> FlowResult<()> {
    let is_written = loaded_run::patch_head(env, &run.id, |head| {
        let is_over = head.epoch != epoch || head.phase == RunPhase::Cancelling;
        (!is_over).then(|| accept(RunEvent::RunReopened { due: env.now(), version: head.version, epoch }))
    });
    if is_written.await? {
        env.queue.send(QueueMessage::Run(run.id.clone()), Duration::ZERO).await;
    }
    Ok(())
}

/// Moves a stuck, failed or gone target back to the phase of `run`. Returns false if the run must not continue, because the
/// teardown of the target has begun, which undoes this run. A run of the teardown may undo resources of an ended instance.
/// `is_override` is true if an override opens the run.
pub(crate) async fn restore_target(env: &Env, run: &Run, is_override: bool) -> FlowResult<bool> {
    let facts = &run.facts;
    let is_teardown = run.hook().is_teardown();
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(facts.target_key()).await?;
        let Some(seen) = seen.filter(|seen| seen.uid == facts.uid) else { return Ok(is_teardown) };
        // The data of the run is being removed, so the target would wait for it forever.
        if retention::is_removed(&seen) {
            return Ok(false);
        }
        let is_last = seen.hook == Some(run.hook());
        let phase = match (seen.phase, run.hook()) {
            (TargetPhase::Stuck | TargetPhase::Gone, Hook::PreStop | Hook::PostStop) if is_last => {
                TargetPhase::Stopping
            }
            (TargetPhase::Failed, Hook::PreStart) if is_last => TargetPhase::Starting,
            (TargetPhase::Failed, Hook::PostStart) if is_last => TargetPhase::Ready,
            (TargetPhase::Failed, Hook::Update(_)) if is_last => TargetPhase::Updating,
            (TargetPhase::Starting, Hook::PreStart)
            | (TargetPhase::Ready, Hook::PostStart)
            | (TargetPhase::Updating, Hook::Update(_)) => return Ok(is_last),
            _ => return Ok(is_teardown),
        };
        // The last notification is obsolete: a target whose units after ready run again is ready.
        let ready = phase == TargetPhase::Ready && env.settings.platform_url.is_some();
        let notification = ready.then(|| NotificationState::Due(ReceiverState::default()));
        let rules = outbox::rules(env).await?;
        let since = seen.change_time(env.now());
        let transition = seen.update(|target| {
            (target.phase, target.since, target.notification) = (phase, since, notification);
            target.ready_since = None;
            target.first_cause = None;
            target.unconfirmed = 0;
            target.is_overridden |= is_override;
            target.is_reopened = true;
            let change = (target.phase.into(), target.since);
            outbox::append(target, &rules, &run.loaded.plan.target, change);
            target.due = due::next_due(env, target);
        });
        if env.store.move_target(&transition).await? {
            outbox::announce_any(env, &transition.target).await;
            Box::pin(change_watch::note(env, facts.target_key())).await;
            if ready {
                env.queue.send(QueueMessage::Target(facts.kind.clone(), facts.name.clone()), Duration::ZERO).await;
            }
            return Ok(true);
        }
    }
    Err(FlowError::Contended(facts.target_key().to_string()))
}
