//! Keeps the last rejected events of a source, for operators.
//!
//! The events of a source are one item, which is replaced. A list that is full keeps an event for at least `WINDOW`, so a
//! flood of rejected events is written at most once per second on average. Further events are counted and logged only.

use ebb_protocol::{Millis, RejectedEvent, SourceResponse, SourceResult, limits};
use ebb_store::{DesiredKey, DesiredTarget, SourceRejections, TargetHead};

use crate::{Counter, Env, FlowError, FlowResult, telemetry};

/// The time for which a full list keeps an event, and in which an equal event is not listed again.
const WINDOW: Millis = Millis(1_000 * SourceRejections::MAX as u64);
/// The maximum bytes of a reason.
const DETAIL: usize = 512;
/// Attempts to write beside concurrent rejections.
const ATTEMPTS: usize = 3;

/// Logs, counts and lists an event if it is rejected. It is not listed if the list cannot be written.
pub async fn note(env: &Env, source: &str, delivery: &str, response: &SourceResponse) {
    if !response.result.is_failure() {
        return;
    }
    let SourceResponse { target, uid, detail, .. } = response;
    tracing::warn!(source, delivery, subject = target, detail, "an event of a source is rejected");
    telemetry::count(Counter::RejectedEvents, 1);
    let (delivery, target, uid) = (delivery.to_owned(), target.clone(), uid.clone());
    let event = RejectedEvent { time: env.now(), delivery, target, uid, detail: limits::clean(detail, DETAIL) };
    if let Err(error) = list(env, source, &event).await {
        tracing::warn!(%error, source, "a rejected event cannot be listed");
    }
}

/// Lists the event whose update of a target has waited and is refused now. Then records the rejection in the desired state,
/// so that a repetition of the event is applied.
pub(crate) async fn note_refused_update(env: &Env, target: &TargetHead, reason: &str) -> FlowResult<()> {
    let Some(source) = &target.source else { return Ok(()) };
    // Only some events name the instance.
    for uid in [None, Some(target.uid.clone())] {
        let (kind, name) = (target.kind.clone(), target.name.clone());
        let key = DesiredKey { source: source.clone(), kind, name, uid };
        let Some(seen) = env.store.read_desired(&key).await? else { continue };
        let waits = |response: &SourceResponse| {
            response.result == SourceResult::Waiting && response.uid.as_deref() == Some(target.uid.as_str())
        };
        let Some(waiting) = seen.result.clone().filter(waits) else { continue };
        let outcome = SourceResponse { result: SourceResult::Rejected, detail: limits::message(reason), ..waiting };
        note(env, source, &seen.delivery, &outcome).await;
        let (result, result_time) = (Some(outcome), Some(env.now()));
        // A newer event that was written in the meantime stays.
        env.store.put_desired(&DesiredTarget { result, result_time, version: seen.version + 1, ..seen }).await?;
    }
    Ok(())
}

async fn list(env: &Env, source: &str, event: &RejectedEvent) -> FlowResult<()> {
    for _ in 0..ATTEMPTS {
        let seen = env.store.read_rejections(source).await?;
        let (events, version) = seen.map_or((Vec::new(), 0), |seen| (seen.events, seen.version));
        let Some(events) = with(events, event) else { return Ok(()) };
        let rejections = SourceRejections { source: source.to_owned(), events, version: version + 1 };
        if env.store.put_rejections(&rejections).await? {
            return Ok(());
        }
    }
    Err(FlowError::Contended(format!("the rejected events of source {source}")))
}

/// Returns `events` with `event` as the newest, or `None` if it is not listed.
fn with(mut events: Vec<RejectedEvent>, event: &RejectedEvent) -> Option<Vec<RejectedEvent>> {
    let is_young = |listed: &RejectedEvent| event.time.since(listed.time) < WINDOW;
    let is_equal = |listed: &RejectedEvent| RejectedEvent { time: event.time, ..listed.clone() } == *event;
    if events.iter().any(|listed| is_young(listed) && is_equal(listed)) {
        return None;
    }
    events.retain(|listed| !is_equal(listed));
    if events.len() >= SourceRejections::MAX && events.last().is_some_and(is_young) {
        return None;
    }
    events.insert(0, event.clone());
    events.truncate(SourceRejections::MAX);
    Some(events)
}

#[cfg(test)]
mod tests {
    use ebb_engine::Timestamp;

    use super::*;

    fn event(delivery: u64, time: u64) -> RejectedEvent {
        let (delivery, detail) = (delivery.to_string(), "why".to_owned());
        RejectedEvent { time: Timestamp(time), delivery, target: None, uid: None, detail }
    }

    #[test]
    fn the_last_events_are_listed_the_newest_first() {
        let mut events = Vec::new();
        for number in 0..30 {
            events = with(events, &event(number, number * 2_000)).unwrap();
        }
        assert_eq!(events, (10..30).rev().map(|number| event(number, number * 2_000)).collect::<Vec<_>>());
        // The same event is rejected again, and takes its new place.
        let again = with(events, &event(10, 100_000)).unwrap();
        assert_eq!((again.len(), &again[0], &again[19]), (20, &event(10, 100_000), &event(11, 22_000)));
    }

    #[test]
    fn a_flood_is_written_once_per_second() {
        for deliveries in [1, 2, 19, 20, 21, 1_000] {
            let (mut events, mut writes) = (Vec::new(), 0);
            for number in 0..10_000 {
                if let Some(changed) = with(events.clone(), &event(number % deliveries, number * 10)) {
                    (events, writes) = (changed, writes + 1);
                }
            }
            // 100 s with 100 events per second. The first 20 events are written at once.
            assert!((5..=120).contains(&writes), "{deliveries} deliveries: {writes} writes");
        }
    }
}
