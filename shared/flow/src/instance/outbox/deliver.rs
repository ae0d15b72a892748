//! Delivers the notifications of a target one after the other, with a lease.
//!
//! 1. The lease is a write of the target. It lasts until a request that was sent with it can no longer arrive. It counts the
//!    attempt, so that a delivery that ends its invocation each time is given up, too.
//! 2. Send the first notification of a subscription.
//! 3. Remove it, or plan its repetition. A crash before this write repeats the request after the lease.

use std::time::Duration;

use ebb_engine::{Backoff, Millis};
use ebb_protocol::limits;
use ebb_store::{NamedDocument, PhaseNotice, TargetOutbox};
use serde_json::json;

use super::announce;
use super::receiver::{NotificationDelivery, TIMEOUT, notice_id, send};
use crate::env::Env;
use crate::error::FlowError;
use crate::instance::due;
use crate::ports::QueueMessage;
use crate::telemetry;

/// The age at which an undelivered notification is given up.
const MAX_DELIVERY_AGE: Millis = Millis(3 * 24 * 3_600_000);
/// The waits of a receiver that does not accept its notification.
const BACKOFF: Backoff = Backoff { base: Millis(1_000), max: Millis(600_000) };
/// The time in which an invocation begins further deliveries.
const WINDOW: Millis = Millis(5_000);
/// The reason of an attempt without an end.
const INTERRUPTED: &str = "the delivery was interrupted";

/// Delivers the notifications of a target that are due. Another invocation may hold the lease; then the target is due
/// again.
pub async fn deliver(env: &Env, kind: &str, name: &str) -> Result<(), FlowError> {
    let begun = env.now();
    // A change while a lease is written makes the write fail.
    for _ in 0..TargetOutbox::MAX_NOTICES {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(()) };
        let now = env.now();
        if seen.outbox.leased_until > now.0 {
            return Ok(());
        }
        let oldest = seen.outbox.notices.first().and_then(|notice| Some((notice, notice.to.first()?.as_str())));
        let is_full = seen.outbox.exceeds(1);
        let next = if is_full { oldest } else { seen.outbox.next(now) };
        let Some((notice, subscription)) = next else { return Ok(()) };
        if now.since(begun).0 >= WINDOW.0 {
            announce(env, &seen).await;
            return Ok(());
        }
        let (notice, subscription) = (notice.clone(), subscription.to_owned());
        let lease = now.plus(env.settings.max_in_flight).plus(Millis::from(TIMEOUT)).0;
        let failed = seen.outbox.failed.get(&subscription).cloned();
        let leased = seen.update(|after| {
            after.outbox.leased_until = lease;
            let state = after.outbox.failed.entry(subscription.clone()).or_default();
            state.attempts = state.attempts.saturating_add(1);
            state.next = lease;
            if state.reason.is_empty() {
                state.reason = INTERRUPTED.to_owned();
            }
            after.due = due::next_due(env, after);
        });
        if !env.store.move_target(&leased).await? {
            continue;
        }
        let delivery = match failed {
            _ if is_full => NotificationDelivery::Final("too many notifications of the target wait".to_owned()),
            Some(failed) if now.0.saturating_sub(notice.at) >= MAX_DELIVERY_AGE.0 => {
                NotificationDelivery::Final(failed.reason)
            }
            _ => match send(env, &notice, &subscription).await {
                Ok(delivery) => delivery,
                // It must not block the others, whatever is damaged.
                Err(error) => NotificationDelivery::Failed(error.to_string(), None),
            },
        };
        finish(env, (kind, name), &notice, &subscription, (lease, delivery)).await?;
    }
    Ok(())
}

/// Records the result of a delivery, and ends its lease.
async fn finish(
    env: &Env,
    (kind, name): (&str, &str),
    notice: &PhaseNotice,
    subscription: &str,
    (lease, delivery): (u64, NotificationDelivery),
) -> Result<(), FlowError> {
    let now = env.now();
    if let NotificationDelivery::Final(reason) = &delivery {
        give_up(env, notice, subscription, reason).await?;
    }
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(()) };
        let mut wait = None;
        let after = seen.update(|after| {
            match (&delivery, after.outbox.failed.get_mut(subscription)) {
                (NotificationDelivery::Failed(reason, at_least), Some(state)) => {
                    tracing::warn!(kind, name, subscription, reason, "a notification was not accepted; it is repeated");
                    let backoff = BACKOFF.wait(state.attempts, env.random.next()).max(Millis(250));
                    let pause = backoff.max(at_least.map_or(Millis(0), Millis::from).min(BACKOFF.max));
                    wait = Some(pause);
                    (state.next, state.reason) = (now.plus(pause).0, limits::clean(reason, limits::REFUSAL));
                }
                _ => after.outbox.remove(notice.number, subscription),
            }
            if after.outbox.leased_until == lease {
                after.outbox.leased_until = 0;
            }
            after.due = due::next_due(env, after);
        });
        if env.store.move_target(&after).await? {
            if let Some(wait) = wait {
                let message = QueueMessage::Target(kind.to_owned(), name.to_owned());
                env.queue.send(message, Duration::from_millis(wait.0)).await;
            }
            return Ok(());
        }
    }
    // The request is repeated after the lease.
    Err(FlowError::Contended(format!("{kind}/{name}")))
}

/// Stores a notification that is not repeated any more, and raises an alarm.
async fn give_up(env: &Env, notice: &PhaseNotice, subscription: &str, reason: &str) -> Result<(), FlowError> {
    let id = format!("{subscription}/{}", notice_id(notice));
    tracing::error!(subscription, id, reason, "a notification is given up");
    let document = json!({"subscription": subscription, "notice": notice, "reason": reason}).to_string();
    let item = NamedDocument { name: id, document, changed: env.now() };
    env.store.put_undelivered(&item).await?;
    telemetry::notification_undelivered();
    Ok(())
}
