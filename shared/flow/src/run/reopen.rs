//! Units that have to run once more: undos after a late success, and what an operator retries.
//!
//! Flow: the target first (a life that has moved on is left alone), then the units, then the run is made due. A crash
//! in between leaves a target in the phase of its run with a closed run: [`crate::operator::retry`] and the sender's
//! repetition go on from there.

use std::time::Duration;

use ebb_engine::retry::{next_block, next_pass};
use ebb_engine::target::Notification;
use ebb_engine::{Attempt, Epoch, Hook, RunEvent, RunPhase, RunView, Shard, TargetPhase, Unit, UnitProgress, accept};
use ebb_protocol::callback::FailureReason;
use ebb_protocol::id::RunId;
use ebb_protocol::record::AttemptResult;
use ebb_store::{NotificationState, PatchResult};

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::QueueMessage;
use crate::run::attempt_end::AttemptEnd;
use crate::run::head;
use crate::run::head::Run;
use crate::run::records;
use crate::sweep::retention;
use crate::target::due;

/// Why units have to run once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReopenCause {
    /// An operator retries what failed. A unit that has another try by now was retried already.
    Retry,
    /// An undo has to read a late success. A try that it has begun meanwhile may have counted without that.
    LateSuccess,
}

/// Starts the next try of `units` of a run, even if the run is closed, and moves a target that was given up or gone
/// back to where its run belongs. False: there is no such run, or the target's life has moved on from it.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn reopen(env: &Env, id: &RunId, units: &[Unit], cause: ReopenCause) -> Result<bool, FlowError> {
    let Some(run) = Run::load(env, id).await? else { return Ok(false) };
    // Before the target: a delete that comes later cancels this epoch, and with it what follows here.
    let view = run.read_view(env).await?;
    reopen_seen(env, &run, &view, units, cause).await
}

/// Does what [`reopen`] does, for a run that was seen as `view`.
///
/// # Errors
/// As [`reopen`].
pub async fn reopen_seen(
    env: &Env,
    run: &Run,
    view: &RunView,
    units: &[Unit],
    cause: ReopenCause,
) -> Result<bool, FlowError> {
    if restore_target(env, run).await? == RunEligibility::No {
        return Ok(false);
    }
    let epoch = head::epoch(view);
    for &unit in units {
        reopen_unit(env, run, epoch, unit, head::attempt(view, unit), cause).await?;
    }
    wake_run(env, run, epoch).await?;
    Ok(true)
}

/// Starts the next try of a unit that was seen at the try `seen`.
async fn reopen_unit(
    env: &Env,
    run: &Run,
    epoch: Epoch,
    unit: Unit,
    seen: Attempt,
    cause: ReopenCause,
) -> Result<(), FlowError> {
    let mut attempt = seen;
    for _ in 0..crate::ATTEMPTS {
        let to = next_attempt(run, unit, attempt);
        let event = RunEvent::Reopened { unit, attempt, epoch, to };
        let PatchResult::ConditionFailed(Some(present)) = env.store.patch_run(&run.id, &accept(event)).await? else {
            return Ok(());
        };
        let current = present.head.attempt(Shard::of(unit).1);
        // In another epoch the run was cancelled.
        if present.head.epoch != epoch || cause != ReopenCause::LateSuccess || current == attempt {
            return Ok(());
        }
        attempt = current;
    }
    Err(FlowError::Contended(format!("run {}", run.id)))
}

/// Lets `units` of a teardown run count as over, even if the run is closed: each gets a try whose result says why. Gives
/// the target back to the run, which then goes on. False: the target's life has moved on from it.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn override_units(
    env: &Env,
    run: &Run,
    view: &RunView,
    units: &[Unit],
    reason: &FailureReason,
) -> Result<bool, FlowError> {
    if restore_phase(env, run, WithOverride::Yes).await? == RunEligibility::No {
        return Ok(false);
    }
    let epoch = head::epoch(view);
    for &unit in units {
        let seen = head::attempt(view, unit);
        let failed = view.status(unit) == UnitProgress::Failed;
        let attempt = if failed { next_attempt(run, unit, seen) } else { seen };
        if failed {
            // Not before this is it recorded: what died here and is retried is tried, and not over.
            let event = RunEvent::Reopened { unit, attempt: seen, epoch, to: attempt };
            env.store.patch_run(&run.id, &accept(event)).await?;
        }
        let ended = AttemptEnd::Skipped(String::new());
        let (result, _) = records::build_result(env, run, unit, attempt, &ended, None).await?;
        let result = AttemptResult { reason: Some(reason.clone()), ..result };
        env.store.put_result(&run.id, unit, attempt, &result).await?;
        env.store.patch_run(&run.id, &accept(RunEvent::Succeeded { unit, attempt, epoch })).await?;
    }
    wake_run(env, run, epoch).await?;
    Ok(true)
}

/// Returns the try at which a reopened unit goes on. An undo begins a new pass over what it takes away.
fn next_attempt(run: &Run, unit: Unit, attempt: Attempt) -> Attempt {
    let Some(plan) = run.unit(unit) else { return next_block(attempt, 1) };
    let next = if plan.undoes.is_empty() { next_block } else { next_pass };
    next(attempt, plan.retry.attempts)
}

/// Has the run looked at now; a closed one is opened for it. Whoever is about to close it or to put it off has not
/// seen this, and is refused.
async fn wake_run(env: &Env, run: &Run, epoch: Epoch) -> Result<(), FlowError> {
    let is_written = head::patch_root(env, &run.id, |root| {
        let is_over = root.epoch != epoch || root.phase == RunPhase::Cancelling;
        (!is_over).then(|| accept(RunEvent::RunReopened { due: env.now(), version: root.version, epoch }))
    });
    if is_written.await? {
        env.queue.send(QueueMessage::Run(run.id.clone()), Duration::ZERO).await;
    }
    Ok(())
}

/// Whether a run may go on for its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEligibility {
    /// Yes: the target is in the run's phase, or the run takes away what a life has left that is over.
    Yes,
    /// No: the target has moved on to taking away what the run makes.
    No,
}

/// Gives a target that is stuck, failed or gone back to `run`.
///
/// # Errors
/// The store's.
pub async fn restore_target(env: &Env, run: &Run) -> Result<RunEligibility, FlowError> {
    restore_phase(env, run, WithOverride::No).await
}

/// Whether the run is opened by an override.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WithOverride {
    Yes,
    No,
}

async fn restore_phase(env: &Env, run: &Run, with_override: WithOverride) -> Result<RunEligibility, FlowError> {
    let facts = &run.facts;
    let takes_away = matches!(run.hook(), Hook::PreStop | Hook::PostStop);
    let otherwise = if takes_away { RunEligibility::Yes } else { RunEligibility::No };
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(&facts.kind, &facts.name).await? else { return Ok(otherwise) };
        if seen.uid != facts.uid || seen.generation != facts.generation {
            return Ok(otherwise);
        }
        // Its runs are being removed: a target that is stopping would wait for them.
        if retention::is_removed(&seen) {
            return Ok(RunEligibility::No);
        }
        let phase = match (seen.phase, run.hook()) {
            (TargetPhase::Stuck | TargetPhase::Gone, Hook::PreStop | Hook::PostStop)
                if seen.hook == Some(run.hook()) =>
            {
                TargetPhase::Stopping
            }
            (TargetPhase::Failed, Hook::PreStart) if seen.hook == Some(Hook::PreStart) => TargetPhase::Starting,
            (TargetPhase::Failed, Hook::PostStart) if seen.hook == Some(Hook::PostStart) => TargetPhase::Ready,
            (TargetPhase::Starting, Hook::PreStart) | (TargetPhase::Ready, Hook::PostStart) => {
                return Ok(if seen.hook == Some(run.hook()) { RunEligibility::Yes } else { RunEligibility::No });
            }
            _ => return Ok(otherwise),
        };
        // Its last notification does not hold any more: a target whose units after ready run again is ready.
        let ready = phase == TargetPhase::Ready && env.settings.platform_url.is_some();
        let notification = ready.then_some(NotificationState {
            notification: Notification::Ready,
            attempts: 0,
            delivered_by: None,
            reason: None,
        });
        let transition = seen.update(|target| {
            (target.phase, target.since, target.notification) = (phase, env.now(), notification);
            target.is_overridden |= with_override == WithOverride::Yes;
            target.due = due::next_due(env, target);
        });
        if env.store.move_target(&transition).await? {
            if ready {
                let message = QueueMessage::Target(facts.kind.clone(), facts.name.clone());
                env.queue.send(message, Duration::ZERO).await;
            }
            return Ok(RunEligibility::Yes);
        }
    }
    Err(FlowError::Contended(format!("{}/{}", facts.kind, facts.name)))
}
