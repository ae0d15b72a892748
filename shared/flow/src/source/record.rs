//! Records an event of a source as the state that it wants its target to have.
//!
//! Each source has states of its own. Whether it may change the target is decided by the target, when the state is
//! applied.

use ebb_engine::{Millis, Timestamp};
use ebb_protocol::api::{SourceResponse, SourceResult};
use ebb_store::{DesiredKey, DesiredTarget};

use super::reconcile::{RETRY_WAIT, derived_uid, outcome};
use crate::{Env, FlowError, FlowResult};

/// How far the clock of a sender may be ahead. A later time is ignored, because it would hide all events until then.
const MAX_AHEAD: Millis = Millis(5 * 60 * 1000);

/// An event that was mapped to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEvent {
    /// The id of the delivery, for people.
    pub delivery: String,
    /// What a repetition of the delivery has in common with it, if the sender has not signed its id: the digest of the body.
    pub identity: Option<String>,
    /// The source, the target, and the instance if the event names one.
    pub key: DesiredKey,
    /// The time of the event by the sender.
    pub time: Option<Timestamp>,
    /// The document of the target. `None` deletes the target.
    pub document: Option<String>,
}

impl TargetEvent {
    fn identity(&self) -> &str {
        self.identity.as_deref().unwrap_or(&self.delivery)
    }

    /// Returns true if the event decided a state, or an earlier one.
    fn is_repeated(&self, seen: &DesiredTarget) -> bool {
        self.is_last(seen) || seen.recent.iter().any(|earlier| earlier == self.identity())
    }

    fn is_last(&self, seen: &DesiredTarget) -> bool {
        seen.identity() == self.identity()
    }

    /// Returns true if a state is newer than the event (NewestEventDecides).
    ///
    /// * An instance ends once. If the events name it, its deletion is the newest event.
    /// * Otherwise the times of the sender decide. Of two equal times, a deletion is newer, so that nothing stays.
    /// * Otherwise the event that arrives later is newer. No clock of this deployment decides.
    fn is_outdated(&self, seen: &DesiredTarget, sent: Option<Timestamp>) -> bool {
        let is_delete = self.document.is_none();
        if self.key.uid.is_some() && (is_delete || seen.is_delete) {
            return !is_delete;
        }
        let times = sent.zip(seen.sent);
        times.is_some_and(|(sent, known)| (known, seen.is_delete) > (sent, is_delete))
    }
}

/// Records an event, unless it was received before or a newer one is known. Returns the result of an event that is not
/// recorded.
///
/// # Errors
/// Returns an error if the event could not be written. The sender repeats it.
pub async fn record(env: &Env, event: &TargetEvent) -> FlowResult<Option<SourceResponse>> {
    for _ in 0..crate::ATTEMPTS {
        let now = env.now();
        let sent = event.time.filter(|time| *time <= now.plus(MAX_AHEAD));
        let seen = env.store.read_desired(&event.key).await?;
        let mut desired = new_state(event, sent, now);
        if let Some(seen) = seen {
            let has_failed = seen.result.as_ref().is_some_and(|outcome| outcome.result.is_failure());
            if event.is_repeated(&seen) && !(has_failed && event.is_last(&seen)) {
                return Ok(Some(repeated(event, &seen)));
            }
            if event.is_outdated(&seen, sent) {
                return Ok(Some(outdated(event, &seen)));
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

/// Returns the UID of an instance that a state begins without naming one. It follows from the event, so that an event that
/// is received again when its state was removed begins no second instance.
fn new_uid(desired: &DesiredTarget) -> String {
    match desired.version {
        1 => derived_uid(&desired.key, desired.identity()),
        version => derived_uid(&desired.key, &format!("{}#{version}", desired.identity())),
    }
}

fn new_state(event: &TargetEvent, sent: Option<Timestamp>, now: Timestamp) -> DesiredTarget {
    DesiredTarget {
        key: event.key.clone(),
        delivery: event.delivery.clone(),
        identity: event.identity.clone(),
        time: sent.unwrap_or(now),
        sent,
        document: event.document.clone(),
        is_delete: event.document.is_none(),
        due: Some(now.plus(RETRY_WAIT)),
        version: 1,
        ..DesiredTarget::default()
    }
}

/// Lets `desired` replace `seen`.
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

fn repeated(event: &TargetEvent, seen: &DesiredTarget) -> SourceResponse {
    let last = seen.result.as_ref().filter(|_| event.is_last(seen));
    let detail = match last {
        Some(last) => format!("the event was received before; the target {}", last.detail),
        None => "the event was received before".to_owned(),
    };
    outcome(&event.key, SourceResult::Repeated, last.and_then(|last| last.uid.clone()), detail)
}

fn outdated(event: &TargetEvent, seen: &DesiredTarget) -> SourceResponse {
    let detail = match event.key.uid.is_some() && seen.is_delete {
        true => format!("the instance was deleted before, by {}", seen.delivery),
        false => format!("a newer event of the target was received before: {}", seen.delivery),
    };
    outcome(&event.key, SourceResult::Outdated, None, detail)
}
