//! Creates, updates and deletes targets at the request of a person or program.
//!
//! A request is a lifecycle webhook whose instance Ebb selects: the one that the request names, otherwise the newest
//! one of the name, otherwise a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_documents::Plan;
use ebb_engine::{RequestSender, TargetPhase};
use ebb_protocol::lifecycle::{self as fields, API_UID, EVENT_UID};
use ebb_protocol::{
    ApplyTarget, ErrorCode, InstanceRef, LifecycleData, LifecycleResponse, LifecycleResult, LifecycleType,
    TargetAccess, TargetKey, TargetReceipt, TargetStopCause, rfc3339, short_digest,
};
use ebb_store::TargetHead;

use crate::advance::{FollowUp, next_run, policy_check};
use crate::instance::changes::{self, PinnedVersions};
use crate::instance::due;
use crate::instance::rejection::{foreign, stale};
use crate::instance::requester::{check_losses, covers_instance, covers_present};
use crate::instance::target_document::{DocumentNotes, compile_document, compiler_tools};
use crate::lifecycle::{self, DecidedFor, Protection, Requester};
use crate::{CompiledPlan, Env, FlowError, Rejection, RequestError};

/// A request to create or update a target.
#[derive(Clone, Debug)]
pub struct TargetRequest {
    pub target: ApplyTarget,
    /// The name of the request. The UID of a new instance follows from it and the caller, so a repetition begins no second
    /// instance.
    pub key: Option<String>,
    /// The verified caller, who owns a new instance, and the targets that it may change.
    pub access: TargetAccess,
    /// The source of the instance, which the document comes from. Without it, no instance of a source is changed.
    pub source: Option<String>,
}

struct SelectedInstance {
    change: LifecycleType,
    uid: String,
    generation: u64,
    /// The generation and the digest of the plan of an instance that has begun or waits for its name.
    known: Option<(u64, String)>,
}

impl TargetRequest {
    pub fn target_key(&self) -> TargetKey<'_> {
        TargetKey::new(&self.target.kind, &self.target.name)
    }

    fn requester(&self) -> Requester<'_> {
        let requester = Requester::api(&self.access).keeping(self.target.allow_replace == Some(false));
        self.source.as_deref().map_or(requester, |source| requester.of_source(source))
    }

    /// Returns the UID that a new instance gets by the key.
    pub fn derived_uid(&self) -> Option<String> {
        let of_key = short_digest(&[&self.target.kind, &self.target.name, self.key.as_deref()?], 16);
        Some(own_prefix(&self.access) + &of_key)
    }

    fn data(&self, instance: &SelectedInstance) -> LifecycleData {
        let (kind, name, uid) = (self.target.kind.clone(), self.target.name.clone(), instance.uid.clone());
        let (document, routing_key) = (Some(self.target.document.clone()), self.target.routing_key.clone());
        LifecycleData { kind, name, uid, generation: instance.generation, document, routing_key, event: None }
    }

    /// Returns the instance that the request concerns.
    ///
    /// # Errors
    /// Returns a rejection if a field cannot be a part of a key, the caller may not change the instance, or the instance has
    /// another generation than the one that the caller has seen.
    fn select(&self, env: &Env, head: Option<&TargetHead>) -> Result<SelectedInstance, RequestError> {
        // A program does not change what a source has created.
        let is_meant = |uid: &String| self.target.uid.as_ref().is_none_or(|named| named == uid);
        let is_foreign = |head: &TargetHead| {
            let is_other = |source: &Option<String>| source.is_some() && *source != self.source;
            let waiting = head.waiting.as_ref().filter(|waiting| is_other(&waiting.source) && is_meant(&waiting.uid));
            let is_present = head.phase.is_alive() && is_other(&head.source) && is_meant(&head.uid);
            is_present || (waiting.is_some() && (self.target.uid.is_some() || !head.phase.is_alive()))
        };
        if let Some(head) = head.filter(|head| is_foreign(head)) {
            let source = head.source.as_deref().filter(|_| head.phase.is_alive() && !self.access.is_limited());
            return Err(foreign(self.target_key(), source).into());
        }
        let waiting = head.filter(|head| self.target.uid.is_some() || second(head).is_none());
        let waiting = waiting.and_then(|head| head.waiting.as_ref()).filter(|waiting| waiting.source == self.source);
        let waiting = waiting.map(|waiting| (&waiting.uid, waiting.generation, &waiting.plan));
        let alive =
            head.filter(|head| head.phase.is_alive()).map(|head| (&head.uid, head.newest_generation(), &head.plan));
        let (derived, named) = (self.derived_uid(), self.target.uid.as_ref());
        let known = || waiting.into_iter().chain(alive);
        let meant = known().find(|(uid, ..)| named.or(derived.as_ref()) == Some(*uid));
        let instance = match meant.or_else(|| known().next().filter(|_| named.is_none())) {
            Some((uid, generation, plan)) => {
                // The request that began the instance is repeated.
                let is_repeated = self.target.uid.is_none() && derived.as_ref() == Some(uid);
                let known = Some((generation, plan.clone()));
                let (change, generation) = match is_repeated {
                    true => (LifecycleType::Created, 1),
                    false => (LifecycleType::Updated, generation.saturating_add(1)),
                };
                SelectedInstance { change, uid: uid.clone(), generation, known }
            }
            None => {
                let random = || format!("{API_UID}{:016x}{:016x}", env.random.next(), env.random.next());
                // A caller that has seen a generation does not begin an instance.
                let begun = self.target.uid.as_deref().filter(|_| self.target.generation.unwrap_or(0) == 0);
                let named = begun.map_or(Ok(()), fields::unreserved_uid);
                named.map_err(|error| RequestError::refused(ErrorCode::InvalidField, error.to_string()))?;
                // Another request may begin the named instance first. This one then takes the next generation.
                let change = if self.target.uid.is_some() { LifecycleType::Updated } else { LifecycleType::Created };
                let uid = self.target.uid.clone().or(derived).unwrap_or_else(random);
                SelectedInstance { change, uid, generation: 1, known: None }
            }
        };
        self.data(&instance)
            .validate()
            .map_err(|error| RequestError::refused(ErrorCode::InvalidField, error.to_string()))?;
        if let Some(head) = head {
            self.requester().check(head, &instance.uid)?;
        }
        let newest = instance.known.as_ref().map_or(0, |(generation, _)| *generation);
        let is_seen = |seen: u64| seen == newest || (seen == 0 && instance.change == LifecycleType::Created);
        if let Some(seen) = self.target.generation.filter(|seen| !is_seen(*seen)) {
            let text = format!("{} does not have generation {seen}; read it again", self.target_key());
            return Err(RequestError::refused(ErrorCode::Outdated, text));
        }
        Ok(instance)
    }

    /// Refuses a request that would begin an instance which has ended, and one whose key belongs to such an instance while the
    /// name has another: it may have been in transit while its instance was deleted.
    async fn check_end(&self, env: &Env, head: Option<&TargetHead>, of: &SelectedInstance) -> Result<(), RequestError> {
        let uid = match &of.known {
            None => Some(of.uid.clone()),
            Some(_) => self.derived_uid().filter(|uid| self.target.uid.is_none() && *uid != of.uid),
        };
        let Some(uid) = uid else { return Ok(()) };
        let is_present = head.is_some_and(|head| head.uid == uid);
        if !is_present && env.store.read_tombstone(&self.target_key().instance(&uid).key()).await?.is_none() {
            return Ok(());
        }
        Err(stale(&LifecycleData { uid, ..self.data(of) }).into())
    }
}

/// Returns the beginning of the UIDs that follow from keys of a caller.
fn own_prefix(access: &TargetAccess) -> String {
    format!("{API_UID}{}", short_digest(&[&access.caller], 16))
}

/// Returns the instance that waits for the name of a living one, although its request named none. Two requests were then
/// applied at the same time, and this instance must not begin when the other one is gone.
fn second(head: &TargetHead) -> Option<&str> {
    let waiting = head.waiting.as_ref().map(|waiting| waiting.uid.as_str());
    waiting.filter(|uid| head.phase.is_alive() && uid.starts_with(API_UID))
}

/// Applies a request. Returns the response with the follow-ups. The state is durable when this returns.
///
/// # Errors
/// Returns a rejection as a lifecycle webhook does, or an error if the state could not be written.
pub async fn apply(env: &Env, request: &TargetRequest) -> Result<(LifecycleResponse, Vec<FollowUp>), RequestError> {
    let mut follow_ups = Vec::new();
    let is_free = request.target.uid.is_none();
    let requester = request.requester();
    for _ in 0..crate::ATTEMPTS {
        let head = env.store.read_target(request.target_key()).await?;
        let is_own = |head: &&TargetHead| second(head).is_none_or(|uid| covers_instance(&request.access, head, uid));
        if let Some(second) = head.as_ref().filter(|_| is_free).filter(is_own).and_then(second) {
            let instance = request.target_key().instance(second);
            // The instance may have begun since, and is then the only one.
            let sender = (requester.sender, DecidedFor::seen(head.as_ref()), Protection::Respected);
            let by = requester.sender.owner();
            let deleted = lifecycle::begin_delete(env, instance, TargetStopCause::Deleted, sender, by);
            let Some(follow_up) = Box::pin(deleted).await? else { continue };
            follow_ups.push(follow_up);
        }
        let instance = request.select(env, head.as_ref())?;
        let data = request.data(&instance);
        let mut decided = DecidedFor::Any;
        if instance.known.is_some() && request.key.is_some() {
            // The writer of a tombstone changes the target after it.
            decided = DecidedFor::seen(head.as_ref());
            request.check_end(env, head.as_ref(), &instance).await?;
        }
        let begun = lifecycle::begin(env, &env.store, (instance.change, ""), &data, requester, decided);
        let begun = Box::pin(begun).await;
        let (response, follow_up) = match begun {
            Ok(begun) => begun,
            // Another request has begun or ended an instance since the target was read.
            Err(RequestError::Rejected(Rejection::Refused(ErrorCode::NameTaken, _))) if is_free => continue,
            // Another request had the same generation. The caller has named none, so this one comes after it.
            Err(RequestError::Rejected(Rejection::Refused(ErrorCode::Outdated, _))) => continue,
            Err(RequestError::Rejected(Rejection::Refused(ErrorCode::Stale, _)))
                if is_free && instance.change == LifecycleType::Updated =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        follow_ups.push(follow_up);
        if is_free && response.result == LifecycleResult::Waiting && instance.known.is_none() {
            let head = env.store.read_target(request.target_key()).await?;
            // Another request may have deleted the instance already, because it is the second one.
            let waits = |head: &TargetHead| head.has_waiting(&instance.uid) && second(head).is_none();
            let is_kept = |head: TargetHead| head.uid == instance.uid || waits(&head);
            if !head.is_some_and(is_kept) {
                continue;
            }
        }
        let known = instance.known.filter(|_| instance.change == LifecycleType::Created);
        let generation = known.map_or(response.generation, |(generation, _)| generation);
        return Ok((LifecycleResponse { generation, ..response }, follow_ups));
    }
    Err(FlowError::Contended(request.target_key().to_string()).into())
}

/// Returns the effect that a request would have, and the plan of its document. The receipt has no plan. Writes nothing.
///
/// # Errors
/// Returns the same rejections as [`apply`], without those by the policy of a cluster.
pub async fn preview(env: &Env, request: &TargetRequest) -> Result<(TargetReceipt, Plan, DocumentNotes), RequestError> {
    let requester = request.requester();
    let head = env.store.read_target(request.target_key()).await?;
    let instance = request.select(env, head.as_ref())?;
    let meant = request.target_key().instance(&instance.uid);
    let key = meant.key();
    let current: Option<Arc<CompiledPlan>> = match &instance.known {
        Some((_, digest)) => Some(env.plan(&key, digest).await?),
        None => None,
    };
    let versions = current.as_ref().map_or(PinnedVersions::Latest, |plan| PinnedVersions::OfPlan(&plan.plan));
    let (plan, notes) =
        compile_document(&env.store, compiler_tools(env), meant, &request.target.document, versions).await?;
    let owner = match head.as_ref().filter(|_| instance.known.is_some()) {
        Some(TargetHead { waiting: Some(waiting), .. }) if waiting.uid == instance.uid => waiting.owner.clone(),
        Some(head) => head.owner.clone(),
        None => requester.sender.owner(),
    };
    requester.check_labels(owner.as_deref(), &plan.target.labels)?;
    request.check_end(env, head.as_ref(), &instance).await?;
    let living = head.as_ref().filter(|head| instance.known.is_some() && head.uid == instance.uid);
    let active = |head: &TargetHead| TargetHead { active: Some(env.now()), ..head.clone() };
    let expires = living.and_then(|head| due::end_of(&active(head), &plan, None));
    let (mut changes, mut resources, mut lost) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    let (generation, result) = match (&instance.known, &current, &head) {
        (Some((generation, _)), Some(current), Some(head)) if instance.change == LifecycleType::Updated => {
            let is_waiting = head.uid != instance.uid;
            if !is_waiting {
                next_run::check_replaced(env, head, &plan).await?;
            }
            match next_run::merge(env, head, is_waiting, (current, &plan)).await? {
                None => (*generation, LifecycleResult::Unchanged),
                Some(update) => {
                    changes = changes::between(&current.plan, &plan);
                    let result = match update.number {
                        _ if is_waiting => LifecycleResult::Waiting,
                        Some(_) => LifecycleResult::Updating,
                        None => LifecycleResult::Updated,
                    };
                    if !is_waiting {
                        let request = (requester.keeps_resources, env.now(), env.now());
                        check_losses(head, &current.plan, &update, request)?;
                        policy_check::check_connections(env, &update).await?;
                        lost = update.lost;
                    }
                    resources = update.resources;
                    (instance.generation, result)
                }
            }
        }
        (Some((generation, _)), ..) => (*generation, LifecycleResult::Unchanged),
        _ => {
            let waits = head.is_some_and(|head| head.phase != TargetPhase::Gone);
            (1, if waits { LifecycleResult::Waiting } else { LifecycleResult::Starting })
        }
    };
    let is_random = instance.known.is_none() && request.target.uid.is_none() && request.key.is_none();
    let uid = (!is_random).then_some(instance.uid);
    let (target, url) = (request.target_key().to_string(), env.target_url(request.target_key()));
    let expires = expires.map(rfc3339);
    let owner = instance.known.and(owner);
    let receipt =
        TargetReceipt { target, uid, generation, result, url, changes, resources, lost, owner, expires, plan: None };
    Ok((receipt, plan, notes))
}

/// Begins to delete an instance, or without a UID every instance of a name, of those that `access` covers. With a generation,
/// the instance is deleted only while it has this one. Returns the response with the follow-ups, or `None` if no such instance
/// is known.
///
/// # Errors
/// Returns the rejections of [`block_creation`] and [`covered_instances`], or an error if the state could not be written.
pub async fn delete(
    env: &Env,
    target: TargetKey<'_>,
    (uid, seen, protection): (Option<&str>, Option<u64>, Protection),
    access: &TargetAccess,
) -> Result<Option<(LifecycleResponse, Vec<FollowUp>)>, RequestError> {
    if let Some(uid) = uid {
        block_creation(env, target.instance(uid), access).await?;
    }
    for _ in 0..crate::ATTEMPTS {
        let covered = covered_instances(env, target, (uid, seen, protection), access).await?;
        let Some((head, uids)) = covered else { return Ok(None) };
        let decided = if seen.is_some() { DecidedFor::seen(Some(&head)) } else { DecidedFor::Any };
        let (mut follow_ups, mut has_changed) = (Vec::new(), false);
        for uid in &uids {
            let (instance, cause) = (target.instance(uid), TargetStopCause::Deleted);
            let sender = (RequestSender::Operator, decided, protection);
            let by = Some(access.caller.clone());
            let begun = Box::pin(lifecycle::begin_delete(env, instance, cause, sender, by)).await?;
            has_changed |= begun.is_none();
            follow_ups.extend(begun);
        }
        if seen.is_some() && has_changed {
            continue;
        }
        let uid = uids.last().cloned().unwrap_or_default();
        let generation = match &head.waiting {
            Some(waiting) if waiting.uid == uid => waiting.generation,
            _ => head.generation,
        };
        let (target, result) = (target.to_string(), LifecycleResult::Stopping);
        return Ok(Some((LifecycleResponse { target, uid, generation, result }, follow_ups)));
    }
    Err(FlowError::Contended(target.to_string()).into())
}

/// Leaves a tombstone for an instance that does not exist, so that a creation which arrives later is refused. A limited caller
/// leaves one only for a UID that follows from a key of its own. Does nothing for an instance that exists or has ended.
///
/// # Errors
/// Returns the refusal of the deletion after the tombstone is written, or an error if it could not be written.
pub async fn block_creation(env: &Env, instance: InstanceRef<'_>, access: &TargetAccess) -> Result<(), RequestError> {
    let InstanceRef { target, uid } = instance;
    let is_foreign = access.is_limited() && !uid.starts_with(&own_prefix(access));
    if is_foreign || uid.starts_with(EVENT_UID) || fields::uid(uid).is_err() {
        return Ok(());
    }
    for _ in 0..crate::ATTEMPTS {
        let head = env.store.read_target(target).await?;
        let is_present = head.as_ref().is_some_and(|head| head.uid == uid || head.has_waiting(uid));
        if is_present || env.store.read_tombstone(&instance.key()).await?.is_some() {
            return Ok(());
        }
        let sender = (RequestSender::Operator, DecidedFor::seen(head.as_ref()), Protection::Respected);
        let by = Some(access.caller.clone());
        let deletion = lifecycle::begin_delete(env, instance, TargetStopCause::Deleted, sender, by);
        if Box::pin(deletion).await?.is_some() {
            let (code, state) = match head {
                Some(head) if head.phase.is_alive() && covers_present(access, &head) => {
                    (ErrorCode::Outdated, "has another instance now: expected")
                }
                _ => (ErrorCode::NotFound, "does not exist with the uid"),
            };
            let text = format!("{target} {state} {uid:?}; a creation of it that arrives later is refused");
            return Err(RequestError::refused(code, text));
        }
    }
    Err(FlowError::Contended(target.to_string()).into())
}

/// Returns a target and the UIDs of the instances that [`delete`] deletes, or `None` if there are none.
///
/// # Errors
/// Returns a rejection for an invalid UID, for a generation without a UID, if the name does not have the instance with this
/// generation, and for one with a protected resource. Then no instance of the name is deleted.
pub async fn covered_instances(
    env: &Env,
    target: TargetKey<'_>,
    (uid, seen, protection): (Option<&str>, Option<u64>, Protection),
    access: &TargetAccess,
) -> Result<Option<(TargetHead, Vec<String>)>, RequestError> {
    if seen.is_some() && uid.is_none() {
        return Err(RequestError::refused(ErrorCode::MissingField, "`generation` needs `uid`"));
    }
    let Some(head) = env.store.read_target(target).await? else { return Ok(None) };
    let mut uids: Vec<String> = match uid {
        Some(uid) => {
            fields::uid(uid).map_err(|error| RequestError::refused(ErrorCode::InvalidField, error.to_string()))?;
            // A limited caller does not learn that an instance of another owner has the name.
            if !covers_instance(access, &head, uid) {
                return Ok(None);
            }
            if let Some(seen) = seen {
                check_generation(&head, uid, seen)?;
            }
            lifecycle::check_known_uid(env, target.instance(uid), Some(&head)).await?;
            vec![uid.to_owned()]
        }
        // Without the first deletion, the waiting instance would start when the present one is gone.
        None => head.waiting.iter().map(|waiting| waiting.uid.clone()).chain([head.uid.clone()]).collect(),
    };
    uids.retain(|uid| covers_instance(access, &head, uid));
    if protection == Protection::Respected && uids.contains(&head.uid) {
        lifecycle::check_unprotected(env, &head).await?;
    }
    Ok(Some((head, uids)).filter(|(_, uids)| !uids.is_empty()))
}

/// Checks that the instance `uid` has the name of a target or waits for it, and that its newest document has a generation.
fn check_generation(head: &TargetHead, uid: &str, expected: u64) -> Result<(), RequestError> {
    let waiting = head.waiting.as_ref().filter(|waiting| waiting.uid == uid).map(|waiting| waiting.generation);
    match waiting.or_else(|| (head.uid == uid).then(|| head.newest_generation())) {
        Some(got) if got == expected => Ok(()),
        None => Err(lifecycle::other_instance(head.target_key(), uid, Some(&head.uid)).into()),
        Some(got) => {
            let key = head.target_key();
            let text = format!("{key} has another generation now: expected {expected}, got {got}; read it again");
            Err(RequestError::refused(ErrorCode::Outdated, text))
        }
    }
}
