//! Retention: the stored data of an instance is removed some days after it is gone.
//!
//! An [`InstanceExpiry`] is written before an instance begins to end. When it is due, and the instance is gone with
//! nothing left of it, its runs, records, outputs, logs and plan are deleted. Every step may be repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_documents::plan::Action;
use ebb_engine::{Hook, Millis, RunPhase, RunView, Shard, TargetPhase, Timestamp};
use ebb_protocol::id::{self, RunId};
use ebb_store::{DamagedExpiry, InstanceExpiry, PendingCreation, RemoveExpired, TargetHead, TargetList, Tombstone};
use futures::StreamExt as _;
use tokio::time::timeout;

use crate::env::{CompiledPlan, Env};
use crate::error::FlowError;
use crate::run::head::Run;
use crate::run::possible_resources;

/// Lives that one round looks at.
const MAX_INSTANCES: usize = 500;
/// Lives that are looked at beside each other.
const AT_ONCE: usize = 4;
/// For how long a round begins to remove lives.
const START_WINDOW: Duration = Duration::from_secs(5);
/// An instance that cannot be removed yet is looked at again after this long.
const RECHECK_INTERVAL: Millis = Millis(86_400_000);
/// The first look at an instance may take so long. A removal that is cut short goes on with the next look.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);
/// A later look may take so long: the proof that nothing is left of an instance begins again with each look.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);
/// The wait after the first failed look; it doubles with each further one.
const FIRST_WAIT_MS: u64 = 60 * 60 * 1000;
/// The longest wait after a failed look.
const LONGEST_WAIT_MS: u64 = 7 * 86_400_000;

/// Schedules the removal of the stored data of a target, before the target begins to end.
///
/// # Errors
/// The store's.
pub async fn schedule_removal(env: &Env, target: &TargetHead) -> Result<(), FlowError> {
    let TargetHead { uid, generation, plan, .. } = target;
    write(env, target, (uid, *generation, plan)).await
}

/// Returns the tombstone of an instance that ended at `ended` and that no target will name. From then on it alone tells
/// when the retention of the instance is over.
pub(crate) fn tombstone(env: &Env, uid: &str, ended: Timestamp) -> Tombstone {
    let expires = env.settings.retention.map_or(ended, |retention| ended.plus(retention));
    Tombstone { uid: uid.to_owned(), ended, needed: expires.max(env.now()) }
}

/// Notes that the plan of an instance is to be removed that waits for the name of a target and will not begin.
///
/// # Errors
/// The store's.
pub async fn schedule_waiting_removal(
    env: &Env,
    target: &TargetHead,
    waiting: &PendingCreation,
) -> Result<(), FlowError> {
    let PendingCreation { uid, generation, plan, .. } = waiting;
    write(env, target, (uid, *generation, plan)).await
}

async fn write(env: &Env, named: &TargetHead, (uid, generation, plan): (&str, u64, &str)) -> Result<(), FlowError> {
    let Some(retention) = env.settings.retention else { return Ok(()) };
    let expiry = InstanceExpiry {
        kind: named.kind.clone(),
        name: named.name.clone(),
        uid: uid.to_owned(),
        generation,
        plan: plan.to_owned(),
        due: env.now().plus(retention),
        failures: 0,
    };
    Ok(env.store.put_expiry(&expiry).await?)
}

/// Removes what is stored of lives whose retention is over at `now`. Returns how many lives were removed. A failed or
/// unfinished look is repeated after a wait that grows, so that it does not keep other lives from their turn.
///
/// # Errors
/// The store's; what is left is due in the next round.
pub async fn remove_expired(env: &Env, store: &dyn RemoveExpired, now: Timestamp) -> Result<usize, FlowError> {
    let begun = Instant::now();
    let mut removed = 0;
    let due = store.list_expired(now, MAX_INSTANCES).await?;
    for damaged in due.damaged {
        let DamagedExpiry { instance, failures, reason, .. } = &damaged;
        tracing::error!(instance, reason, "an expiry cannot be read; the data of its instance stays");
        let next = now.plus(retry_wait(*failures));
        let damaged = DamagedExpiry { failures: failures.saturating_add(1), ..damaged };
        if let Err(error) = store.postpone_damaged(&damaged, next).await {
            tracing::warn!(%error, instance = damaged.instance, "the damaged expiry stays due");
        }
    }
    let looks = due.readable.iter().map(|expiry| async move {
        match begun.elapsed() > START_WINDOW {
            true => Ok(false),
            false => process_expiry(env, store, expiry, now).await,
        }
    });
    let looks: Vec<_> = looks.collect();
    let mut looks = futures::stream::iter(looks).buffer_unordered(AT_ONCE);
    let mut error = None;
    while let Some(looked) = looks.next().await {
        match looked {
            Ok(is_removed) => removed += usize::from(is_removed),
            Err(failed) => error = error.or(Some(failed)),
        }
    }
    error.map_or(Ok(removed), Err)
}

/// Looks at an instance whose retention is over. Returns whether it was removed.
///
/// # Errors
/// The store's, when the next look cannot be noted; the instance is due in the next round.
async fn process_expiry(
    env: &Env,
    store: &dyn RemoveExpired,
    expiry: &InstanceExpiry,
    now: Timestamp,
) -> Result<bool, FlowError> {
    let long = if expiry.failures > 0 { RETRY_TIMEOUT } else { FIRST_TIMEOUT };
    match timeout(long, Box::pin(remove_if_ended(env, store, expiry, now))).await {
        Ok(Ok(RetentionOutcome::Removed)) => return Ok(true),
        Ok(Ok(RetentionOutcome::Disabled)) => store.delete_expiry(expiry).await?,
        Ok(Ok(RetentionOutcome::Postponed(due))) => store.postpone_expiry(expiry, due, 0).await?,
        Ok(Err(error)) => {
            tracing::warn!(%error, instance = instance_key(expiry), "the data of the instance is removed later");
            postpone_failed(store, expiry, now).await?;
        }
        Err(_) => {
            tracing::warn!(
                instance = instance_key(expiry),
                "the removal of the instance takes too long; it continues later"
            );
            postpone_failed(store, expiry, now).await?;
        }
    }
    Ok(false)
}

/// Returns the wait after a failed look that came after so many others.
fn retry_wait(failures: u32) -> Millis {
    let doubled = 1_u64.checked_shl(failures).unwrap_or(u64::MAX);
    Millis(FIRST_WAIT_MS.saturating_mul(doubled).min(LONGEST_WAIT_MS))
}

/// The outcome of a look at an instance that is due.
enum RetentionOutcome {
    /// Its items and objects are removed.
    Removed,
    /// Nothing is removed any more.
    Disabled,
    /// It is to be looked at again then.
    Postponed(Timestamp),
}

fn instance_key(expiry: &InstanceExpiry) -> String {
    id::instance_key(&expiry.kind, &expiry.name, &expiry.uid)
}

async fn postpone_failed(store: &dyn RemoveExpired, expiry: &InstanceExpiry, now: Timestamp) -> Result<(), FlowError> {
    let due = now.plus(retry_wait(expiry.failures));
    Ok(store.postpone_expiry(expiry, due, expiry.failures.saturating_add(1)).await?)
}

/// Returns whether the removal of `run` has begun.
///
/// # Errors
/// The store's.
pub(crate) async fn is_being_removed(env: &Env, run: &Run) -> Result<bool, FlowError> {
    let facts = &run.facts;
    if !env.may_be_removed(facts) {
        return Ok(false);
    }
    let target = env.store.read_target(&facts.kind, &facts.name).await?;
    Ok(target.is_some_and(|target| target.uid == facts.uid && is_removed(&target)))
}

/// Returns whether what is stored of the instance of a gone target is being removed, or was. Such a target has no plan.
pub(crate) fn is_removed(target: &TargetHead) -> bool {
    target.phase == TargetPhase::Gone && target.plan.is_empty()
}

async fn remove_if_ended(
    env: &Env,
    store: &dyn RemoveExpired,
    expiry: &InstanceExpiry,
    now: Timestamp,
) -> Result<RetentionOutcome, FlowError> {
    let Some(retention) = env.settings.retention else { return Ok(RetentionOutcome::Disabled) };
    let named = env.store.read_target(&expiry.kind, &expiry.name).await?;
    if let Some(target) = &named {
        if target.waiting.as_ref().is_some_and(|waiting| waiting.uid == expiry.uid) {
            return Ok(RetentionOutcome::Postponed(now.plus(RECHECK_INTERVAL)));
        }
        if target.uid == expiry.uid {
            let due = match (target.phase, target.list()) {
                (TargetPhase::Gone, TargetList::Gone) => target.since.plus(retention),
                _ => now.plus(RECHECK_INTERVAL),
            };
            if due > now {
                return Ok(RetentionOutcome::Postponed(due));
            }
        }
    }
    // Another instance of the name, or no item, means that this instance is gone: only a gone target is replaced or
    // removed.
    let own = named.filter(|target| target.uid == expiry.uid);
    if own.is_none()
        && let Some(ended) = env.store.read_tombstone(&expiry.uid).await?
        && ended.plus(retention) > now
    {
        return Ok(RetentionOutcome::Postponed(ended.plus(retention)));
    }
    let plan = match find_remains(env, expiry).await? {
        InstanceRemains::Nothing(plan) => plan,
        InstanceRemains::Open => return Ok(RetentionOutcome::Postponed(now.plus(RECHECK_INTERVAL))),
        InstanceRemains::Possible => {
            tracing::warn!(
                instance = instance_key(expiry),
                "something of the instance may exist; its records are kept"
            );
            return Ok(RetentionOutcome::Postponed(now.plus(retention)));
        }
    };
    remove(env, store, expiry, own, plan.as_deref()).await
}

/// The items and objects of an instance that is gone.
enum InstanceRemains {
    /// Only stored data, and the plan if there is a run.
    Nothing(Option<Arc<CompiledPlan>>),
    /// A run that is not closed.
    Open,
    /// Something that an undo has not removed.
    Possible,
}

async fn find_remains(env: &Env, expiry: &InstanceExpiry) -> Result<InstanceRemains, FlowError> {
    let loaded = match env.plan(&instance_key(expiry), &expiry.plan).await {
        Ok(loaded) => loaded,
        // A removal that goes on may have removed the plan, after all runs.
        Err(error) => {
            return if has_run(env, expiry).await? { Err(error) } else { Ok(InstanceRemains::Nothing(None)) };
        }
    };
    let mut runs = Vec::new();
    for hook in Hook::ALL {
        let Some((_, graph)) = loaded.hook_plan(hook) else { continue };
        let run = RunId::new(&instance_key(expiry), expiry.generation, hook);
        let heads = env.store.read_run(&run).await?;
        let Some(root) = heads.iter().find(|head| head.shard == Shard::ROOT) else { continue };
        if root.head.phase != RunPhase::Closed {
            return Ok(InstanceRemains::Open);
        }
        runs.push((run, RunView::whole(graph, heads.into_iter().map(|head| (head.shard, head.head)))));
    }
    let is_over = possible_resources::possible_resources_of(env, &loaded, &runs).await?.is_empty();
    Ok(if is_over { InstanceRemains::Nothing(Some(loaded)) } else { InstanceRemains::Possible })
}

async fn has_run(env: &Env, expiry: &InstanceExpiry) -> Result<bool, FlowError> {
    for hook in Hook::ALL {
        let run = RunId::new(&instance_key(expiry), expiry.generation, hook);
        if env.store.read_root(&run).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_scripts(plan: &CompiledPlan, hook: Hook) -> bool {
    let mut units = plan.hook_plan(hook).into_iter().flat_map(|(hook_plan, _)| &hook_plan.units);
    units.any(|unit| !matches!(unit.action, Action::Webhook(_)))
}

async fn remove(
    env: &Env,
    store: &dyn RemoveExpired,
    expiry: &InstanceExpiry,
    own: Option<TargetHead>,
    plan: Option<&CompiledPlan>,
) -> Result<RetentionOutcome, FlowError> {
    let instance = instance_key(expiry);
    // The target first: from then on no late success gives it back to a run, whose items may be gone.
    if let Some(seen) = own.filter(|target| !target.plan.is_empty()) {
        if !env.store.move_target(&seen.update(|target| target.plan.clear())).await? {
            return Ok(RetentionOutcome::Postponed(env.now().plus(RECHECK_INTERVAL)));
        }
    }
    // Setup runs first: as long as one is there, the teardown that proves its undos is there too.
    for hook in Hook::ALL {
        if plan.is_some_and(|plan| plan.hook_plan(hook).is_none()) {
            continue;
        }
        let run = RunId::new(&instance, expiry.generation, hook);
        // Logs are written beside records or without them, so that no item tells of all.
        if plan.is_some_and(|plan| has_scripts(plan, hook)) {
            store.delete_objects(&run).await?;
        }
        store.delete_run(&run).await?;
        env.forget_run(&run);
    }
    if !expiry.plan.is_empty() {
        store.delete_plan(&instance).await?;
        env.forget_plan(&expiry.plan);
    }
    store.delete_expiry(expiry).await?;
    tracing::info!(instance, "the data of the instance is removed");
    Ok(RetentionOutcome::Removed)
}
