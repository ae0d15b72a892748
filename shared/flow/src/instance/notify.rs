//! Delivers notifications to the platform: signed CloudEvents, repeated until they are accepted.

use std::time::Duration;

use ebb_egress::{WebhookMessage as Outgoing, deliver};
use ebb_engine::target::Notification;
use ebb_engine::{Backoff, HeadState, Millis, RunPhase, Timestamp};
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::id::{RunId, TargetKey};
use ebb_protocol::lifecycle::OutcomeData;
use ebb_protocol::limits;
use ebb_protocol::sign::MessageId;
use ebb_store::{NotificationState, TargetHead};

use crate::breaker::{MAX_DELIVERIES, PLATFORM};
use crate::env::Env;
use crate::error::{FlowError, FlowResult};
use crate::instance::due;
use crate::instance::outbox::{NotificationDelivery, SLOW_BACKOFF, repetition_wait};
use crate::instance::target_outputs::{OutputsProblem, SensitiveValues, target_outputs};
use crate::loaded_run::Run;
use crate::pending_call::{PendingCall, circuit_wait};
use crate::permits::OriginPermit;
use crate::ports::QueueMessage;
use crate::run::removals;

/// The waits during the first hour, from 1 s to 60 s. A platform that recovers within the hour gets its notification
/// within a minute.
const BACKOFF: Backoff = Backoff { base: Millis(1_000), max: Millis(60_000) };
/// The number of deliveries in about the first hour. That of the later ones, with waits of up to ten minutes, is unlimited.
const FREQUENT_ATTEMPTS: u32 = 60;
/// Maximum removals in a notification.
const MAX_REMOVALS: usize = 100;

/// The time between the message that repeats a delivery and the due time of the target.
const WAKEUP_MARGIN: Millis = Millis(2_000);

/// The reason of a notification that is postponed without a request.
const POSTPONED: &str = "the platform does not respond to other notifications";

/// Delivers the pending notification of a target. After a failed delivery, the target is due again. While the platform
/// does not respond, or many notifications wait for its response, the delivery is postponed. A sweep that cannot wait for
/// the platform any more delivers nothing. A deployment without a platform ends the notification, because other work
/// waits for its delivery. `root` is that of the run which stays open for the notification, if it was read after the write
/// of `target`.
pub async fn notify(env: &Env, target: &TargetHead, root: Option<HeadState>) -> FlowResult<()> {
    let (mut seen, mut root) = (target.clone(), root);
    for _ in 0..crate::ATTEMPTS {
        let pending = match root.take() {
            Some(root) => held_notification(&seen, Some(root)),
            None => pending_notification(env, &seen).await?,
        };
        let Some(pending) = pending else { return Ok(()) };
        let Some(url) = &env.settings.platform_url else { return end(env, &seen, pending, (None, None)).await };
        let Some(permit) = OriginPermit::acquire(env, url).await else { return Ok(()) };
        // The run was read between two reads of the target. A late success moves the target back before it reopens
        // units. If the target is unchanged, no unit was reopened when the root was read.
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
    let state = &pending.notification;
    let (kind, name) = (target.kind.as_str(), target.name.as_str());
    let data = notification_data(env, target, state.notification).await?;
    let delivery = match PendingCall::try_begin(env, PLATFORM, MAX_DELIVERIES) {
        Some(call) => {
            let delivery = post(env, url, state.notification, target.since, &data).await?;
            permit.end(env);
            call.end_with(delivery.response());
            delivery
        }
        None => {
            let after = Some(Duration::from_millis(circuit_wait(env, PLATFORM).0));
            let reason = state.reason.clone().unwrap_or_else(|| POSTPONED.to_owned());
            NotificationDelivery::Failed(reason, after)
        }
    };
    let at_least = delivery.at_least();
    let accepted = matches!(delivery, NotificationDelivery::Accepted).then(|| env.now());
    let repeat = match delivery {
        NotificationDelivery::Accepted | NotificationDelivery::Obsolete => None,
        NotificationDelivery::Gone => {
            tracing::warn!(kind, name, "the platform responded 410; the notification is not repeated");
            None
        }
        NotificationDelivery::NotSent(reason) => {
            tracing::error!(kind, name, reason, "the URL of the platform is invalid; correct the configuration");
            Some((SLOW_BACKOFF.max, limits::message(&reason)))
        }
        NotificationDelivery::Failed(reason, _)
        | NotificationDelivery::Refused(reason)
        | NotificationDelivery::Final(reason)
        | NotificationDelivery::NoResponse(reason) => {
            tracing::warn!(
                kind,
                name,
                reason,
                "the platform did not accept the notification; the delivery is repeated"
            );
            let wait = repetition_wait(env, backoff(state.attempts), state.attempts.saturating_add(1), at_least);
            Some((wait, limits::message(&reason)))
        }
    };
    end(env, target, pending, (accepted, repeat)).await
}

/// Returns the backoff after a number of deliveries.
pub(super) fn backoff(attempts: u32) -> Backoff {
    if attempts < FREQUENT_ATTEMPTS { BACKOFF } else { SLOW_BACKOFF }
}

/// Sends an outcome once. `since` is the time of the change.
pub(super) async fn post(
    env: &Env,
    url: &str,
    notification: Notification,
    since: Timestamp,
    data: &OutcomeData,
) -> FlowResult<NotificationDelivery> {
    let target = TargetKey::new(&data.kind, &data.name);
    // One notification has one id, so that a receiver recognises a repetition. A target that fails again after a retry
    // has a new one.
    let (instance, name) = (target.instance(&data.uid).key(), notification.name());
    let message = format!("{instance}-{}-{name}-{}", data.generation, since.0);
    let message = MessageId::parse(&message).map_err(|error| FlowError::Broken(error.to_string()))?;
    let kind = match notification {
        Notification::Ready if data.reason.is_some() => Notification::Failed,
        notification => notification,
    };
    let (content_type, body) = ebb_protocol::cloudevents::event(
        message.as_str(),
        &env.settings.source,
        event_type(kind),
        &target.to_string(),
        since,
        data,
    );
    let outgoing = Outgoing { url, id: &message, content_type, body: &body };
    let sender = (env.platform.as_ref(), &env.cache.byte_budget);
    Ok(deliver(sender, &env.settings.platform_keys, outgoing, env.now()).await.into())
}

/// Records the end of a delivery. `accepted` is the time of the acceptance. `repeat` is the wait before the next delivery,
/// with the reason of the failure.
async fn end(
    env: &Env,
    target: &TargetHead,
    pending: PendingNotification,
    (accepted, repeat): (Option<Timestamp>, Option<(Millis, String)>),
) -> FlowResult<()> {
    let PendingNotification { notification: state, holder } = pending;
    if let (None, Some(holder)) = (&repeat, &holder) {
        // The run stays open if it was reopened meanwhile.
        due::close_seen(env, &holder.0, &holder.1, accepted).await?;
        return Ok(());
    }
    // From now on the target is due for the delivery, so that the ended run does not wait for the platform.
    let attempts = state.attempts.saturating_add(1);
    let change = |after: &mut TargetHead| {
        after.notification = None;
        after.due = due::next_due(env, after);
        if let Some((wait, reason)) = &repeat {
            let (notification, reason) = (state.notification, Some(reason.clone()));
            after.notification = Some(NotificationState { notification, attempts, delivered_by: None, reason });
            // The message comes first. Otherwise a sweep of the due target could deliver at the same time.
            let at = env.now().plus(*wait).plus(WAKEUP_MARGIN);
            after.due = Some(after.due.map_or(at, |due| due.min(at)));
        }
    };
    if !record(env, target, change).await? {
        return Ok(());
    }
    if let Some((wait, _)) = repeat {
        let message = QueueMessage::Target(target.kind.clone(), target.name.clone());
        env.queue.send(message, Duration::from_millis(wait.0)).await;
    }
    if let Some((run, root)) = holder {
        due::close_seen(env, &run, &root, None).await?;
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
    pub notification: NotificationState,
    /// The run that stays open until the delivery, and its root as it was read.
    pub holder: Option<(RunId, HeadState)>,
}

/// Returns the notification of a target that the platform has not accepted yet.
pub async fn pending_notification(env: &Env, target: &TargetHead) -> FlowResult<Option<PendingNotification>> {
    let holder = target.notification.as_ref().and_then(|state| state.delivered_by);
    let root = match holder {
        Some(hook) => env.store.read_root(&target.run(hook)).await?.map(|root| root.head),
        None => None,
    };
    Ok(held_notification(target, root))
}

/// Returns the pending notification of a target. `root` is that of the run which stays open for it.
fn held_notification(target: &TargetHead, root: Option<HeadState>) -> Option<PendingNotification> {
    let notification = target.notification.clone()?;
    let Some(hook) = notification.delivered_by else { return Some(PendingNotification { notification, holder: None }) };
    let root = root.filter(|root| root.phase != RunPhase::Closed)?;
    Some(PendingNotification { notification, holder: Some((target.run(hook), root)) })
}

async fn notification_data(env: &Env, target: &TargetHead, notification: Notification) -> FlowResult<OutcomeData> {
    let mut data = OutcomeData {
        kind: target.kind.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
        generation: target.generation,
        ..OutcomeData::default()
    };
    match notification {
        Notification::Gone => {
            data.stop_cause = Some(target.stop_cause);
            data.overridden = target.is_overridden;
            // Without an unconfirmed removal, the records of the runs are not read.
            if target.unconfirmed > 0 {
                let loaded = env.plan_of(target).await?;
                data.removals = removals::removals(env, target, &loaded).await?;
                data.removals.truncate(MAX_REMOVALS);
            }
        }
        Notification::Ready => {
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
        Notification::Failed | Notification::Stuck => {
            if let Some((unit, reason)) = first_cause(env, target).await? {
                data.unit = Some(unit);
                data.reason = Some(reason);
            }
        }
    }
    Ok(data)
}

/// Returns the unit that failed first in the target's last run, and the reason.
pub async fn first_cause(
    env: &Env,
    target: &TargetHead,
) -> FlowResult<Option<(String, ebb_protocol::callback::FailureReason)>> {
    let Some(hook) = target.hook else { return Ok(None) };
    let Some(run) = Run::load(env, &target.run(hook)).await? else { return Ok(None) };
    let found = crate::run::cause::first(env, &run).await?;
    Ok(found.and_then(|cause| Some((run.unit(cause.unit)?.key.clone(), cause.reason))))
}

fn event_type(notification: Notification) -> &'static str {
    match notification {
        Notification::Ready => ebb_protocol::lifecycle::READY,
        Notification::Failed => ebb_protocol::lifecycle::FAILED,
        Notification::Stuck => ebb_protocol::lifecycle::STUCK,
        Notification::Gone => ebb_protocol::lifecycle::GONE,
    }
}
