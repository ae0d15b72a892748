//! Changes the document of a living target, or of an instance that waits for its name.
//!
//! 1. Compile the document with the versions of plugins that the target has, or gets by the update that waits, unless it
//!    names others.
//! 2. Merge the plan into the present one. The difference decides which units run. An update that would undo a resource
//!    before its cluster refuses the next one is rejected.
//! 3. Move the target, store the merged plan and start the run of the update in one transaction
//!    (rule UpdateInOneTransaction).
//!
//! A target is updated between its runs. During a run, the newest update waits in the target, with its plan stored apart.
//! The end of the run begins it, or else `sweep`. The merged plan has all units of earlier runs at their positions, so
//! results of these runs find their units, and the teardown undoes them.

use std::sync::Arc;

use ebb_documents::Plan;
use ebb_engine::{Hook, RequestSender, TargetPhase};
use ebb_protocol::{ErrorCode, HistoryChange, LifecycleData, LifecycleResult};
use ebb_store::{HistoryItem, PendingCreation, PendingUpdate, Store, TargetHead, TargetTransition};

use crate::advance::policy_check::check_replacements;
use crate::advance::{FollowUp, next_run, retry};
use crate::instance::requester::{Requester, check_losses};
use crate::instance::target_document::{
    CompiledDocument, compile_document, compile_event, compiler_tools, load_plan, no_document, storable_text,
};
use crate::instance::{due, retention};
use crate::{CompiledPlan, Decision, Env, FlowError, FlowResult, PinnedVersions, RequestError};

/// The result of an update with the generation of the target.
type UpdateOutcome = Option<(LifecycleResult, u64, FollowUp)>;

/// Applies the update of an instance that has begun or waits for its name. An unchanged document retries the failed units
/// of a failed target. Returns `None` if the target has changed meanwhile.
pub(super) async fn update(
    env: &Env,
    plugins: &Store,
    event: &LifecycleData,
    target: &TargetHead,
    requester: Requester<'_>,
) -> Result<UpdateOutcome, RequestError> {
    let sender = requester.sender;
    let waiting = target.waiting.as_ref().filter(|waiting| target.uid != event.uid && waiting.uid == event.uid);
    let (plan, routing_key) = match waiting {
        Some(waiting) => (&waiting.plan, &waiting.routing_key),
        None => (&target.plan, &target.routing_key),
    };
    let document = event.document.as_ref().ok_or_else(no_document)?;
    let instance = event.instance().key();
    let current = match env.plan(&instance, plan).await {
        Err(error @ FlowError::Damaged { .. }) => {
            let pinned = waiting.map_or(&target.plugins, |waiting| &waiting.plugins);
            restore(env, plugins, event, document, (&instance, plan, pinned)).await?.ok_or(error)?
        }
        current => current?,
    };
    // An update is compiled with the versions of the one that it repeats or replaces, as if that one had begun.
    let replaced = target.pending_update.as_ref().filter(|_| waiting.is_none());
    let replaced = replaced.filter(|replaced| replaced.generation <= event.generation);
    let pinned = match replaced {
        Some(pending) => env.plan(&target.update_key(pending), &pending.plan).await?,
        None => Arc::clone(&current),
    };
    let wanted = compile_event(env, plugins, event, (PinnedVersions::OfPlan(&pinned.plan), sender)).await?;
    let owner = waiting.map_or(&target.owner, |waiting| &waiting.owner);
    requester.check_labels(owner.as_deref(), &wanted.target.labels)?;
    let merged = next_run::merge(env, target, waiting.is_some(), (&current, &wanted)).await?;
    // An update without a key keeps that of the update that it replaces.
    let key = event.routing_key.clone().or_else(|| replaced?.routing_key.clone());
    let other_key = key.is_some() && key != *routing_key;
    let newest = waiting.map_or(target.newest_generation(), |waiting| waiting.generation);
    if waiting.is_none() && event.generation > newest {
        next_run::check_replaced(env, target, &wanted).await?;
    }
    // A document like the present one does not withdraw a newer update, nor another one of the same generation.
    let present = waiting.map_or(target.generation, |waiting| waiting.generation);
    let is_overtaken = present < event.generation && event.generation <= newest;
    if merged.is_none() && !other_key && !is_overtaken {
        return unchanged(env, event, target, waiting, sender).await;
    }
    let pending = PendingUpdate {
        generation: event.generation,
        plan: wanted.digest(),
        routing_key: key,
        by: requester.name(),
        keeps_resources: requester.keeps_resources,
        labels: TargetHead::stored_labels(&wanted.target.labels),
        since: env.now(),
    };
    // Another caller may repeat the update, and later.
    let is_same = |present: &PendingUpdate| {
        PendingUpdate { by: present.by.clone(), since: present.since, ..pending.clone() } == *present
    };
    if waiting.is_none() && target.pending_update.as_ref().is_some_and(is_same) {
        if !due::touch(env, target).await? {
            return Ok(None);
        }
        return Ok(Some((LifecycleResult::Waiting, event.generation, FollowUp::default())));
    }
    if event.generation <= newest {
        let text = format!(
            "the document differs from generation {newest} of {}/{}; expected a higher generation, got {}",
            event.kind, event.name, event.generation
        );
        return Err(RequestError::refused(ErrorCode::Outdated, text));
    }
    let text = storable_text(&wanted, event);
    if let Some(waiting) = waiting {
        let plan = load_plan(wanted, text).await?;
        let entry = Some(plan.accepted(env, target, event, requester.name()));
        let requested_by = (waiting.source.as_deref(), waiting.owner.clone());
        let mut after = plan.pending(event, requested_by, waiting.since);
        after.first_generation = Some(waiting.first_generation());
        after.routing_key = after.routing_key.or_else(|| waiting.routing_key.clone());
        let transition = target.update(|target| target.waiting = Some(after));
        let transition = TargetTransition { entry, ..transition };
        let is_written = env.store.begin_instance(&transition, &instance, plan.json.as_bytes(), env.now()).await?;
        return Ok(is_written.then(|| (LifecycleResult::Waiting, event.generation, FollowUp::default())));
    }
    let update = match merged {
        Some(update) => update,
        None => next_run::rekeyed(env, target, (&current, &wanted)).await?,
    };
    check_losses(target, &current.plan, &update, (requester.keeps_resources, env.now(), env.now()))?;
    let checked = Box::pin(check_replacements(env, target, (&current, &wanted), update)).await?;
    if !next_run::is_updatable(env, target).await? {
        let plan = load_plan(wanted, text).await?;
        let entry = plan.accepted(env, target, event, requester.name());
        return wait(env, (target, &current.plan), pending, plan, entry).await;
    }
    let result = if checked.update.number.is_some() { LifecycleResult::Updating } else { LifecycleResult::Updated };
    let begun = Box::pin(next_run::begin(env, target, &pending, checked, text)).await?;
    Ok(begun.map(|continuation| (result, event.generation, FollowUp::drive(continuation))))
}

/// Leaves an update to the end of the present run. It replaces one that waits.
async fn wait(
    env: &Env,
    (target, current): (&TargetHead, &Plan),
    pending: PendingUpdate,
    plan: CompiledDocument,
    entry: HistoryItem,
) -> Result<UpdateOutcome, RequestError> {
    let (generation, key) = (pending.generation, target.update_key(&pending));
    retention::schedule(env, target, (&target.update_uid(&pending), generation, &pending.plan), None).await?;
    let transition = target.update(|after| {
        after.active = after.active.max(Some(pending.since));
        after.expires = due::end_of(after, current, Some((&plan.loaded.plan, pending.keeps_resources)));
        after.pending_update = Some(pending);
        after.due = due::next_due(env, after);
    });
    let transition = TargetTransition { entry: Some(entry), ..transition };
    if !env.store.begin_instance(&transition, &key, plan.json.as_bytes(), env.now()).await? {
        return Ok(None);
    }
    // The run may have ended between its read and this write.
    let continuation = Box::pin(next_run::start_update(env, false, target.target_key())).await?;
    Ok(Some((LifecycleResult::Waiting, generation, FollowUp::drive(continuation))))
}

/// Returns the response to an update that changes nothing. A newer one withdraws the update that waits. The failed units of
/// a failed target are retried.
///
/// The generation of the platform is stored, so that an older document that arrives later changes nothing. Other requests
/// get their generation when they are applied.
async fn unchanged(
    env: &Env,
    event: &LifecycleData,
    target: &TargetHead,
    waiting: Option<&PendingCreation>,
    sender: RequestSender<'_>,
) -> Result<UpdateOutcome, RequestError> {
    let (mut result, mut generation, mut next) = (LifecycleResult::Unchanged, target.generation, None);
    let is_numbered = sender == RequestSender::Platform;
    if let Some(waiting) = waiting {
        let newest = if is_numbered { event.generation.max(waiting.generation) } else { waiting.generation };
        if newest > waiting.generation {
            let first_generation = Some(waiting.first_generation());
            let newer = PendingCreation { generation: newest, first_generation, ..waiting.clone() };
            if !env.store.move_target(&target.update(|after| after.waiting = Some(newer))).await? {
                return Ok(None);
            }
        }
        return Ok(Some((result, newest, FollowUp::default())));
    }
    if event.generation > target.newest_generation() && (is_numbered || target.pending_update.is_some()) {
        let active = TargetHead { active: target.active.max(Some(env.now())), ..target.clone() };
        let withdrawn = next_run::withdraw_update(env, &active, event.generation, None).await?;
        let Some(continuation) = withdrawn else { return Ok(None) };
        (generation, next) = (event.generation, continuation);
    } else if event.generation >= target.newest_generation() && !due::touch(env, target).await? {
        return Ok(None);
    }
    // A retry that was interrupted has moved the target, and is repeated.
    if target.phase != TargetPhase::Ready || target.hook == Some(Hook::PostStart) {
        let by = sender.owner();
        let decision = Decision { change: HistoryChange::Retried, by: by.as_deref(), reason: None };
        if retry::retry(env, (event.target_key(), Some(&target.uid)), Some(decision)).await?.is_ok() {
            result = LifecycleResult::Retrying;
        }
    }
    Ok(Some((result, generation, FollowUp::drive(next))))
}

/// Stores the lost plan of a target again, if `document` compiles to it.
async fn restore(
    env: &Env,
    plugins: &Store,
    event: &LifecycleData,
    document: &str,
    (instance, digest, pinned): (&str, &str, &[String]),
) -> FlowResult<Option<Arc<CompiledPlan>>> {
    let versions = PinnedVersions::Listed(pinned);
    let plan = match compile_document(plugins, compiler_tools(env), event.instance(), document, versions).await {
        Ok((plan, _)) => plan,
        Err(RequestError::Rejected(_)) => return Ok(None),
        Err(RequestError::Failed(error)) => return Err(error),
    };
    if plan.digest() != digest {
        return Ok(None);
    }
    env.store.restore_plan(instance, plan.to_json().as_bytes()).await?;
    tracing::warn!(kind = event.kind, name = event.name, digest, "restored a lost plan");
    let loaded = Arc::new(CompiledPlan::of(plan, digest)?);
    env.remember_plan(&loaded);
    Ok(Some(loaded))
}
