//! Records an event of a source as the desired state of its target.

use ebb_engine::{Millis, Timestamp};
use ebb_protocol::api::{SourceResponse, SourceResult};
use ebb_store::{DesiredKey, DesiredTarget, DesiredTargets, TargetHead};

use super::reconcile::{RETRY_WAIT, derived_uid, is_alive, is_derived};
use crate::env::Env;
use crate::error::FlowError;

/// The time for which the state of a target is kept after its last event.
const STATE_RETENTION: Millis = Millis(30 * 24 * 60 * 60 * 1000);

/// An event that was mapped to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEvent {
    /// The name of the source.
    pub source: String,
    /// The id of the delivery.
    pub delivery: String,
    /// The target, and the instance if the event names one.
    pub key: DesiredKey,
    /// The time of the event by the sender. `None` means the time of its receipt.
    pub time: Option<Timestamp>,
    /// The document of the target. `None` deletes the target.
    pub document: Option<String>,
}

/// Records an event, unless another sender controls its target, it was received before, or a newer one is known. Of two
/// events of the same time, a deletion is the newer one. Returns the result of an event that is not recorded.
///
/// # Errors
/// Returns an error if the event could not be written. The sender repeats it.
pub async fn record(
    env: &Env,
    store: &dyn DesiredTargets,
    event: &TargetEvent,
) -> Result<Option<SourceResponse>, FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let now = env.now();
        let seen = store.read_desired(&event.key).await?;
        if let Some(outcome) = foreign(env, store, event, seen.as_ref()).await? {
            return Ok(Some(outcome));
        }
        let mut desired = new_state(event, now);
        if let Some(seen) = seen {
            let has_failed = seen.result.as_ref().is_some_and(|outcome| outcome.result.is_failure());
            let is_last = seen.delivery == event.delivery;
            if seen.has(&event.source, &event.delivery) && !(has_failed && is_last) {
                return Ok(Some(repeated(event, &seen)));
            }
            if (seen.time, seen.is_delete) > (desired.time, desired.is_delete) {
                return Ok(Some(outdated(event, &seen)));
            }
            replace(&mut desired, seen);
        }
        if store.put_desired(&desired).await? {
            return Ok(None);
        }
    }
    Err(FlowError::Contended(format!("the desired state of {}/{}", event.key.kind, event.key.name)))
}

/// Returns the rejection of an event for a target that its source does not control: the living instance of the name, or
/// the one that waits for it and that the event names.
async fn foreign(
    env: &Env,
    store: &dyn DesiredTargets,
    event: &TargetEvent,
    seen: Option<&DesiredTarget>,
) -> Result<Option<SourceResponse>, FlowError> {
    let DesiredKey { kind, name, uid } = &event.key;
    if uid.is_some() && seen.is_some_and(|seen| seen.source == event.source) {
        return Ok(None);
    }
    let Some(head) = env.store.read_target(kind, name).await? else { return Ok(None) };
    let waits = head.waiting.as_ref().is_some_and(|waiting| uid.as_ref() == Some(&waiting.uid));
    if !waits && !is_alive(&head) {
        return Ok(None);
    }
    let concerned = uid.as_ref().filter(|_| waits).unwrap_or(&head.uid);
    let key = DesiredKey { uid: Some(concerned.clone()).filter(|uid| !is_derived(uid)), ..event.key.clone() };
    let state = if key == event.key { seen.cloned() } else { store.read_desired(&key).await? };
    let why = match state.map(|state| state.source) {
        Some(owner) if owner == event.source => return Ok(None),
        Some(owner) => format!("source {owner} controls the target"),
        None if is_derived(concerned) || is_forgotten(&head, uid.as_ref(), env.now()) => return Ok(None),
        None => format!("no source has created the target; its uid is {concerned}"),
    };
    Ok(Some(SourceResponse {
        result: SourceResult::Rejected,
        target: Some(format!("{kind}/{name}")),
        uid: Some(concerned.clone()),
        detail: format!("{why}: give the targets of this source other names"),
    }))
}

/// Returns true if an event names an instance that lives longer than the state of a source is kept without events.
fn is_forgotten(head: &TargetHead, uid: Option<&String>, now: Timestamp) -> bool {
    uid == Some(&head.uid) && head.created.plus(STATE_RETENTION) <= now
}

fn new_state(event: &TargetEvent, now: Timestamp) -> DesiredTarget {
    DesiredTarget {
        key: event.key.clone(),
        source: event.source.clone(),
        delivery: event.delivery.clone(),
        // A sender's clock that is fast must not hide later events.
        time: event.time.map_or(now, |time| time.min(now)).0,
        new_uid: derived_uid(&event.source, &event.delivery),
        confirm: false,
        document: event.document.clone(),
        is_delete: event.document.is_none(),
        recent: Vec::new(),
        result: None,
        result_time: None,
        due: Some(now.plus(RETRY_WAIT)),
        version: 1,
    }
}

/// Lets `desired` replace `seen`.
fn replace(desired: &mut DesiredTarget, seen: DesiredTarget) {
    desired.version = seen.version + 1;
    desired.confirm = seen.due.is_some();
    // Ids of different sources can be equal.
    if seen.source == desired.source {
        desired.recent = seen.recent;
        desired.recent.push(seen.delivery);
        let excess = desired.recent.len().saturating_sub(DesiredTarget::MAX_RECENT);
        desired.recent.drain(..excess);
    }
}

fn repeated(event: &TargetEvent, seen: &DesiredTarget) -> SourceResponse {
    let last = seen.result.as_ref().filter(|_| seen.delivery == event.delivery);
    SourceResponse {
        result: SourceResult::Repeated,
        target: Some(format!("{}/{}", event.key.kind, event.key.name)),
        uid: last.and_then(|outcome| outcome.uid.clone()),
        detail: match last {
            Some(outcome) => format!("the event was received before; the target {}", outcome.detail),
            None => "the event was received before".to_owned(),
        },
    }
}

fn outdated(event: &TargetEvent, seen: &DesiredTarget) -> SourceResponse {
    SourceResponse {
        result: SourceResult::Outdated,
        target: Some(format!("{}/{}", event.key.kind, event.key.name)),
        uid: None,
        detail: format!("a newer event of the target was received before: {}", seen.delivery),
    }
}
