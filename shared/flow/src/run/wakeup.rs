//! Makes runs due: the time in the table, and a queue message as a hint.

use std::time::Duration;

use ebb_documents::plan::UnitPlan;
use ebb_engine::{AttemptRef, Millis, RunEvent, Timestamp, accept};
use ebb_protocol::id::RunId;
use ebb_store::{AttemptUpdate, PatchResult, RunHead};

use crate::run::{AttemptContext, records};
use crate::{Env, FlowError, FlowResult, QueueMessage, Run};

/// Maximum delay of a message. SQS does not support longer delays, and the schedule finds a later wake-up.
pub(crate) const MAX_MESSAGE_DELAY: Duration = Duration::from_secs(900);

/// The time at which an attempt needs a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptWakeup {
    /// The relay did not respond, or the task is queued. The task is checked again.
    Poll(Timestamp),
    /// The attempt record has the time of the next step.
    Recorded(Timestamp),
}

/// Makes the run due at `due`: the table first, then the message. If the run is due earlier, its version changes, so
/// that the sweep at that time runs again before it reschedules (rule VersionGuardsReschedule).
pub(crate) async fn wake_by(env: &Env, run: &RunId, due: Timestamp) -> FlowResult<()> {
    for _ in 0..crate::ATTEMPTS {
        let Err(Some(_)) = set_due(env, run, RunEvent::WakeupAdvanced { due }, due).await? else { return Ok(()) };
        // The run was due earlier, and a sweep at that time may have postponed it since.
        match env.store.patch_run(run, &accept(RunEvent::VersionBumped)).await? {
            PatchResult::Written(bumped) if bumped.head.due > Some(due) => {}
            PatchResult::Written(_) | PatchResult::ConditionFailed(_) => return Ok(()),
        }
    }
    Err(FlowError::Contended(format!("run {run}")))
}

/// Writes an event that makes a run due at `due`, and sends the message. Returns the head if it has another due
/// time, or `None` if the run does not exist.
pub(crate) async fn set_due(
    env: &Env,
    run: &RunId,
    event: RunEvent,
    due: Timestamp,
) -> FlowResult<Result<(), Option<RunHead>>> {
    match env.store.patch_run(run, &accept(event)).await? {
        PatchResult::Written(_) => {}
        // This write succeeded before, and its response was lost.
        PatchResult::ConditionFailed(Some(image)) if image.head.due == Some(due) => {}
        PatchResult::ConditionFailed(image) => return Ok(Err(image)),
    }
    send_wakeup(env, run, due).await;
    Ok(Ok(()))
}

/// Sends a message to sweep a run at `due`. The schedule finds a run that is due later than the maximum delay.
pub(crate) async fn send_wakeup(env: &Env, run: &RunId, due: Timestamp) {
    let wait = Duration::from_millis(due.since(env.now()).0);
    if wait < MAX_MESSAGE_DELAY {
        env.queue.send(QueueMessage::Run(run.clone()), wait).await;
    }
}

/// Records that a receiver will call back. If the deadline of the unit is before the first sweep of its run, a separate
/// message is sent. The sweep finds all other deadlines.
pub(crate) async fn record_acceptance(context: AttemptContext<'_>) -> FlowResult<()> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    context.update(AttemptUpdate::Accepted(env.now())).await?;
    send_deadline_wakeup(env, run, attempt, unit).await;
    Ok(())
}

/// Sends a message to check the deadline of an attempt, if it is before the first sweep of the run.
pub(crate) async fn send_deadline_wakeup(env: &Env, run: &Run, attempt: AttemptRef, unit: &UnitPlan) {
    if unit.timeout_ms < env.settings.first_sweep_delay.0 {
        let delay = Duration::from_millis(unit.timeout_ms);
        let message = QueueMessage::Unit { run: run.id.clone(), unit: attempt.unit, attempt: attempt.number };
        env.queue.send(message, delay).await;
    }
}

/// Records the time of the next request of an attempt. Returns the time of the next sweep: the deadline of the attempt can be
/// earlier, also before the first sweep of the run.
pub(crate) async fn record_repeat(context: AttemptContext<'_>, seconds: u64) -> FlowResult<Timestamp> {
    let now = context.env.now();
    // A wait of 0 s would repeat the request without pause.
    let at = now.plus(Millis(seconds.max(1).saturating_mul(1000)));
    let before = context.update(AttemptUpdate::Started(now)).await?;
    if before.result.is_none() {
        context.update(AttemptUpdate::DispatchAgain(at)).await?;
    }
    Ok(at.min(records::started_at(&before).unwrap_or(now).plus(Millis(context.unit.timeout_ms))))
}
