//! Records an event of a source as the state that it wants its target to have.
//!
//! Each source has states of its own. Whether it may change the target is decided by the target, when the state is
//! applied.

use ebb_protocol::{Millis, SourceResponse, SourceResult};
use ebb_store::DesiredTarget;

use super::reconcile::{RETRY_WAIT, derived_uid, outcome};
use crate::{Env, FlowError, FlowResult};

/// How far the clock of a sender may be ahead. A later time is ignored, because it would hide all events until then.
const MAX_AHEAD: Millis = Millis(5 * 60 * 1000);

/// Records an event, unless it was received before or a newer one is known. Returns the result of an event that is not
/// recorded. The event is the state that it wants: its `sent` is the time by its sender.
///
/// # Errors
/// Returns an error if the event could not be written. The sender repeats it.
pub async fn record(env: &Env, event: &DesiredTarget) -> FlowResult<Option<SourceResponse>> {
    record_if(env, event, None).await
}

/// Records what follows from the state with a version, or from no state with 0. Another state stays.
pub(super) async fn record_after(env: &Env, event: &DesiredTarget, version: u64) -> FlowResult<()> {
    record_if(env, event, Some(version)).await.map(drop)
}

async fn record_if(env: &Env, event: &DesiredTarget, after: Option<u64>) -> FlowResult<Option<SourceResponse>> {
    for _ in 0..crate::ATTEMPTS {
        let now = env.now();
        let sent = event.sent.filter(|time| *time <= now.plus(MAX_AHEAD));
        let (time, due) = (sent.unwrap_or(now), Some(now.plus(RETRY_WAIT)));
        let mut desired = DesiredTarget { time, sent, due, version: 1, ..event.clone() };
        let seen = env.store.read_desired(&event.key).await?;
        if after.is_some_and(|version| seen.as_ref().map_or(0, |seen| seen.version) != version) {
            let detail = "another event was received meanwhile".to_owned();
            return Ok(Some(outcome(&event.key, SourceResult::Outdated, None, detail)));
        }
        if let Some(seen) = seen {
            let has_failed = seen.result.as_ref().is_some_and(|outcome| outcome.result.is_failure());
            if is_repeated(event, &seen) && !(has_failed && is_last(event, &seen)) {
                return Ok(Some(repeated(env, event, &seen).await?));
            }
            let mut has_ended = event.key.uid.is_some() && seen.is_delete;
            if has_ended && let Some(head) = env.store.read_target(event.key.target_key()).await? {
                let is_named = event.key.uid.as_ref() == Some(&head.uid) && head.phase.is_alive();
                has_ended = !is_named || head.refused_deletion.is_none();
            }
            if is_outdated(&desired, &seen, has_ended) {
                let why = if has_ended { "the instance was deleted" } else { "a newer event was received" };
                let detail = format!("{why} before: {}", seen.delivery);
                return Ok(Some(outcome(&event.key, SourceResult::Outdated, None, detail)));
            }
            replace(&mut desired, seen);
        }
        desired.new_uid = new_uid(&desired);
        if env.store.put_desired(&desired).await? {
            return Ok(None);
        }
    }
    Err(FlowError::Contended(format!("the desired state of {}", event.key.target_key())))
}

/// Returns true if the event decided a state, or an earlier one.
fn is_repeated(event: &DesiredTarget, seen: &DesiredTarget) -> bool {
    is_last(event, seen) || seen.recent.iter().any(|earlier| earlier == event.identity())
}

fn is_last(event: &DesiredTarget, seen: &DesiredTarget) -> bool {
    seen.identity() == event.identity()
}

/// Returns true if a state is newer than the event (NewestEventDecides).
///
/// * An instance ends once. If the events name it, its deletion is the newest event, unless it was refused.
/// * Otherwise the times of the sender decide, then the places that the source gives to events of one time. Of two equal
///   places, a document is newer than a deletion.
/// * Otherwise the event that arrives later is newer. No clock of this deployment decides.
fn is_outdated(event: &DesiredTarget, seen: &DesiredTarget, has_ended: bool) -> bool {
    if has_ended || (event.key.uid.is_some() && event.is_delete) {
        return !event.is_delete;
    }
    let times = event.sent.zip(seen.sent);
    times.is_some_and(|(sent, known)| (known, seen.order, !seen.is_delete) > (sent, event.order, !event.is_delete))
}

/// Returns the UID of an instance that a state begins without naming one. It follows from the event, so that an event that
/// is received again when its state was removed begins no second instance.
fn new_uid(desired: &DesiredTarget) -> String {
    match desired.version {
        1 => derived_uid(&desired.key, desired.identity()),
        version => derived_uid(&desired.key, &format!("{}#{version}", desired.identity())),
    }
}

fn replace(desired: &mut DesiredTarget, seen: DesiredTarget) {
    desired.version = seen.version + 1;
    desired.replaces_due = seen.due.is_some();
    desired.sent = desired.sent.max(seen.sent);
    let last = seen.identity().to_owned();
    desired.recent = seen.recent;
    desired.recent.push(last);
    let excess = desired.recent.len().saturating_sub(DesiredTarget::MAX_RECENT);
    desired.recent.drain(..excess);
}

async fn repeated(env: &Env, event: &DesiredTarget, seen: &DesiredTarget) -> FlowResult<SourceResponse> {
    let last = seen.result.as_ref().filter(|_| is_last(event, seen));
    let uid = last.and_then(|last| last.uid.clone());
    let target =
        env.store.read_target(event.key.target_key()).await?.filter(|target| uid.as_ref() == Some(&target.uid));
    let detail = match (last, target.map(|target| target.phase)) {
        (Some(_), Some(phase)) => format!("a repetition; the target {} {}", phase.verb(), phase.name()),
        (Some(last), None) if uid.is_none() => format!("a repetition; the target {}", last.detail),
        (Some(_), None) => "a repetition of an event that was applied".to_owned(),
        (None, _) if seen.result.as_ref().is_some_and(|last| last.result.is_failure()) => {
            format!("a newer event of the target was rejected: send {} again", seen.delivery)
        }
        (None, _) => "a repetition".to_owned(),
    };
    Ok(outcome(&event.key, SourceResult::Repeated, uid, detail))
}
