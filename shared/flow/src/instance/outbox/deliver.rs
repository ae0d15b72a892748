//! Delivers the notifications of a target. Receivers get theirs concurrently; each gets one after the other.
//!
//! 1. One write of the target takes a lease for the first notification of each receiver. A lease lasts until a request that
//!    was sent with it can no longer arrive. It counts the attempt, so that a delivery that ends its invocation each time
//!    is given up, too.
//! 2. Send the notifications.
//! 3. When one or more have ended, the next write removes them or plans their repetition, and takes the next leases. A
//!    crash before this write repeats the requests after the lease.
//!
//! A receiver without a response delays no other one. Few requests wait for it at a time, see `PendingCall`. Its other
//! notifications are postponed without a request, and no invocation waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_documents::render::TargetFacts;
use ebb_engine::{Backoff, Millis, Timestamp};
use ebb_protocol::{TargetKey, limits};
use ebb_store::{DueItem, NamedDocument, NamedKind, PhaseNotice, ReceiverState, TargetHead, TargetOutbox};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use super::announce;
use super::receiver::{NotificationDelivery, TIMEOUT, notice_id, send};
use crate::circuit::MAX_DELIVERIES;
use crate::instance::due;
use crate::{Counter, Env, FlowError, FlowResult, PendingCall, circuit_wait, telemetry};

/// The age at which an undelivered notification is given up.
const MAX_DELIVERY_AGE: Millis = Millis(3 * 24 * 3_600_000);
/// The time of responses that reject a notification after which it is given up. A person can correct the receiver meanwhile.
const MAX_REFUSAL_AGE: Millis = Millis(6 * 3_600_000);
/// The same if a later notification of the target waits for the receiver.
const MAX_BLOCKING_AGE: Millis = Millis(60_000);
/// The waits of a receiver that does not accept its notification, up to ten minutes.
const BACKOFF: Backoff = Backoff { base: Millis(1_000), max: Millis(600_000) };
/// The waits of the platform during the first hour, up to 60 s. A platform that recovers within the hour gets its
/// notification within a minute.
const FREQUENT_BACKOFF: Backoff = Backoff { base: Millis(1_000), max: Millis(60_000) };
/// The number of deliveries to the platform in about the first hour. That of the later ones is unlimited.
const FREQUENT_ATTEMPTS: u32 = 60;
const MIN_WAIT: Millis = Millis(250);
/// The time in which an invocation begins further deliveries.
const WINDOW: Millis = Millis(5_000);
/// Maximum deliveries that one write begins, postpones or gives up.
const MAX_PER_WRITE: usize = 32;
/// Maximum notifications that are read to be sent again.
const MAX_RESENT: usize = 1_000;

struct EndedDelivery {
    notice: PhaseNotice,
    subscription: String,
    lease: Timestamp,
    result: NotificationDelivery,
}

/// Delivers the notifications of a target that are due. Other invocations may deliver to other receivers of the target.
pub async fn deliver(env: &Env, target: TargetKey<'_>) -> FlowResult<()> {
    let begun = env.now();
    let mut sending = FuturesUnordered::new();
    let mut ended = Vec::new();
    loop {
        let has_more = match advance(env, target, begun, &ended).await {
            Ok((further, has_more)) => {
                sending.extend(further);
                ended.clear();
                has_more
            }
            Err(error) if sending.is_empty() => return Err(error),
            // The requests in progress end, and the next write records all. Otherwise they would be repeated.
            Err(error) => {
                tracing::warn!(kind = target.kind, name = target.name, %error, "cannot record the end of deliveries; the next write repeats it");
                false
            }
        };
        let ends = is_late(env, begun);
        if has_more && ends {
            // Another invocation begins them now. This one may wait for receivers that hang.
            announce(env, target, Duration::ZERO).await;
        }
        if ends || !has_more {
            let Some(first) = sending.next().await else { return Ok(()) };
            ended.push(first);
        }
        while let Some(Some(next)) = sending.next().now_or_never() {
            ended.push(next);
        }
    }
}

fn is_late(env: &Env, begun: Timestamp) -> bool {
    env.now().since(begun).0 >= WINDOW.0
}

/// Records the ended deliveries, and begins those that are due, with one write. Returns them, and true if further
/// notifications can be delivered now.
async fn advance<'a>(
    env: &'a Env,
    target: TargetKey<'_>,
    begun: Timestamp,
    ended: &[EndedDelivery],
) -> FlowResult<(Vec<BoxFuture<'a, EndedDelivery>>, bool)> {
    for EndedDelivery { notice, subscription, result, .. } in ended {
        match result {
            NotificationDelivery::Final(reason) => give_up(env, notice, subscription, reason).await?,
            NotificationDelivery::Accepted if !notice.is_for_platform() => {
                // An error must not repeat the request. The next acceptance deletes the rest.
                let wrong = |error: FlowError| tracing::warn!(%error, subscription, "what was given up stays listed");
                forget_replaced(env, notice, subscription).await.unwrap_or_else(wrong);
            }
            _ => {}
        }
    }
    let mut given_up_before = BTreeSet::new();
    for _ in 0..TargetOutbox::MAX_NOTICES {
        let Some(seen) = env.store.read_target(target).await? else { return Ok((Vec::new(), false)) };
        let now = env.now();
        let mut outbox = seen.outbox.clone();
        let mut repetitions: Vec<Timestamp> = ended.iter().filter_map(|one| record(env, &mut outbox, one)).collect();
        let mut calls = Vec::new();
        for _ in 0..MAX_PER_WRITE {
            let Some((notice, subscription)) = next(&outbox, now).filter(|_| !is_late(env, begun)) else { break };
            let state = outbox.failed.get(&subscription);
            let mut of_receiver = outbox.notices.iter().filter(|one| one.to.contains(&subscription));
            let most = if of_receiver.nth(1).is_some() { MAX_BLOCKING_AGE } else { MAX_REFUSAL_AGE };
            let is_over = |state: &&ReceiverState| {
                now.since(notice.at) >= MAX_DELIVERY_AGE || state.refused.is_some_and(|since| now.since(since) >= most)
            };
            let given_up = match state {
                _ if subscription == TargetOutbox::PLATFORM => None,
                _ if outbox.exceeds(1) => Some("too many notifications of the target wait".to_owned()),
                state => state.filter(is_over).map(|state| state.reason.clone()),
            };
            if let Some(reason) = given_up {
                if given_up_before.insert((notice.number, subscription.clone())) {
                    give_up(env, &notice, &subscription, &reason).await?;
                }
                outbox.remove(notice.number, &subscription);
                // A delivery in progress keeps its lease.
                if outbox.failed.get(&subscription).is_some_and(|state| state.next <= now) {
                    outbox.failed.remove(&subscription);
                }
                continue;
            }
            let state = outbox.failed.entry(subscription.clone()).or_default();
            let Some(call) = try_begin(env, &subscription, state) else {
                repetitions.push(state.next);
                continue;
            };
            state.next = now.plus(env.settings.max_in_flight).plus(Millis::from(TIMEOUT));
            if state.reason.is_empty() {
                "the delivery was interrupted".clone_into(&mut state.reason);
            }
            calls.push((notice, subscription, state.clone(), call));
        }
        let has_more = next(&outbox, now).is_some();
        if outbox == seen.outbox && seen.due.is_none_or(|due| due > now) {
            return Ok((Vec::new(), has_more));
        }
        let transition = seen.update(|after| {
            after.outbox = outbox;
            after.due = due::next_due(env, after);
        });
        if !env.store.move_target(&transition).await? {
            continue;
        }
        for at in repetitions {
            announce(env, target, Duration::from_millis(at.since(now).0)).await;
        }
        let begun = calls.into_iter().map(|(notice, subscription, state, call)| {
            async move {
                let (Ok(result) | Err(result)) = Box::pin(send(env, &notice, &subscription)).await;
                result.end(call);
                let result = match result {
                    // The platform gets it as every other outcome: until it accepts it, or answers 410.
                    NotificationDelivery::Gone if subscription != TargetOutbox::PLATFORM => {
                        NotificationDelivery::Final("the server answered 410".to_owned())
                    }
                    result => result,
                };
                EndedDelivery { notice, subscription, lease: state.next, result }
            }
            .boxed()
        });
        return Ok((begun.collect(), has_more));
    }
    // The requests are repeated after their leases.
    Err(FlowError::Contended(target.to_string()))
}

/// Returns the next notification and its receiver. If too many wait, it is the oldest one that can be given up.
fn next(outbox: &TargetOutbox, now: Timestamp) -> Option<(PhaseNotice, String)> {
    let oldest = || outbox.notices.iter().find(|notice| !notice.is_for_platform());
    let oldest = outbox.exceeds(1).then(oldest).flatten();
    let oldest = oldest.and_then(|notice| Some((notice, notice.to.first()?.as_str())));
    let (notice, subscription) = oldest.or_else(|| outbox.next(now))?;
    Some((notice.clone(), subscription.to_owned()))
}

/// Begins a request to a subscription or to the platform, and counts the attempt in `state`. Returns `None` if the receiver
/// does not respond to others. `state` then has the time of the next attempt.
pub(in crate::instance) fn try_begin<'a>(
    env: &'a Env,
    receiver: &str,
    state: &mut ReceiverState,
) -> Option<PendingCall<'a>> {
    state.attempts = state.attempts.saturating_add(1);
    // A receiver that hangs at one path delays no other path of its server. No cluster and no origin has this name.
    let circuit = format!("#receiver/{receiver}");
    let call = PendingCall::try_begin(env, &circuit, MAX_DELIVERIES);
    if call.is_none() {
        let wait = repetition_wait(env, receiver, state.attempts, None).max(circuit_wait(env, &circuit));
        state.next = env.now().plus(wait);
        if state.reason.is_empty() {
            let party = if receiver == TargetOutbox::PLATFORM { "platform" } else { "receiver" };
            state.reason = format!("the {party} has not responded to other notifications yet");
        }
    }
    call
}

/// Records a failed delivery in `state`. Returns the time of its repetition, or `None` if it is not repeated.
pub(in crate::instance) fn record_failure(
    env: &Env,
    receiver: &str,
    state: &mut ReceiverState,
    result: &NotificationDelivery,
) -> Option<Timestamp> {
    let reason = result.failure()?;
    let (now, wait) = (env.now(), repetition_wait(env, receiver, state.attempts, result.at_least()));
    let is_refusal = matches!(result, NotificationDelivery::Refused(_));
    state.refused = state.refused.or(Some(now)).filter(|_| is_refusal);
    (state.next, state.at, state.reason) = (now.plus(wait), now, limits::clean(reason, limits::REFUSAL));
    Some(state.next)
}

/// Returns the wait before the repetition of a delivery, by its attempts and by the request of the receiver. The platform
/// gets its notification within ten minutes after it recovers.
fn repetition_wait(env: &Env, receiver: &str, attempts: u32, at_least: Option<Duration>) -> Millis {
    let is_frequent = receiver == TargetOutbox::PLATFORM && attempts <= FREQUENT_ATTEMPTS;
    let backoff = if is_frequent { FREQUENT_BACKOFF } else { BACKOFF };
    let requested = at_least.map_or(Millis(0), Millis::from);
    let requested = if receiver == TargetOutbox::PLATFORM { requested.min(BACKOFF.max) } else { requested };
    // A server that repeats its request to wait is asked less and less often, as GitHub expects it.
    let backoff = Backoff { base: backoff.base.max(requested), max: backoff.max.max(requested) };
    backoff.wait(attempts, env.random.next()).max(MIN_WAIT).max(requested)
}

/// Records the end of a delivery. Returns the time of its repetition.
fn record(env: &Env, outbox: &mut TargetOutbox, ended: &EndedDelivery) -> Option<Timestamp> {
    let EndedDelivery { notice, subscription, lease, result } = ended;
    let Some(reason) = result.failure() else {
        outbox.remove(notice.number, subscription);
        outbox.end_lease(subscription, *lease);
        return None;
    };
    tracing::warn!(subscription, id = notice_id(notice), reason, "a notification was not accepted; it is repeated");
    if !outbox.has(notice.number, subscription) {
        outbox.end_lease(subscription, *lease);
        return None;
    }
    // Another invocation may have taken the lease meanwhile.
    let state = outbox.failed.get_mut(subscription).filter(|state| state.next == *lease)?;
    record_failure(env, subscription, state, result)
}

/// Appends notifications of a subscription that were given up to their targets again, the oldest first. They keep their content
/// and ID. A receiver that shows the state of a target gets only what its present phase has; the rest is deleted. Ends the
/// waits for the receiver. Returns what was done, for people.
pub async fn resend(env: &Env, subscription: &str) -> FlowResult<String> {
    let (begun, rules) = (env.now(), super::rules(env).await?);
    let Some(rule) = rules.iter().find(|rule| rule.name == subscription) else {
        return Ok("0 sent again: the subscription has errors, or is new".to_owned());
    };
    let stored = env.store.list_undelivered(&format!("{subscription}/"), MAX_RESENT).await?;
    let read = |item: NamedDocument| {
        let mut stored: Value = serde_json::from_str(&item.document).ok()?;
        let notice: PhaseNotice = serde_json::from_value(stored.get_mut("notice")?.take()).ok()?;
        let about: TargetFacts = serde_json::from_value(notice.target.clone()).ok()?;
        Some((PhaseNotice { to: vec![subscription.to_owned()], ..notice }, about, item.name))
    };
    let mut given_up: Vec<_> = stored.into_iter().filter_map(read).collect();
    given_up.sort_by_key(|(notice, ..)| notice.number);
    let mut done = BTreeMap::from([("sent again", 0)]);
    for (notice, about, item) in given_up {
        let target = TargetKey::new(&about.kind, &about.name);
        let is_present = |seen: &TargetHead| {
            (&about.uid, about.generation) == (&seen.uid, seen.generation) && notice.at >= seen.since
        };
        let is_failing = |seen: &TargetHead| {
            seen.outbox.exceeds(1) || seen.outbox.failed.get(subscription).is_some_and(|state| state.at > Timestamp(0))
        };
        let end = match env.store.read_target(target).await? {
            _ if is_late(env, begun) => "skipped: the time has ended; repeat the command",
            seen if rule.to.shows_state() && seen.as_ref().is_none_or(|seen| !is_present(seen)) => {
                env.store.delete_document(NamedKind::Undelivered, &item).await?;
                "deleted: the target is in a later state, or gone"
            }
            None => "skipped: the target does not exist any more",
            Some(seen) if is_failing(&seen) => "skipped: another notification of the target waits; repeat the command",
            Some(seen) => {
                let transition = seen.update(|after| {
                    let place = after.outbox.notices.partition_point(|one| one.number < notice.number);
                    after.outbox.notices.insert(place, notice);
                    after.due = due::next_due(env, after);
                });
                if env.store.move_target(&transition).await? {
                    env.store.delete_document(NamedKind::Undelivered, &item).await?;
                    announce(env, target, Duration::ZERO).await;
                    "sent again"
                } else {
                    "skipped: the target changes; repeat the command"
                }
            }
        };
        *done.entry(end).or_default() += 1;
    }
    // What ends later than a lease can is a wait.
    let lease = env.now().plus(env.settings.max_in_flight).plus(Millis::from(TIMEOUT));
    for (_, item) in env.store.query_due(Timestamp(u64::MAX / 2), MAX_RESENT).await? {
        let DueItem::Target(kind, name) = item else { continue };
        let target = TargetKey::new(&kind, &name);
        let seen = env.store.read_target(target).await?.filter(|_| !is_late(env, begun));
        let waits = |seen: &TargetHead| seen.outbox.failed.get(subscription).is_some_and(|state| state.next > lease);
        let Some(seen) = seen.filter(waits) else { continue };
        let transition = seen.update(|after| {
            after.outbox.failed.entry(subscription.to_owned()).or_default().next = env.now();
            after.due = due::next_due(env, after);
        });
        if env.store.move_target(&transition).await? {
            announce(env, target, Duration::ZERO).await;
            *done.entry("tried before the end of a wait").or_default() += 1;
        }
    }
    Ok(done.iter().map(|(end, count)| format!("{count} {end}")).collect::<Vec<_>>().join(", "))
}

/// Deletes the notifications of an instance that were given up before an accepted one, if the receiver shows its state.
async fn forget_replaced(env: &Env, accepted: &PhaseNotice, subscription: &str) -> FlowResult<()> {
    if !super::rules(env).await?.iter().any(|rule| rule.name == subscription && rule.to.shows_state()) {
        return Ok(());
    }
    let id = notice_id(accepted);
    let prefix = format!("{subscription}/{}-", id.split('-').next().unwrap_or_default());
    for NamedDocument { name, .. } in env.store.list_undelivered(&prefix, MAX_RESENT).await? {
        let number = name.rsplit('-').next().and_then(|number| number.parse().ok());
        if number.is_some_and(|number: u64| number < accepted.number) {
            env.store.delete_document(NamedKind::Undelivered, &name).await?;
        }
    }
    Ok(())
}

/// Stores a notification that is not repeated any more, and raises an alarm.
async fn give_up(env: &Env, notice: &PhaseNotice, subscription: &str, reason: &str) -> FlowResult<()> {
    let id = format!("{subscription}/{}", notice_id(notice));
    tracing::error!(subscription, id, reason, "a notification is given up");
    let document = json!({"subscription": subscription, "notice": notice, "reason": reason}).to_string();
    env.store.put_document(NamedKind::Undelivered, &NamedDocument { name: id, document, changed: env.now() }).await?;
    telemetry::count_for_alarm(Counter::Undelivered, 1);
    Ok(())
}
