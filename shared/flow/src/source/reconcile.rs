//! Applies the desired state of a target.

use ebb_documents::model::LimitAction;
use ebb_engine::{Millis, RequestSender, TargetPhase, Timestamp};
use ebb_protocol::lifecycle::{EVENT_UID, LifecycleData, LifecycleResult, TargetStopCause};
use ebb_protocol::{ErrorCode, HistoryChange, LifecycleType, SourceResponse, SourceResult, limits, short_digest};
use ebb_store::{DesiredKey, DesiredTarget, TargetHead};

use crate::advance::FollowUp;
use crate::instance::{due, history, living, rejected_events};
use crate::lifecycle::{self, DecidedFor, Protection, Requester};
use crate::{Decision, Env, FlowError, FlowResult, Rejection, RequestError};

/// The wait after which a state is applied again: after a crash, or while the name or every place is taken. An invocation
/// that applies a state ends earlier.
pub(crate) const RETRY_WAIT: Millis = Millis(30_000);

/// The longest wait while the name of the target or every place is taken.
const MAX_RETRY_WAIT: Millis = Millis(15 * 60 * 1000);

/// Returns the wait before the next application of a state whose target has not been free since a time. It doubles, because
/// it is as long as the target has not been free.
fn taken_wait(since: Timestamp, now: Timestamp) -> Millis {
    now.since(since).clamp(RETRY_WAIT, MAX_RETRY_WAIT)
}

/// Applies the desired state of a target until none newer is found, and records the result. Returns the result with the
/// follow-ups. Without a state that is to be applied, it returns the last result. A rejection is listed before it is
/// recorded: after a crash in between, the state is applied again, and listed once.
///
/// A replaced state writes nothing after its successor was applied. So what a person does after that stays:
///
/// 1. Each write to the target names the version that was read before the state.
/// 2. A state that replaces one that is possibly being applied gives the target a new version first. There is nothing to
///    write for the deletion of a target that does not exist, so a deletion is applied a second time. The invocation
///    that has applied the replaced state does so at once. A later sweep does so, too, because this one may have died.
///
/// # Errors
/// Returns an error if the state could not be applied or recorded. It stays due.
pub async fn apply(env: &Env, key: &DesiredKey) -> FlowResult<(Option<SourceResponse>, Vec<FollowUp>)> {
    let mut follow_ups = Vec::new();
    let mut was_replaced = false;
    for _ in 0..crate::ATTEMPTS {
        let mut head = env.store.read_target(key.target_key()).await?;
        let Some(seen) = env.store.read_desired(key).await? else { return Ok((None, follow_ups)) };
        let is_applied = seen.result.is_some() && seen.due.is_none_or(|due| due > env.now());
        // The invocation that applied the deletion may not have seen what this one has begun meanwhile.
        let is_second = is_applied && was_replaced && seen.is_delete && seen.due.is_some();
        if is_applied && !is_second {
            return Ok((seen.result, follow_ups));
        }
        let own = own(&seen, head.as_ref());
        // The source wants a target again whose deletion was refused.
        let is_refused = |head: &&TargetHead| head.phase.is_alive() && head.refused_deletion.is_some();
        let refused = head.as_ref().filter(is_refused).map(|head| head.uid.as_str());
        let is_wanted = own.iter().any(|(uid, _)| Some(*uid) == refused);
        let is_fenced = !seen.is_delete && (is_wanted || (seen.replaces_due && !own.is_empty()));
        if is_fenced && let Some(target) = &mut head {
            if is_wanted {
                target.refused_deletion = None;
                due::note_activity(env, target).await?;
                target.due = due::next_due(env, target);
            }
            let fence = target.update(|_| {});
            if !env.store.move_target(&fence).await? {
                continue;
            }
            *target = fence.target;
        }
        let decided = match seen.is_delete {
            true => delete(env, &seen, head.as_ref(), &mut follow_ups).await?,
            false => create(env, &seen, head.as_ref(), &mut follow_ups).await?,
        };
        let Some(outcome) = decided else { continue };
        rejected_events::note(env, &key.source, &seen.delivery, &outcome).await;
        let now = env.now();
        let is_same = seen.result.as_ref() == Some(&outcome);
        let since = seen.result_time.filter(|_| is_same).unwrap_or(now);
        let wait = match outcome.result {
            SourceResult::Accepted => Some(taken_wait(since, now)),
            _ if seen.replaces_due && seen.is_delete => Some(RETRY_WAIT.max(env.settings.max_in_flight)),
            _ => None,
        };
        let after = DesiredTarget {
            due: if is_second { seen.due } else { wait.map(|wait| now.plus(wait)) },
            replaces_due: false,
            document: seen.document.clone().filter(|_| wait.is_some()),
            result: Some(outcome.clone()),
            result_time: Some(since),
            version: seen.version + 1,
            ..seen
        };
        // A newer state that was written in the meantime is applied next.
        if env.store.put_desired(&after).await? {
            return Ok((Some(outcome), follow_ups));
        }
        was_replaced = true;
    }
    Err(FlowError::Contended(format!("the desired state of {}", key.target_key())))
}

/// Returns the response to an event about the target of `key`.
pub(super) fn outcome(key: &DesiredKey, result: SourceResult, uid: Option<String>, detail: String) -> SourceResponse {
    SourceResponse { result, target: Some(key.target_key().to_string()), uid, detail }
}

/// Returns the UID of an instance that an event begins without naming one.
pub(super) fn derived_uid(key: &DesiredKey, delivery: &str) -> String {
    format!("{EVENT_UID}{}", short_digest(&[&key.source, &key.kind, &key.name, delivery], 20))
}

/// Returns true for a UID of `derived_uid`.
pub fn is_derived(uid: &str) -> bool {
    uid.starts_with(EVENT_UID)
}

fn is_own(desired: &DesiredTarget, source: Option<&String>) -> bool {
    source == Some(&desired.key.source)
}

/// Returns the instances of the source with this name, with their newest generations: the one that waits, then the one
/// that is not gone. If the event names an instance, no other one is returned.
fn own<'a>(desired: &DesiredTarget, head: Option<&'a TargetHead>) -> Vec<(&'a str, u64)> {
    let waiting = head.and_then(|head| head.waiting.as_ref());
    let waiting = waiting.map(|waiting| (waiting.uid.as_str(), waiting.generation, waiting.source.as_ref()));
    let present = head.filter(|head| head.phase != TargetPhase::Gone);
    let present = present.map(|head| (head.uid.as_str(), head.newest_generation(), head.source.as_ref()));
    let is_meant = |uid: &str| desired.key.uid.as_deref().is_none_or(|named| named == uid);
    let all = waiting.into_iter().chain(present);
    all.filter(|(uid, _, source)| is_own(desired, *source) && is_meant(uid))
        .map(|(uid, newest, _)| (uid, newest))
        .collect()
}

/// Returns the instance that an event concerns, with its next generation: the one that it names, otherwise the one that
/// lives or waits for the name, otherwise a new one.
fn instance(desired: &DesiredTarget, head: Option<&TargetHead>) -> (String, u64, LifecycleType) {
    let own = own(desired, head);
    let lives = |uid: &str| head.is_some_and(|head| head.uid != uid || head.phase.is_alive());
    let found = match desired.key.uid {
        Some(_) => own.first(),
        None => own.iter().rev().find(|(uid, _)| lives(uid)),
    };
    match found {
        Some((uid, generation)) => ((*uid).to_owned(), generation + 1, LifecycleType::Updated),
        None => (desired.key.uid.as_ref().unwrap_or(&desired.new_uid).clone(), 1, LifecycleType::Created),
    }
}

/// Creates or updates the target. Returns `None` if another writer has changed the target, or if another target gives it its
/// place. The state is then read again, because it may have been replaced.
async fn create(
    env: &Env,
    desired: &DesiredTarget,
    head: Option<&TargetHead>,
    follow_ups: &mut Vec<FollowUp>,
) -> FlowResult<Option<SourceResponse>> {
    let (uid, generation, change) = instance(desired, head);
    let (kind, name, document) = (desired.key.kind.clone(), desired.key.name.clone(), desired.document.clone());
    let event = LifecycleData { kind, name, uid: uid.clone(), generation, document, routing_key: None, event: None };
    let (source, decided) = (desired.key.source.as_str(), DecidedFor::seen(head));
    let limit = if desired.is_limited { super::limit(env, source).await? } else { None };
    let most_living = limit.map(|(most, _)| most);
    let requester = Requester { most_living, ..RequestSender::Source(source).into() };
    let begun = lifecycle::begin(env, &env.store, (change, &desired.delivery), &event, requester, decided);
    let rejection = match Box::pin(begun).await {
        Ok((response, follow_up)) => {
            follow_ups.push(follow_up);
            let (result, detail) = match response.result {
                LifecycleResult::Waiting if head.is_some_and(|head| head.uid == uid) => {
                    (SourceResult::Waiting, "changes to this document when its present run has ended")
                }
                LifecycleResult::Waiting => {
                    (SourceResult::Waiting, "starts when the previous instance of the name is gone")
                }
                LifecycleResult::Updating => (SourceResult::Updating, "changes to this document"),
                LifecycleResult::Updated => (SourceResult::Updating, "is updated to this document"),
                LifecycleResult::Unchanged => (SourceResult::Unchanged, "exists with this document"),
                LifecycleResult::Retrying => {
                    (SourceResult::Unchanged, "exists with this document; failed units are retried")
                }
                _ => (SourceResult::Starting, "starts"),
            };
            return Ok(Some(outcome(&desired.key, result, Some(uid), detail.to_owned())));
        }
        Err(RequestError::Failed(error)) => return Err(error),
        Err(RequestError::Rejected(rejection)) => rejection,
    };
    if let (Rejection::Refused(ErrorCode::Busy, why), Some((most, then))) = (&rejection, limit)
        && let Some(detail) = why.strip_prefix("waits: ")
    {
        if then == LimitAction::Reject {
            return Ok(Some(outcome(&desired.key, SourceResult::Rejected, Some(uid), detail.to_owned())));
        }
        if then == LimitAction::ReplaceOldest && replace_oldest(env, desired, most, follow_ups).await? {
            return Ok(None);
        }
    }
    Ok(Some(match rejection {
        Rejection::Refused(ErrorCode::Outdated, _) => return Ok(None),
        // The cause passes, and the sender does not repeat an event that has its response.
        Rejection::Refused(ErrorCode::NameTaken | ErrorCode::Busy, detail) => {
            outcome(&desired.key, SourceResult::Accepted, Some(uid), detail)
        }
        // The instance that the event names, or that its delivery has begun before, has ended.
        Rejection::Refused(ErrorCode::Stale, detail) => {
            outcome(&desired.key, SourceResult::Outdated, Some(uid), detail)
        }
        rejection => outcome(&desired.key, SourceResult::Rejected, Some(uid), limits::message(&rejection.to_string())),
    }))
}

/// Deletes the oldest of the living targets of the source that has no protected resource. Returns false if there is none.
async fn replace_oldest(
    env: &Env,
    desired: &DesiredTarget,
    most: u32,
    follow_ups: &mut Vec<FollowUp>,
) -> FlowResult<bool> {
    let (name, key) = (desired.key.source.as_str(), desired.key.target_key());
    let used = living::take(env, ((living::SOURCE, name), most), key).await?;
    if used.is_empty() {
        return Ok(true);
    }
    // A target with a slot that does not live is about to begin, or has just ended.
    let living: Option<Vec<_>> = used.into_iter().map(|(head, end)| Some((head?, end))).collect();
    let mut living = living.unwrap_or_default();
    living.sort_by_key(|(head, _)| head.created);
    // The place of a target stays taken if another instance waits for its name.
    for (head, end) in living.iter().filter(|(head, _)| head.waiting.is_none()) {
        let (source, target) = (RequestSender::Source(name), head.target_key());
        let sender = (source, DecidedFor::seen(Some(head)), Protection::Respected);
        let deleted = async {
            lifecycle::check_unprotected(env, head).await?;
            let (instance, cause) = (target.instance(&head.uid), TargetStopCause::Deleted);
            lifecycle::begin_delete(env, instance, cause, sender, source.owner()).await
        };
        match Box::pin(deleted).await {
            Ok(Some(follow_up)) => follow_ups.push(follow_up),
            // Another writer has changed the target.
            Ok(None) => return Ok(true),
            Err(RequestError::Rejected(_)) => continue,
            Err(RequestError::Failed(error)) => return Err(error),
        }
        let (by, reason) = (source.owner(), format!("replaced by {key}"));
        let decision = Decision { change: HistoryChange::Deleted, by: by.as_deref(), reason: Some(&reason) };
        history::note_decision(env, head, decision, []).await?;
        // A write that would begin the target has read an earlier version of it.
        env.store.release_slot((living::SOURCE, name), &target.to_string(), Some(*end)).await?;
        return Ok(true);
    }
    Ok(false)
}

/// Returns true if a deletion may end an instance. Its second application ends what the replaced state has begun, and no
/// instance that another event names.
fn may_end(desired: &DesiredTarget, uid: &str) -> bool {
    let is_known = |first: &SourceResponse| first.uid.as_deref() == Some(uid);
    desired.key.uid.is_some() || is_derived(uid) || desired.result.as_ref().is_none_or(is_known)
}

/// Deletes the instances of the source. Returns `None` if another one is to be deleted, or another writer has changed the
/// target. Both are then read again.
async fn delete(
    env: &Env,
    desired: &DesiredTarget,
    head: Option<&TargetHead>,
    follow_ups: &mut Vec<FollowUp>,
) -> FlowResult<Option<SourceResponse>> {
    let own = own(desired, head).into_iter().map(|(uid, _)| uid).filter(|uid| may_end(desired, uid));
    let own: Vec<&str> = own.collect();
    let Some(uid) = own.first() else {
        let is_present = |head: &TargetHead| head.phase.is_alive() && !is_own(desired, head.source.as_ref());
        let waits = |head: &TargetHead| head.waiting.as_ref().is_some_and(|one| !is_own(desired, one.source.as_ref()));
        let is_foreign = head.is_some_and(|head| is_present(head) || waits(head));
        return Ok(Some(match (&desired.result, is_foreign) {
            (Some(first), _) => first.clone(),
            (None, true) => {
                let detail = "belongs to another sender: give the targets of this source other names".to_owned();
                outcome(&desired.key, SourceResult::Rejected, None, detail)
            }
            (None, false) => {
                outcome(&desired.key, SourceResult::Ignored, None, "does not exist: nothing to delete".to_owned())
            }
        }));
    };
    let instance = desired.key.target_key().instance(uid);
    let source = RequestSender::Source(&desired.key.source);
    let sender = (source, DecidedFor::seen(head), Protection::Respected);
    let deleted = lifecycle::begin_delete(env, instance, TargetStopCause::Deleted, sender, source.owner());
    let follow_up = match Box::pin(deleted).await {
        Ok(Some(follow_up)) => follow_up,
        Ok(None) => return Ok(None),
        Err(RequestError::Rejected(reason)) => {
            let (result, uid) = (SourceResult::Rejected, Some((*uid).to_owned()));
            return Ok(Some(outcome(&desired.key, result, uid, reason.to_string())));
        }
        Err(RequestError::Failed(error)) => return Err(error),
    };
    follow_ups.push(follow_up);
    let is_last = own.len() == 1;
    Ok(is_last.then(|| outcome(&desired.key, SourceResult::Stopping, Some((*uid).to_owned()), "stops".to_owned())))
}
