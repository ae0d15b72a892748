//! Wake-ups: the time at which a run is due, in the table and as a message of the queue.

use std::time::Duration;

use ebb_documents::plan::UnitPlan;
use ebb_engine::{Millis, RunEvent, Timestamp, accept};
use ebb_protocol::id::RunId;
use ebb_store::{AttemptUpdate, PatchResult};

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::QueueMessage;
use crate::run::attempt::AttemptRef;
use crate::run::head::Run;

/// No hint is sent further ahead: SQS delays no message for longer, and the schedule comes by anyway.
pub(crate) const MAX_MESSAGE_DELAY: Duration = Duration::from_secs(900);

/// For how many milliseconds an invocation begins anything that may wait for a server outside: with what that takes it still
/// has to end before it is killed.
pub(crate) const START_WINDOW_MS: u64 = 5_000;

/// When a run has to be looked at because of one of its tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptWakeup {
    /// A cluster is asked again: it gave no answer, or the try waits there for its turn.
    Poll(Timestamp),
    /// The record of the try says that something begins then.
    Recorded(Timestamp),
}

pub(super) async fn record_start(env: &Env, run: &Run, this: AttemptRef) -> Result<(), FlowError> {
    env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::Started(env.now())).await?;
    Ok(())
}

/// Leaves a try that was not sent to `sweep`, which begins it at `at`. Its time runs from then on.
pub(super) async fn postpone(env: &Env, run: &Run, this: AttemptRef, at: Timestamp) -> Result<(), FlowError> {
    env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::Postponed(at)).await?;
    Ok(())
}

/// Has `sweep` look at the run at `due`: the table first, then the hint. One write, one hint: a run that is due earlier has
/// its own hint, and the look at that time looks once more before it puts the run off.
///
/// # Errors
/// The store's.
pub async fn wake_by(env: &Env, run: &RunId, due: Timestamp) -> Result<(), FlowError> {
    for _ in 0..crate::ATTEMPTS {
        match env.store.patch_run(run, &accept(RunEvent::WakeupAdvanced { due })).await? {
            PatchResult::Written(_) => {
                send_wakeup(env, run, due).await;
                return Ok(());
            }
            // Written before, and its answer was lost.
            PatchResult::ConditionFailed(Some(image)) if image.head.due == Some(due) => {
                send_wakeup(env, run, due).await;
                return Ok(());
            }
            PatchResult::ConditionFailed(None) => return Ok(()),
            PatchResult::ConditionFailed(Some(_)) => {}
        }
        // It was due earlier, and a look at that time may have put it off since.
        match env.store.patch_run(run, &accept(RunEvent::VersionBumped)).await? {
            PatchResult::Written(noticed) if noticed.head.due > Some(due) => {}
            PatchResult::Written(_) | PatchResult::ConditionFailed(_) => return Ok(()),
        }
    }
    Err(FlowError::Contended(format!("run {run}")))
}

/// Sends the hint to look at a run at `due`. The schedule finds a run that is due later than the queue can delay a message.
pub(crate) async fn send_wakeup(env: &Env, run: &RunId, due: Timestamp) {
    let wait = Duration::from_millis(due.since(env.now()).0);
    if wait < MAX_MESSAGE_DELAY {
        env.queue.send(QueueMessage::Run(run.clone()), wait).await;
    }
}

/// Records that a receiver will call back. A unit whose time is up before `sweep` may look at its run has a hint; any other
/// one is found by when its run is due, which costs no message for each unit.
///
/// # Errors
/// The store's.
pub async fn record_acceptance(env: &Env, run: &Run, this: AttemptRef, unit: &UnitPlan) -> Result<(), FlowError> {
    let note = AttemptUpdate::Accepted(env.now());
    env.store.update_attempt(&run.id, this.unit, this.attempt, &note).await?;
    send_deadline_wakeup(env, run, this, unit).await;
    Ok(())
}

/// Has `sweep` look at a try when its time is up, if that is before it may look at the run.
pub(crate) async fn send_deadline_wakeup(env: &Env, run: &Run, this: AttemptRef, unit: &UnitPlan) {
    if unit.timeout_ms < env.settings.first_sweep_delay.0 {
        let delay = Duration::from_millis(unit.timeout_ms);
        env.queue.send(QueueMessage::unit(&run.id, this.unit, this.attempt), delay).await;
    }
}

/// Records when a unit is to be asked again, and has `sweep` look then.
///
/// # Errors
/// The store's.
pub async fn repeat_after(env: &Env, run: &Run, this: AttemptRef, seconds: u64) -> Result<(), FlowError> {
    let at = record_repeat(env, run, this, seconds).await?;
    wake_by(env, &run.id, at).await
}

/// Records when a try is asked again.
///
/// # Errors
/// The store's.
pub(crate) async fn record_repeat(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    seconds: u64,
) -> Result<Timestamp, FlowError> {
    // A receiver that asks to be asked at once would be asked without end.
    let seconds = seconds.max(1);
    let at = env.now().plus(Millis(seconds.saturating_mul(1000)));
    let started =
        env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::Started(env.now())).await?;
    if started.result.is_none() {
        env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::DispatchAgain(at)).await?;
    }
    Ok(at)
}
