//! Delivers notifications to the platform: signed CloudEvents, repeated until they are accepted.

use std::time::Duration;

use ebb_engine::{HeadState, RunPhase, TargetPhase, Timestamp};
use ebb_protocol::lifecycle::OutcomeData;
use ebb_protocol::{FailureReason, ReasonCode, RunId};
use ebb_store::{NotificationState, ReceiverState, TargetHead, TargetOutbox};

use crate::instance::due;
use crate::instance::outbox::{NotificationDelivery, post_outcome, record_failure, try_begin};
use crate::instance::target_outputs::{OutputsProblem, SensitiveValues, target_outputs};
use crate::run::cause;
use crate::run::removal::evidence;
use crate::{Env, FlowError, FlowResult, OriginPermit, QueueMessage};

const MAX_REMOVALS: usize = 100;

/// Delivers the pending notification of a target. After a failed delivery, the target is due again. While the platform
/// does not respond, or many notifications wait for its response, the delivery is postponed. A sweep that cannot wait for
/// the platform any more delivers nothing. A deployment without a platform ends the notification, because other work
/// waits for its delivery. `head` is that of the run which stays open for the notification, if it was read after the write
/// of `target`.
pub async fn notify(env: &Env, target: &TargetHead, head: Option<HeadState>) -> FlowResult<()> {
    let (mut seen, mut head) = (target.clone(), head);
    for _ in 0..crate::ATTEMPTS {
        let Some(pending) = pending_notification(env, &seen, head.take()).await? else { return Ok(()) };
        let Some(url) = &env.settings.platform_url else { return end(env, &seen, pending.holder, (None, None)).await };
        let Some(permit) = OriginPermit::acquire(env, None, url).await else { return Ok(()) };
        // The run was read between two reads of the target. A late success moves the target back before it reopens
        // units. If the target is unchanged, no unit was reopened when the head was read.
        let Some(reread) = env.store.read_target(seen.target_key()).await? else { return Ok(()) };
        if reread.version == seen.version {
            return send(env, &reread, pending, (url, permit)).await;
        }
        seen = reread;
    }
    Err(FlowError::Contended(target.target_key().to_string()))
}

async fn send(
    env: &Env,
    target: &TargetHead,
    pending: PendingNotification,
    (url, permit): (&str, OriginPermit),
) -> FlowResult<()> {
    let PendingNotification { mut state, holder } = pending;
    let data = notification_data(env, target).await?;
    let Some(call) = try_begin(env, TargetOutbox::PLATFORM, &mut state) else {
        return end(env, target, holder, (None, Some(state))).await;
    };
    let delivery = post_outcome(env, url, target.phase.into(), target.since, &data).await?;
    permit.end(env);
    delivery.end(call);
    if let Some(reason) = delivery.failure() {
        let (kind, name) = (&target.kind, &target.name);
        tracing::warn!(kind, name, reason, "the platform did not accept the notification; it is repeated");
    }
    let accepted = matches!(delivery, NotificationDelivery::Accepted).then(|| env.now());
    let is_repeated = record_failure(env, TargetOutbox::PLATFORM, &mut state, &delivery).is_some();
    end(env, target, holder, (accepted, is_repeated.then_some(state))).await
}

/// Records the end of a delivery. `holder` is the run that stays open for it. `accepted` is the time of the acceptance.
/// `repeat` has the deliveries so far, and the time of the next one.
async fn end(
    env: &Env,
    target: &TargetHead,
    holder: Option<(RunId, HeadState)>,
    (accepted, repeat): (Option<Timestamp>, Option<ReceiverState>),
) -> FlowResult<()> {
    if let (None, Some((run, head))) = (&repeat, &holder) {
        // The run stays open if it was reopened meanwhile.
        return due::close_seen(env, run, head, accepted).await;
    }
    // From now on the target is due for the delivery, so that the ended run does not wait for the platform.
    let change = |after: &mut TargetHead| {
        after.notification = repeat.clone().map(NotificationState::Due);
        after.due = due::next_due(env, after);
    };
    if !record(env, target, change).await? {
        return Ok(());
    }
    if let Some(state) = repeat {
        let message = QueueMessage::Target(target.kind.clone(), target.name.clone());
        env.queue.send(message, Duration::from_millis(state.next.since(env.now()).0)).await;
    }
    if let Some((run, head)) = holder {
        due::close_seen(env, &run, &head, None).await?;
    }
    Ok(())
}

/// Writes the result of the delivery about `target`. Returns false if the target has another notification meanwhile. Other
/// changes, such as those of deliveries to subscriptions, do not matter.
async fn record(env: &Env, target: &TargetHead, change: impl Fn(&mut TargetHead)) -> FlowResult<bool> {
    let mut seen = target.clone();
    for _ in 0..crate::ATTEMPTS {
        if env.store.move_target(&seen.update(&change)).await? {
            return Ok(true);
        }
        let Some(reread) = env.store.read_target(target.target_key()).await? else { return Ok(false) };
        let about =
            |head: &TargetHead| (head.uid.clone(), head.phase, head.hook, head.since, head.notification.clone());
        if about(&reread) != about(target) {
            return Ok(false);
        }
        seen = reread;
    }
    Ok(false)
}

/// A notification that the platform has not accepted yet.
pub struct PendingNotification {
    /// The deliveries so far.
    state: ReceiverState,
    /// The run that stays open until the delivery, and its head as it was read.
    holder: Option<(RunId, HeadState)>,
}

/// Returns the notification of a target that the platform has not accepted yet. `head` is that of the run which stays open
/// for it, if it was read already.
pub async fn pending_notification(
    env: &Env,
    target: &TargetHead,
    head: Option<HeadState>,
) -> FlowResult<Option<PendingNotification>> {
    let hook = match &target.notification {
        None => return Ok(None),
        Some(NotificationState::Due(state)) => {
            return Ok(Some(PendingNotification { state: state.clone(), holder: None }));
        }
        Some(NotificationState::Held(hook)) => *hook,
    };
    let run = target.run(hook);
    let head = match head {
        Some(head) => Some(head),
        None => env.store.read_run(&run).await?.map(|present| present.head),
    };
    // The failed units of a stuck target were reopened or overridden meanwhile, so its run moves it on.
    let is_over = |head: &HeadState| target.phase == TargetPhase::Stuck && head.failed.is_empty();
    let head = head.filter(|head| head.phase != RunPhase::Closed && !is_over(head));
    Ok(head.map(|head| PendingNotification { state: ReceiverState::default(), holder: Some((run, head)) }))
}

async fn notification_data(env: &Env, target: &TargetHead) -> FlowResult<OutcomeData> {
    let (kind, name, uid) = (target.kind.clone(), target.name.clone(), target.uid.clone());
    let mut data = OutcomeData { kind, name, uid, generation: target.generation, ..OutcomeData::default() };
    match target.phase {
        TargetPhase::Gone => {
            data.stop_cause = Some(target.stop_cause);
            data.overridden = target.is_overridden;
            // Without an unconfirmed removal, the records of the runs are not read.
            if target.unconfirmed > 0 {
                let loaded = env.plan_of(target).await?;
                data.removals = evidence::removals(env, target, &loaded).await?;
                data.removals.truncate(MAX_REMOVALS);
            }
        }
        TargetPhase::Ready => {
            let loaded = env.plan_of(target).await?;
            let outputs = target_outputs(env, target, &loaded, None, SensitiveValues::Hidden).await?;
            data.outputs = outputs.outputs;
            data.env = outputs.env;
            data.workloads = outputs.workloads;
            match outputs.problem {
                None => {}
                Some(OutputsProblem::TooLarge(_)) => data.outputs_url = Some(env.target_url(target.target_key())),
                // The units are done, but their outputs cannot be rendered as the documents require.
                Some(OutputsProblem::Render(message)) => {
                    data.reason = Some(FailureReason { code: ReasonCode::Render, message });
                }
            }
        }
        TargetPhase::Failed | TargetPhase::Stuck => {
            if let Some(hook) = target.hook
                && let Some((run, first)) = cause::of_run(env, &target.run(hook)).await?
                && let Some(unit) = run.unit(first.unit)
            {
                data.unit = Some(unit.key.clone());
                data.reason = Some(first.reason);
            }
        }
        // No notification reports them.
        TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping => {}
    }
    Ok(data)
}
