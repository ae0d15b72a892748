//! Applies lifecycle webhooks to targets. This is the function `receive`.
//!
//! 1. Decide with the engine what the webhook means for the present state of the target.
//! 2. Compile the document of a creation with the published plugins.
//! 3. Move the target and start its first run in one transaction (rule OneTransaction).

pub(crate) mod document_update;
pub mod events;

use ebb_engine::target::{
    self, CreateDecision, DeleteDecision, TeardownStage, create as decide_create, delete as decide_delete,
};
use ebb_engine::{Hook, HookSet, RequestSender, TargetPhase};
use ebb_protocol::lifecycle::{self as fields, LifecycleData, LifecycleResponse, LifecycleResult, TargetStopCause};
use ebb_protocol::words::commands;
use ebb_protocol::{ErrorCode, HistoryChange, InstanceRef, LifecycleType, TargetKey};
use ebb_store::{Store, TargetHead, TargetOutbox, TargetTransition};
use tracing::Instrument as _;

use crate::advance::{FollowUp, cancel, next_run, transition};
pub use crate::instance::rejection::other_instance;
use crate::instance::rejection::{foreign, stale};
pub use crate::instance::requester::{Requester, covers_present};
use crate::instance::target_document::{self, CompiledDocument};
use crate::instance::{change_watch, due, history, living, notify, outbox, retention};
use crate::{Env, FlowError, FlowResult, RequestError};

/// The target for which a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedFor {
    /// Any target: the request is decided for the present one.
    Any,
    /// The target of this version, or `None` for no target. The request writes nothing to another one.
    Version(Option<u64>),
}

impl DecidedFor {
    /// Returns the decision for a target that was read.
    pub(crate) fn seen(target: Option<&TargetHead>) -> Self {
        Self::Version(target.map(|target| target.version))
    }

    fn is_outdated(self, present: Option<&TargetHead>) -> bool {
        self != Self::Any && self != Self::seen(present)
    }
}

/// Checks the UID of a lifecycle webhook. Only Ebb gives an instance a UID with a reserved prefix, so a sender names such an
/// instance only when it exists.
pub async fn check_uid(env: &Env, event_type: LifecycleType, event: &LifecycleData) -> Result<(), RequestError> {
    let Err(error) = fields::unreserved_uid(&event.uid) else { return Ok(()) };
    match event_type {
        LifecycleType::Event => Ok(()),
        LifecycleType::Created => Err(RequestError::refused(ErrorCode::InvalidField, error.to_string())),
        LifecycleType::Updated | LifecycleType::Deleted => {
            let head = env.store.read_target(event.target_key()).await?;
            check_known_uid(env, event.instance(), head.as_ref()).await
        }
    }
}

/// Checks that a UID with a reserved prefix is that of an instance which exists or has ended.
pub(crate) async fn check_known_uid(
    env: &Env,
    instance: InstanceRef<'_>,
    head: Option<&TargetHead>,
) -> Result<(), RequestError> {
    let Err(error) = fields::unreserved_uid(instance.uid) else { return Ok(()) };
    let is_present = head.is_some_and(|head| head.uid == instance.uid || head.has_waiting(instance.uid));
    if is_present || env.store.read_tombstone(&instance.key()).await?.is_some() {
        return Ok(());
    }
    Err(RequestError::refused(ErrorCode::InvalidField, error.to_string()))
}

/// Applies a verified lifecycle webhook with the CloudEvent id `id`, or a request of another sender in its form. The state
/// is durable when this returns. A repetition returns the same response and changes nothing. A creation or update that was
/// decided for another target is rejected as outdated, and one that the access of the requester does not cover as
/// forbidden or as a conflict.
pub async fn begin(
    env: &Env,
    plugins: &Store,
    (event_type, id): (LifecycleType, &str),
    event: &LifecycleData,
    requester: Requester<'_>,
    decided: DecidedFor,
) -> Result<(LifecycleResponse, FollowUp), RequestError> {
    let span = tracing::info_span!("lifecycle webhook", kind = event.kind, name = event.name);
    let take = async {
        match event_type {
            LifecycleType::Created | LifecycleType::Updated => {
                create(env, plugins, event_type, event, (requester, decided)).await
            }
            LifecycleType::Deleted => {
                let sender = (requester.sender, DecidedFor::Any, Protection::Respected);
                let by = requester.sender.owner();
                match begin_delete(env, event.instance(), TargetStopCause::Deleted, sender, by).await? {
                    Some(follow_up) => Ok((response(event, LifecycleResult::Stopping), follow_up)),
                    None => Err(foreign(event.target_key(), None).into()),
                }
            }
            LifecycleType::Event => {
                let (result, generation, follow_up) = events::receive(env, event, id).await?;
                Ok((LifecycleResponse { generation, ..response(event, result) }, follow_up))
            }
        }
    };
    Box::pin(take.instrument(span)).await
}

fn response(event: &LifecycleData, result: LifecycleResult) -> LifecycleResponse {
    let (target, uid) = (event.target_key().to_string(), event.uid.clone());
    LifecycleResponse { target, uid, generation: event.generation, result }
}

async fn create(
    env: &Env,
    plugins: &Store,
    event_type: LifecycleType,
    event: &LifecycleData,
    (requester, decided): (Requester<'_>, DecidedFor),
) -> Result<(LifecycleResponse, FollowUp), RequestError> {
    let sender = requester.sender;
    let instance = event.instance().key();
    let mut compiled: Option<CompiledDocument> = None;
    for _ in 0..crate::ATTEMPTS {
        // The target is read before the tombstone. The writer of a tombstone changes the target after it, so one of the
        // two detects the other.
        let seen = env.store.read_target(event.target_key()).await?;
        if decided.is_outdated(seen.as_ref()) {
            let text = format!("{} has changed since it was read; read it again", event.target_key());
            return Err(RequestError::refused(ErrorCode::Outdated, text));
        }
        if let Some(seen) = &seen {
            requester.check(seen, &event.uid)?;
        }
        let known = seen.as_ref().map(transition::engine_target);
        let decide = |hooks: &HookSet| decide_create(known.as_ref(), (&event.uid, sender), event.generation, hooks);
        // A webhook without effect gets its response before the document is compiled.
        match (decide(&HookSet::default()), &seen) {
            (decision @ (CreateDecision::Changed | CreateDecision::Repeated), Some(target))
                if decision == CreateDecision::Changed || event_type == LifecycleType::Updated =>
            {
                living::check(env, requester, seen.as_ref(), event.target_key()).await?;
                match Box::pin(document_update::update(env, plugins, event, target, requester)).await? {
                    Some((result, generation, follow_up)) => {
                        return Ok((LifecycleResponse { generation, ..response(event, result) }, follow_up));
                    }
                    None => continue,
                }
            }
            (CreateDecision::Repeated, _) => {
                let waits = seen.as_ref().is_some_and(|target| target.uid != event.uid);
                let result = if waits { LifecycleResult::Waiting } else { LifecycleResult::Starting };
                return Ok((response(event, result), FollowUp::default()));
            }
            (CreateDecision::Stale, _) => return Err(stale(event).into()),
            (CreateDecision::Foreign, _) => return Err(foreign(event.target_key(), None).into()),
            (CreateDecision::QueueFull, _) => {
                let text = format!("another {} already waits for the name {:?}", event.kind, event.name);
                return Err(RequestError::refused(ErrorCode::NameTaken, text));
            }
            (CreateDecision::Begin(_) | CreateDecision::Wait | CreateDecision::Changed, _) => {}
        }
        let plan = async {
            match compiled.take() {
                Some(plan) => Ok(plan),
                None => target_document::compile(env, plugins, event, sender).await,
            }
        };
        // A condition on the tombstone in the transaction would cost two write units, ten times the price of this read. The
        // plugins are read at the same time.
        let (tombstone, plan) = futures::join!(env.store.read_tombstone(&instance), Box::pin(plan));
        if tombstone?.is_some() {
            return Err(stale(event).into());
        }
        let plan = compiled.insert(plan?);
        requester.check_labels(sender.owner().as_deref(), &plan.loaded.plan.target.labels)?;
        living::check(env, requester, seen.as_ref(), event.target_key()).await?;
        let decision = decide(&plan.loaded.hooks());
        if let Some(begun) = begin_instance(env, event, plan, (decision, sender), seen).await? {
            return Ok(begun);
        }
    }
    Err(FlowError::Contended(event.target_key().to_string()).into())
}

/// Begins an instance, or lets it wait for its name. Returns `None` if the target has changed since it was `seen`.
async fn begin_instance(
    env: &Env,
    event: &LifecycleData,
    plan: &CompiledDocument,
    (decision, sender): (CreateDecision, RequestSender<'_>),
    seen: Option<TargetHead>,
) -> Result<Option<(LifecycleResponse, FollowUp)>, RequestError> {
    let instance = event.instance().key();
    let undelivered = match &seen {
        Some(target) => notify::pending_notification(env, target, None).await?.is_some(),
        None => false,
    };
    let creation = plan.pending(event, (sender.source(), sender.owner()), env.now());
    match (decision, seen) {
        (CreateDecision::Begin(step), seen) if !undelivered || seen.is_none() => {
            let target = transition::begun(env, event.target_key(), &creation, seen.as_ref());
            let document = (None, plan.text.as_deref());
            let mut transition = Box::pin(transition::transition(env, &target, step, &plan.loaded, document)).await?;
            transition.expected_version = seen.as_ref().map(|target| target.version);
            transition.tombstone = seen.map(|former| retention::tombstone(env, former.instance_key(), former.since));
            if env.store.begin_instance(&transition, &instance, plan.json.as_bytes(), env.now()).await? {
                let continuation = Box::pin(transition::after_transition(env, transition, &plan.loaded)).await?;
                return Ok(Some((response(event, LifecycleResult::Starting), FollowUp::drive(continuation))));
            }
        }
        (CreateDecision::Wait | CreateDecision::Begin(_), Some(target))
            if target.outbox.platform_notices() >= TargetOutbox::MAX_PLATFORM_NOTICES =>
        {
            let text = format!(
                "the platform has not accepted the `gone` of {} instances of {} that were deleted while they waited; \
                 repair the URL of the platform",
                TargetOutbox::MAX_PLATFORM_NOTICES,
                event.target_key()
            );
            return Err(RequestError::refused(ErrorCode::Busy, text));
        }
        // The platform has not accepted the `gone` of the previous instance, so this one waits.
        (CreateDecision::Wait | CreateDecision::Begin(_), Some(target)) => {
            let entry = plan.accepted(env, &target, event, sender.owner());
            let transition = target.update(|after| {
                after.waiting = Some(creation);
                after.due = due::next_due(env, after);
            });
            let transition = TargetTransition { entry: Some(entry), ..transition };
            if env.store.begin_instance(&transition, &instance, plan.json.as_bytes(), env.now()).await? {
                return Ok(Some((response(event, LifecycleResult::Waiting), FollowUp::default())));
            }
        }
        _ => {}
    }
    Ok(None)
}

/// Ends an instance of any sender for `cause`. The call can be repeated.
pub async fn delete(env: &Env, instance: InstanceRef<'_>, cause: TargetStopCause) -> FlowResult<()> {
    let sender = (RequestSender::Operator, DecidedFor::Any, Protection::Lifted);
    match begin_delete(env, instance, cause, sender, None).await {
        Ok(Some(follow_up)) => follow_up.finish(env).await,
        Ok(None) | Err(RequestError::Rejected(_)) => Ok(()),
        Err(RequestError::Failed(error)) => Err(error),
    }
}

/// The effect of resources with `protect: true` on a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    Respected,
    Lifted,
}

/// Checks that neither the present document of a target nor the one that waits protects a resource. A target that was never
/// ready has none.
///
/// # Errors
/// Returns a refusal with the resource and the ways to lift its protection.
pub async fn check_unprotected(env: &Env, target: &TargetHead) -> Result<(), RequestError> {
    let is_setup = target.hook == Some(Hook::PreStart) && target.phase != TargetPhase::Ready;
    if is_setup || !target.phase.is_alive() {
        return Ok(());
    }
    let mut protected = env.plan_of(target).await?.plan.protected().next().cloned();
    if let Some(pending) = target.pending_update.as_ref().filter(|_| protected.is_none()) {
        protected = env.plan(&target.update_key(pending), &pending.plan).await?.plan.protected().next().cloned();
    }
    let Some(name) = protected else { return Ok(()) };
    let text = format!(
        "{}: the resource `{name}` has `protect: true`, so the target is not deleted; `protect: false` for the resource in its \
         document lifts that, and a person with the scope `operate` deletes it: {}",
        target.target_key(),
        commands::delete_protected(&target.kind, &target.name)
    );
    Err(RequestError::refused(ErrorCode::Protected, text))
}

/// Begins to end an instance for `cause`. No unit of its setup starts after this returns; the follow-up stops running
/// attempts. `by` is the verified name of the sender. Returns `None` if the instance belongs to another sender, or the
/// deletion was decided for another target.
///
/// # Errors
/// Returns a rejection for a target with a protected resource, unless its protection is lifted.
pub(crate) async fn begin_delete(
    env: &Env,
    instance @ InstanceRef { target: key, uid }: InstanceRef<'_>,
    cause: TargetStopCause,
    (sender, decided, protection): (RequestSender<'_>, DecidedFor, Protection),
    by: Option<String>,
) -> Result<Option<FollowUp>, RequestError> {
    let by = if cause == TargetStopCause::Expired { Some(history::TTL.to_owned()) } else { by };
    let tombstone = || retention::tombstone(env, instance.key(), env.now());
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(key).await?;
        if decided.is_outdated(seen.as_ref()) {
            return Ok(None);
        }
        // An update may have extended the TTL since the caller read the target.
        let is_extended = |target: &TargetHead| target.uid == uid && target.expires.is_none_or(|at| at > env.now());
        if cause == TargetStopCause::Expired && seen.as_ref().is_some_and(is_extended) {
            return Ok(Some(FollowUp::default()));
        }
        let known = seen.as_ref().map(transition::engine_target);
        let is_active = |target: &&TargetHead| target.uid == uid && target.phase != TargetPhase::Gone;
        let loaded = match seen.as_ref().filter(is_active) {
            Some(target) => Some(env.plan_of(target).await?),
            None => None,
        };
        let hooks = loaded.as_ref().map(|loaded| loaded.hooks()).unwrap_or_default();
        let decision = match (decide_delete(known.as_ref(), (uid, sender), &hooks), &seen) {
            // The event has ended, so nothing has to be cancelled. Its units may be those of an earlier plan.
            (DeleteDecision::Cancel(_), Some(target)) if next_run::has_ended_event(env, target).await? => {
                DeleteDecision::Begin(target::teardown(TeardownStage::WasReady, &hooks))
            }
            (decision, _) => decision,
        };
        let is_cancel = matches!(decision, DeleteDecision::Cancel(_));
        match (decision, seen, loaded) {
            (DeleteDecision::PutTombstone, seen, _) => {
                env.store.put_tombstone(&tombstone()).await?;
                // A concurrent creation may have read the table before the tombstone. The new version of the target
                // makes its transaction fail.
                if bump_version(env, instance, seen, by.clone()).await? {
                    return Ok(Some(FollowUp::default()));
                }
            }
            (DeleteDecision::Foreign, ..) => return Ok(None),
            (DeleteDecision::Repeated, Some(target), _) => return Ok(Some(stop_setup_run(env, &target).await?)),
            (DeleteDecision::Unqueue, Some(target), _) => {
                if let Some(waiting) = &target.waiting {
                    let waiting = (waiting.uid.as_str(), waiting.first_generation(), waiting.plan.as_str());
                    retention::schedule(env, &target, waiting, None).await?;
                }
                let tombstone = Some(tombstone());
                let generation = target.waiting.as_ref().map_or(0, |waiting| waiting.generation);
                let ended = TargetHead { uid: uid.to_owned(), generation, changed_by: by.clone(), ..target.clone() };
                let at = target.change_time(env.now());
                let entry = Some(history::entry(env, &ended, HistoryChange::Deleted, at));
                let transition = target.update(|after| {
                    outbox::append_gone_of_waiting(env, after);
                    after.due = due::next_due(env, after);
                });
                let transition = TargetTransition { tombstone, entry, ..transition };
                if env.store.move_target(&transition).await? {
                    outbox::announce_any(env, &transition.target).await;
                    return Ok(Some(FollowUp::default()));
                }
            }
            (DeleteDecision::Cancel(step) | DeleteDecision::Begin(step), Some(target), Some(loaded)) => {
                if protection == Protection::Respected
                    && let Err(refused) = check_unprotected(env, &target).await
                {
                    let is_automatic = matches!(sender, RequestSender::Platform | RequestSender::Source(_));
                    let is_refused = matches!(refused, RequestError::Rejected(_));
                    if is_automatic && is_refused && target.refused_deletion.is_none() {
                        let noted = target.update(|after| after.refused_deletion = Some(env.now()));
                        if !env.store.move_target(&noted).await? {
                            continue;
                        }
                    }
                    return Err(refused);
                }
                retention::schedule_removal(env, &target, None).await?;
                let asked_by = target.source.as_deref().map_or(RequestSender::Platform, RequestSender::Source).owner();
                let (stop_cause, changed_by) = match (cause, target.refused_deletion) {
                    (TargetStopCause::Expired, Some(_)) => (TargetStopCause::Deleted, asked_by),
                    _ => (cause, by.clone()),
                };
                let target = TargetHead { stop_cause, changed_by, ..target };
                let transition = Box::pin(transition::transition(env, &target, step, &loaded, (None, None))).await?;
                if env.store.move_target(&transition).await? {
                    if is_cancel {
                        outbox::announce_any(env, &transition.target).await;
                        Box::pin(change_watch::note(env, key)).await;
                        return Ok(Some(stop_setup_run(env, &transition.target).await?));
                    }
                    let continuation = Box::pin(transition::after_transition(env, transition, &loaded)).await?;
                    return Ok(Some(FollowUp::drive(continuation)));
                }
            }
            (decision, ..) => {
                return Err(FlowError::Broken(format!("{key}: {decision:?} does not match the target")).into());
            }
        }
    }
    Err(FlowError::Contended(key.to_string()).into())
}

/// Gives the target of a name a new version. A target that does not exist is written as gone and as that of `owner`, because
/// it was deleted before it was created. Returns false if the target has changed.
async fn bump_version(
    env: &Env,
    InstanceRef { target: TargetKey { kind, name }, uid }: InstanceRef<'_>,
    seen: Option<TargetHead>,
    owner: Option<String>,
) -> FlowResult<bool> {
    let expected_version = seen.as_ref().map(|target| target.version);
    let (phase, now) = (TargetPhase::Gone, env.now());
    let gone = || TargetHead { phase, owner, removed: Some(now), ..TargetHead::new(kind, name, uid, now) };
    let transition = TargetTransition { expected_version, ..seen.unwrap_or_else(gone).update(|_| {}) };
    let is_written = env.store.move_target(&transition).await?;
    if is_written && expected_version.is_none() {
        Box::pin(change_watch::note(env, transition.target.target_key())).await;
    }
    Ok(is_written)
}

/// Cancels the run of a stopping target that its teardown waits for: of its setup, or of an event. A crash before this
/// may have left it running.
async fn stop_setup_run(env: &Env, target: &TargetHead) -> FlowResult<FollowUp> {
    let setup = target.hook.filter(|hook| target.phase == TargetPhase::Stopping && !hook.is_teardown());
    let Some(run) = setup.map(|hook| target.run(hook)) else { return Ok(FollowUp::default()) };
    cancel::stop_dispatch(env, &run).await?;
    Ok(FollowUp { cancelled_run: Some(run), ..FollowUp::default() })
}
