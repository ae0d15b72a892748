//! Computes the time at which a target is due, and closes runs.

use ebb_documents::plan::{Plan, TargetSpec};
use ebb_engine::{HeadState, Millis, RunEvent, RunPhase, TargetPhase, Timestamp, accept};
use ebb_protocol::id::RunId;
use ebb_store::{NotificationState, TargetHead};

use crate::{Env, FlowResult};

/// Maximum wait for a run or a cluster.
const LONGEST_WAIT_MS: u64 = 15 * 60 * 1000;
/// The time between the message that repeats a delivery to the platform and the due time of the target. Otherwise a sweep of
/// the due target could deliver at the same time.
const WAKEUP_MARGIN: Millis = Millis(2_000);

/// Returns the time at which `sweep` has to handle a target: to deliver its notifications, end its time to live,
/// complete its stop, begin the waiting instance, event or update, continue a retry, or release Secrets in a cluster.
pub fn next_due(env: &Env, target: &TargetHead) -> Option<Timestamp> {
    let soon = env.now().plus(env.settings.first_sweep_delay);
    let notification = match &target.notification {
        Some(NotificationState::Due(state)) => {
            let repetition = state.next.plus(WAKEUP_MARGIN);
            Some(if repetition > env.now() { repetition } else { soon })
        }
        Some(NotificationState::Held(_)) | None => None,
    };
    let expires = target.expires.filter(|_| target.phase.is_alive());
    let stopping = target.phase == TargetPhase::Stopping && target.hook.is_some_and(|hook| !hook.is_teardown());
    // The run has its own wake-ups, and a cluster may be unreachable for days.
    let later = env.now().plus(backoff(env, target));
    let stopping = stopping.then_some(later);
    let waiting = (target.phase == TargetPhase::Gone && target.waiting.is_some()).then_some(soon);
    // The end of the present run begins the next event, unless both happen at the same time.
    let events = (target.phase == TargetPhase::Ready && !target.events.waiting.is_empty()).then_some(soon);
    let is_updatable = matches!(target.phase, TargetPhase::Ready | TargetPhase::Failed);
    let update = (is_updatable && target.pending_update.is_some()).then_some(soon);
    let reopened = target.is_reopened.then_some(soon);
    let release = (!target.release.is_empty()).then_some(later);
    let outbox = target.outbox.due().map(|at| at.max(soon));
    [notification, outbox, expires, stopping, waiting, events, update, reopened, release].into_iter().flatten().min()
}

/// Returns the end of the TTL of an instance that was requested at `created`, and `active` last.
pub(crate) fn end_of_ttl(spec: &TargetSpec, created: Timestamp, active: Option<Timestamp>) -> Option<Timestamp> {
    // The clock of another function instance can be behind.
    let start = active.filter(|_| spec.ttl_slides).map_or(created, |active| active.max(created));
    spec.ttl_ms.map(|ttl| start.plus(Millis(ttl)))
}

/// Returns the end of a living target with the plan `present`. The newest document decides, also while its update waits. One
/// that waits only makes the end later if it may lose nothing (`true`), or if the present document protects a resource. A
/// refused deletion is the end once no resource is protected.
pub(crate) fn end_of(target: &TargetHead, present: &Plan, pending: Option<(&Plan, bool)>) -> Option<Timestamp> {
    let end = |plan: &Plan| {
        let refused = target.refused_deletion.filter(|_| plan.protected().next().is_none());
        refused.or_else(|| end_of_ttl(&plan.target, target.created, target.active))
    };
    let Some((waiting, keeps_resources)) = pending else { return end(present) };
    let only_extends = keeps_resources || present.protected().next().is_some();
    if only_extends { end(present).zip(end(waiting)).map(|(one, other)| one.max(other)) } else { end(waiting) }
}

/// Sets the last activity of a living target to now. Returns true if that can change the end of its TTL.
pub(crate) async fn note_activity(env: &Env, target: &mut TargetHead) -> FlowResult<bool> {
    let present = env.plan_of(target).await?;
    let waiting = match &target.pending_update {
        Some(pending) => Some((env.plan(&target.update_key(pending), &pending.plan).await?, pending.keeps_resources)),
        None => None,
    };
    target.active = target.active.max(Some(env.now()));
    target.expires = end_of(target, &present.plan, waiting.as_ref().map(|(waiting, keeps)| (&waiting.plan, *keeps)));
    Ok(present.plan.target.ttl_slides || waiting.is_some_and(|(waiting, _)| waiting.plan.target.ttl_slides))
}

/// Stores the activity of a living target that changes nothing else. Returns false if the target has changed meanwhile.
pub(crate) async fn touch(env: &Env, target: &TargetHead) -> FlowResult<bool> {
    let mut active = target.clone();
    if !note_activity(env, &mut active).await? {
        return Ok(true);
    }
    Ok(env.store.move_target(&active.update(|after| after.due = next_due(env, after))).await?)
}

/// Returns the wait before the next sweep of a target that waits for others: a quarter of the time so far.
fn backoff(env: &Env, target: &TargetHead) -> Millis {
    let waited = env.now().since(target.since).0;
    Millis((waited / 4).min(LONGEST_WAIT_MS)).max(env.settings.first_sweep_delay)
}

/// Closes a run if its version is that of `head`. One that has changed stays open. If the run stayed open for a
/// notification, `notified` is the time of its acceptance by the platform.
pub async fn close_seen(env: &Env, run: &RunId, head: &HeadState, notified: Option<Timestamp>) -> FlowResult<()> {
    if head.phase != RunPhase::Closed {
        env.store.patch_run(run, &accept(RunEvent::Closed { version: head.version, notified })).await?;
    }
    Ok(())
}
