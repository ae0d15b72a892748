//! Applies the desired state of a target.

use ebb_engine::target::RequestSender;
use ebb_engine::{Millis, TargetPhase};
use ebb_protocol::api::{SourceResponse, SourceResult};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::id::short_digest;
use ebb_protocol::lifecycle::{EVENT_UID, LifecycleData, LifecycleResult, TargetStopCause};
use ebb_protocol::limits;
use ebb_store::{DesiredKey, DesiredTarget, TargetHead};

use crate::env::{DesiredStore, Env};
use crate::error::{FlowError, RequestError};
use crate::instance::lifecycle::{self, LifecycleRejection};
use crate::run::follow_up::FollowUp;

/// The wait after which a state is applied again: after a crash, or while the name of the target is taken. An invocation
/// that applies a state ends earlier.
pub(crate) const RETRY_WAIT: Millis = Millis(30_000);

/// Applies the desired state of a target until none newer is found, and records the result. Returns the result with the
/// follow-ups. Without a state that is to be applied, it returns the last result.
///
/// # Errors
/// Returns an error if the state could not be applied or recorded. It stays due.
pub async fn apply(
    env: &Env,
    store: &dyn DesiredStore,
    key: &DesiredKey,
) -> Result<(Option<SourceResponse>, Vec<FollowUp>), FlowError> {
    let mut follow_ups = Vec::new();
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = store.read_desired(key).await? else { return Ok((None, follow_ups)) };
        let is_applied = seen.result.is_some() && seen.due.is_none_or(|due| due > env.now());
        if is_applied {
            return Ok((seen.result, follow_ups));
        }
        let outcome = match seen.is_delete {
            true => delete(env, &seen, &mut follow_ups).await?,
            false => match create(env, store, &seen, &mut follow_ups).await? {
                Some(outcome) => outcome,
                None => continue,
            },
        };
        if is_ended_by_replaced(&seen, &outcome) {
            let new_uid = derived_uid(&seen.key, &format!("{}#{}", seen.delivery, seen.version));
            let again = DesiredTarget { new_uid, result: None, result_time: None, version: seen.version + 1, ..seen };
            store.put_desired(&again).await?;
            continue;
        }
        let is_open = outcome.result == SourceResult::Accepted;
        let is_last = !is_open && !seen.confirm;
        let after = DesiredTarget {
            due: (!is_last).then(|| env.now().plus(RETRY_WAIT)),
            confirm: seen.confirm && is_open,
            document: seen.document.clone().filter(|_| !is_last),
            result: Some(outcome.clone()),
            result_time: Some(env.now().0),
            version: seen.version + 1,
            ..seen
        };
        // A newer state that was written in the meantime is applied next.
        if store.put_desired(&after).await? {
            return Ok((Some(outcome), follow_ups));
        }
    }
    Err(FlowError::Contended(format!("the desired state of {}/{}", key.kind, key.name)))
}

/// Returns true if the second application of a state finds that its instance has ended. The replaced state, a deletion,
/// was applied at the same time and ended it.
fn is_ended_by_replaced(seen: &DesiredTarget, now: &SourceResponse) -> bool {
    let is_second = seen.result.as_ref().is_some_and(|first| first.result != SourceResult::Accepted);
    let is_own = now.uid.as_ref() == Some(&seen.new_uid) && seen.key.uid.is_none();
    is_second && is_own && now.result == SourceResult::Outdated
}

fn outcome(desired: &DesiredTarget, result: SourceResult, uid: Option<String>, detail: String) -> SourceResponse {
    SourceResponse { result, target: Some(format!("{}/{}", desired.key.kind, desired.key.name)), uid, detail }
}

pub(crate) fn is_alive(head: &TargetHead) -> bool {
    head.phase.is_alive()
}

/// Returns the UID of an instance that an event begins without naming one.
pub(super) fn derived_uid(key: &DesiredKey, delivery: &str) -> String {
    format!("{EVENT_UID}{}", short_digest(&[&key.source, &key.kind, &key.name, delivery], 20))
}

/// Returns true for a UID of `derived_uid`.
pub fn is_derived(uid: &str) -> bool {
    uid.starts_with(EVENT_UID)
}

fn is_own(desired: &DesiredTarget, owner: Option<&String>) -> bool {
    owner == Some(&desired.key.source)
}

/// Returns the instance of a source that waits for the name of a living one of the same source, although the event names
/// none of them. Two states were then applied at the same time.
fn second<'a>(desired: &DesiredTarget, head: &'a TargetHead) -> Option<&'a str> {
    let waiting = head.waiting.as_ref().filter(|waiting| is_own(desired, waiting.owner.as_ref()));
    let is_second = desired.key.uid.is_none() && is_alive(head) && is_own(desired, head.owner.as_ref());
    waiting.map(|waiting| waiting.uid.as_str()).filter(|uid| is_second && is_derived(uid))
}

/// Returns the instances of the name with their newest generations and owners: the one that waits, then the one that is
/// not gone. If the event names an instance, no other one is returned.
fn meant<'a>(desired: &DesiredTarget, head: Option<&'a TargetHead>) -> Vec<(&'a str, u64, Option<&'a String>)> {
    let waiting = head.and_then(|head| head.waiting.as_ref());
    let waiting = waiting.map(|waiting| (waiting.uid.as_str(), waiting.generation, waiting.owner.as_ref()));
    let present = head.filter(|head| head.phase != TargetPhase::Gone);
    let present = present.map(|head| (head.uid.as_str(), head.newest_generation(), head.owner.as_ref()));
    let is_meant = |uid: &str| desired.key.uid.as_deref().is_none_or(|named| named == uid);
    waiting.into_iter().chain(present).filter(|(uid, ..)| is_meant(uid)).collect()
}

/// Returns those instances that belong to the source.
fn own<'a>(desired: &DesiredTarget, head: Option<&'a TargetHead>) -> Vec<(&'a str, u64)> {
    let own = meant(desired, head).into_iter().filter(|(.., owner)| is_own(desired, *owner));
    own.map(|(uid, newest, _)| (uid, newest)).collect()
}

/// Returns true for an instance that waits or has not begun to end.
fn lives(head: Option<&TargetHead>, uid: &str) -> bool {
    head.is_some_and(|head| head.uid != uid || is_alive(head))
}

/// Returns the instance that an event concerns, with its next generation: the one that it names, otherwise the one that
/// lives or waits for the name, otherwise a new one.
fn instance(desired: &DesiredTarget, head: Option<&TargetHead>) -> (String, u64, LifecycleType) {
    let own = own(desired, head);
    let found = match desired.key.uid {
        Some(_) => own.first(),
        None => own.iter().rev().find(|(uid, _)| lives(head, uid)),
    };
    match found {
        Some((uid, generation)) => ((*uid).to_owned(), generation + 1, LifecycleType::Updated),
        None => (desired.key.uid.as_ref().unwrap_or(&desired.new_uid).clone(), 1, LifecycleType::Created),
    }
}

/// Creates or updates the target. Returns `None` if another writer has taken the generation. The state is then read again,
/// because it may have been replaced.
async fn create(
    env: &Env,
    store: &dyn DesiredStore,
    desired: &DesiredTarget,
    follow_ups: &mut Vec<FollowUp>,
) -> Result<Option<SourceResponse>, FlowError> {
    let sender = RequestSender::Source(&desired.key.source);
    let head = env.store.read_target(&desired.key.kind, &desired.key.name).await?;
    if let Some(second) = head.as_ref().and_then(|head| second(desired, head)) {
        let target = (desired.key.kind.as_str(), desired.key.name.as_str(), second);
        let deleted = lifecycle::begin_delete(env, target, TargetStopCause::Deleted, sender);
        follow_ups.extend(Box::pin(deleted).await?);
    }
    let (uid, generation, change) = instance(desired, head.as_ref());
    let event = LifecycleData {
        kind: desired.key.kind.clone(),
        name: desired.key.name.clone(),
        uid: uid.clone(),
        generation,
        document: desired.document.clone(),
        routing_key: None,
        event: None,
    };
    let begun = Box::pin(lifecycle::begin(env, store, (change, &desired.delivery), &event, sender)).await;
    let rejection = match begun {
        Ok((response, follow_up)) => {
            follow_ups.push(follow_up);
            if response.result == LifecycleResult::Waiting {
                let head = env.store.read_target(&desired.key.kind, &desired.key.name).await?;
                if head.as_ref().is_some_and(|head| head.uid == uid) {
                    let detail = "changes to this document when its present run has ended".to_owned();
                    return Ok(Some(outcome(desired, SourceResult::Waiting, Some(uid), detail)));
                }
                if head.is_some_and(|head| second(desired, &head).is_some()) {
                    let detail = "another event of the target is being applied".to_owned();
                    return Ok(Some(outcome(desired, SourceResult::Accepted, Some(uid), detail)));
                }
            }
            let (result, detail) = match response.result {
                LifecycleResult::Waiting => {
                    (SourceResult::Waiting, "starts when the previous instance of the name is gone")
                }
                LifecycleResult::Updating => (SourceResult::Updating, "changes to this document"),
                LifecycleResult::Updated => (SourceResult::Updating, "has changed to this document"),
                LifecycleResult::Unchanged => (SourceResult::Unchanged, "exists with this document"),
                LifecycleResult::Retrying => {
                    (SourceResult::Unchanged, "exists with this document; failed units are retried")
                }
                _ => (SourceResult::Starting, "starts"),
            };
            return Ok(Some(outcome(desired, result, Some(uid), detail.to_owned())));
        }
        Err(RequestError::Failed(error)) => return Err(error),
        Err(RequestError::Rejected(rejection)) => rejection,
    };
    let rejected =
        |detail: String| outcome(desired, SourceResult::Rejected, Some(uid.clone()), limits::message(&detail));
    Ok(Some(match rejection {
        LifecycleRejection::Conflict("outdated", _) => return Ok(None),
        LifecycleRejection::Conflict("name-taken", detail) => {
            outcome(desired, SourceResult::Accepted, Some(uid), detail)
        }
        // The delivery was applied before, and its instance has ended since.
        LifecycleRejection::Conflict("stale", detail) => outcome(desired, SourceResult::Outdated, Some(uid), detail),
        LifecycleRejection::Conflict(_, detail)
        | LifecycleRejection::Unknown(detail)
        | LifecycleRejection::Missing(detail)
        | LifecycleRejection::Busy(detail)
        | LifecycleRejection::Invalid(detail) => rejected(detail),
        LifecycleRejection::Document(errors) => rejected(errors.to_string()),
    }))
}

async fn delete(
    env: &Env,
    desired: &DesiredTarget,
    follow_ups: &mut Vec<FollowUp>,
) -> Result<SourceResponse, FlowError> {
    let head = env.store.read_target(&desired.key.kind, &desired.key.name).await?;
    let own: Vec<String> = own(desired, head.as_ref()).into_iter().map(|(uid, _)| uid.to_owned()).collect();
    let Some(last) = own.last().cloned() else {
        let is_foreign = meant(desired, head.as_ref()).iter().any(|(uid, ..)| lives(head.as_ref(), uid));
        return Ok(match is_foreign {
            true => {
                let detail = "belongs to another sender: give the targets of this source other names".to_owned();
                outcome(desired, SourceResult::Rejected, None, detail)
            }
            false => outcome(desired, SourceResult::Ignored, None, "does not exist: nothing to delete".to_owned()),
        });
    };
    for uid in &own {
        let target = (desired.key.kind.as_str(), desired.key.name.as_str(), uid.as_str());
        let sender = RequestSender::Source(&desired.key.source);
        let deleted = lifecycle::begin_delete(env, target, TargetStopCause::Deleted, sender);
        follow_ups.extend(Box::pin(deleted).await?);
    }
    Ok(outcome(desired, SourceResult::Stopping, Some(last), "stops".to_owned()))
}
