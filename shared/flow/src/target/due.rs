//! The time at which a target is due, and the end of a run that its target has recorded.

use ebb_engine::{HeadState, Hook, Millis, RunEvent, RunPhase, TargetPhase, Timestamp, accept};
use ebb_protocol::id::RunId;
use ebb_store::TargetHead;

use crate::env::Env;
use crate::error::FlowError;

/// The longest wait for what others have to do.
const LONGEST_WAIT_MS: u64 = 15 * 60 * 1000;

/// When `sweep` has to look at a target: its notification is not delivered, its time to live ends, its stop has
/// to be completed, something waits for its name, or a cluster has to release the Secrets of an earlier instance.
pub fn next_due(env: &Env, target: &TargetHead) -> Option<Timestamp> {
    let soon = env.now().plus(env.settings.first_sweep_delay);
    let notification = target.notification.as_ref().filter(|pending| pending.delivered_by.is_none()).map(|_| soon);
    let alive = matches!(target.phase, TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Failed);
    let expires = target.expires.filter(|_| alive);
    let stopping =
        target.phase == TargetPhase::Stopping && matches!(target.hook, Some(Hook::PreStart | Hook::PostStart));
    // The run has wake-ups of its own, and a cluster may be out of reach for days.
    let patient = env.now().plus(backoff(env, target));
    let stopping = stopping.then_some(patient);
    let waiting = (target.phase == TargetPhase::Gone && target.waiting.is_some()).then_some(soon);
    let release = (!target.release.is_empty()).then_some(patient);
    [notification, expires, stopping, waiting, release].into_iter().flatten().min()
}

/// How long a target waits for the next look at what others have to do: a quarter of the time that it waits for already.
fn backoff(env: &Env, target: &TargetHead) -> Millis {
    let waited = env.now().since(target.since).0;
    Millis((waited / 4).min(LONGEST_WAIT_MS)).max(env.settings.first_sweep_delay)
}

/// Closes a run that is still as `root` says, but for when it is due; false: it is not, and stays due.
///
/// # Errors
/// The store's.
pub async fn close_seen(env: &Env, run: &RunId, root: &HeadState) -> Result<bool, FlowError> {
    if root.phase == RunPhase::Closed {
        return Ok(true);
    }
    let patch = accept(RunEvent::Closed { version: root.version });
    Ok(env.store.patch_run(run, &patch).await?.is_written())
}
