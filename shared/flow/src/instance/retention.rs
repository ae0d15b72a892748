//! Removes the stored data of an instance some days after it is gone, and the run of an event some days after it came.
//!
//! 1. Before an instance begins to end, write an [`InstanceExpiry`].
//! 2. When it is due, check that the instance is gone, and announce the removal in the head of its first run: its runs take no
//!    further results.
//! 3. When no invocation has a result that it took before, check that the runs are closed, and none of its resources may
//!    exist. Otherwise withdraw the announcement.
//! 4. Remove the plan from the target. Delete runs, records, outputs and logs, then the plan, then the expiry.
//!
//! Every step is idempotent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ebb_engine::{Backoff, HeadState, Hook, Millis, RunEvent, RunPhase, TargetPhase, Timestamp, accept};
use ebb_protocol::id::{EventRef, RunId};
use ebb_store::{DamagedExpiry, InstanceExpiry, StoreError, TargetHead, TargetList, Tombstone};
use futures::StreamExt as _;
use futures::future::{Either, select};

use crate::run::removal::possible_resources;
use crate::{CompiledPlan, Env, FlowError, FlowResult, Run};

/// Maximum removals that a round announces.
const MAX_ANNOUNCED: usize = 500;
/// Milliseconds between the starts of two rounds.
const ROUND_INTERVAL_MS: u64 = 60_000;
const MAX_CONCURRENT: usize = 4;
/// The time within which all attempts of a round end. Announcements are then written within the response window.
const ROUND_TIME: Duration = Duration::from_secs(20);
/// The wait before the next check of an instance that cannot be removed yet.
const RECHECK_INTERVAL: Millis = Millis(86_400_000);
/// Maximum duration of the first attempt. The next attempt continues an interrupted removal.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum duration of a later attempt, because the check for possible resources starts again each time.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);
/// The waits after failures, from one hour to seven days.
const FAILURE_BACKOFF: Backoff = Backoff { base: Millis(60 * 60 * 1000), max: Millis(7 * 86_400_000) };

/// Schedules the removal of a target's stored data, before the target begins to end. With an `event`, schedules that of its
/// run, before the event is accepted. Its resources are not kept, so it is removed although its target may be active.
pub async fn schedule_removal(env: &Env, target: &TargetHead, event: Option<EventRef>) -> FlowResult<()> {
    let TargetHead { uid, first_generation, plan, .. } = target;
    schedule(env, target, (uid, *first_generation, plan), event).await
}

/// Returns the tombstone of an instance that ended at `ended` and is no longer in the target item. It is the only
/// record of the end of the retention.
pub(crate) fn tombstone(env: &Env, instance: String, ended: Timestamp) -> Tombstone {
    let needed = env.settings.retention.map(|retention| ended.plus(retention).max(env.now()));
    Tombstone { instance, ended, needed }
}

/// Schedules the removal of the data of an instance with its first generation and its plan: also of one that waits for the
/// name and will not begin, or of an update, before it waits.
pub(crate) async fn schedule(
    env: &Env,
    named: &TargetHead,
    (uid, generation, plan): (&str, u64, &str),
    event: Option<EventRef>,
) -> FlowResult<()> {
    let Some(retention) = env.settings.retention else { return Ok(()) };
    let (kind, name, uid, plan) = (named.kind.clone(), named.name.clone(), uid.to_owned(), plan.to_owned());
    let (updates, due) = (named.updates, env.now().plus(retention));
    let expiry = InstanceExpiry { kind, name, uid, generation, updates, plan, event, due, failures: 0 };
    Ok(env.store.put_expiry(&expiry).await?)
}

/// Returns the number of removals that a round reads: those that earlier rounds announced within the notice, and those
/// that it announces. Otherwise removals would be announced only after the notice of earlier ones.
fn max_listed(notice: Millis) -> usize {
    let rounds = usize::try_from(notice.0.div_ceil(ROUND_INTERVAL_MS)).unwrap_or(usize::MAX);
    MAX_ANNOUNCED.saturating_mul(rounds.saturating_add(1))
}

fn attempt_timeout(expiry: &InstanceExpiry) -> Duration {
    if expiry.failures > 0 { RETRY_TIMEOUT } else { FIRST_TIMEOUT }
}

/// Removes the data of instances whose retention has ended at `now`. Returns their number. A failed or unfinished
/// instance is postponed, with growing waits, so that it does not delay others.
pub async fn remove_expired(env: &Env, now: Timestamp) -> FlowResult<usize> {
    let begun = env.now();
    let due = env.store.list_expired(now, max_listed(env.settings.removal_notice())).await?;
    for expiry in due.objects {
        if let Err(error) = env.store.remove_unnamed_object(&expiry).await {
            tracing::warn!(%error, expiry, "cannot remove the plan of no instance; the next round repeats it");
        }
    }
    for damaged in due.damaged {
        let DamagedExpiry { instance, failures, reason, .. } = &damaged;
        tracing::error!(instance, reason, "cannot read an expiry; the data of its instance is kept");
        let next = now.plus(FAILURE_BACKOFF.bound(failures.saturating_add(1)));
        let damaged = DamagedExpiry { failures: failures.saturating_add(1), ..damaged };
        if let Err(error) = env.store.postpone_damaged(&damaged, next).await {
            tracing::warn!(%error, instance = damaged.instance, "cannot postpone a damaged expiry");
        }
    }
    let announced = &AtomicUsize::new(0);
    let removals = due.readable.iter().map(|expiry| async move {
        let latest = ROUND_TIME.saturating_sub(attempt_timeout(expiry));
        // Removals are listed by their time, so the rest is not announced yet.
        match env.now().since(begun) > Millis::from(latest) || announced.load(Ordering::Relaxed) >= MAX_ANNOUNCED {
            true => Ok(false),
            false => process_expiry(env, expiry, now, announced).await,
        }
    });
    let removals: Vec<_> = removals.collect();
    // After an error, the other removals continue.
    let ended: Vec<FlowResult<bool>> = futures::stream::iter(removals).buffer_unordered(MAX_CONCURRENT).collect().await;
    let ended: Vec<bool> = ended.into_iter().collect::<FlowResult<_>>()?;
    Ok(ended.into_iter().filter(|is_removed| *is_removed).count())
}

/// Processes an instance whose retention has ended. Returns true if it was removed.
///
/// # Errors
/// Returns an error if the next attempt cannot be scheduled. The instance is then due in the next round.
async fn process_expiry(
    env: &Env,
    expiry: &InstanceExpiry,
    now: Timestamp,
    announced: &AtomicUsize,
) -> FlowResult<bool> {
    let timeout = env.clock.sleep(attempt_timeout(expiry));
    // The removal is dropped before its next attempt is scheduled.
    let outcome = match select(Box::pin(remove_if_ended(env, expiry, now)), timeout).await {
        Either::Left((outcome, _)) => Some(outcome),
        Either::Right(_) => None,
    };
    match outcome {
        Some(Ok(RetentionOutcome::Removed)) => return Ok(true),
        Some(Ok(RetentionOutcome::Waiting)) => {}
        Some(Ok(RetentionOutcome::Disabled)) => env.store.delete_expiry(expiry).await?,
        Some(Ok(RetentionOutcome::Unannounced(run))) => {
            if announced.fetch_add(1, Ordering::Relaxed) < MAX_ANNOUNCED {
                env.store.patch_run(&run, &accept(RunEvent::RemovalAnnounced { at: now })).await?;
            }
        }
        Some(Ok(RetentionOutcome::Postponed(due))) => postpone(env, expiry, due, 0).await?,
        Some(Err(error)) => {
            tracing::warn!(%error, instance = expiry.subject(), "cannot remove the data of an instance; trying again later");
            postpone_failed(env, expiry, now).await?;
        }
        None => {
            tracing::warn!(
                instance = expiry.instance_key(),
                "the removal of an instance takes too long; it continues later"
            );
            postpone_failed(env, expiry, now).await?;
        }
    }
    Ok(false)
}

enum RetentionOutcome {
    Removed,
    Disabled,
    /// The removal is to be announced in the head of this run.
    Unannounced(RunId),
    /// The removal is announced. An invocation may have a result that it took before.
    Waiting,
    Postponed(Timestamp),
}

async fn postpone_failed(env: &Env, expiry: &InstanceExpiry, now: Timestamp) -> FlowResult<()> {
    let failures = expiry.failures.saturating_add(1);
    postpone(env, expiry, now.plus(FAILURE_BACKOFF.bound(failures)), failures).await
}

/// Postpones a removal, and withdraws its announcement. If the head of the first run is deleted, the runs take no results
/// nevertheless.
async fn postpone(env: &Env, expiry: &InstanceExpiry, due: Timestamp, failures: u32) -> FlowResult<()> {
    let plan = env.plan(&expiry.instance_key(), &expiry.plan).await.ok();
    for run in runs_of(expiry, plan.as_deref()) {
        match env.store.read_run(&run).await {
            Ok(head) if head.as_ref().is_some_and(|present| present.head.removal_announced.is_some()) => {
                env.store.patch_run(&run, &accept(RunEvent::RemovalWithdrawn)).await?;
            }
            // No result of an unreadable run is taken, and the next attempt has to wait.
            Ok(_) | Err(StoreError::Broken { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(env.store.postpone_expiry(expiry, due, failures).await?)
}

/// Returns the outcome for a run whose removal has not been announced in its `head` for long enough, at the time of a round.
fn not_announced(env: &Env, run: &RunId, head: &HeadState, now: Timestamp) -> Option<RetentionOutcome> {
    match head.removal_announced {
        None => Some(RetentionOutcome::Unannounced(run.clone())),
        Some(at) if at.plus(env.settings.removal_notice()) > now => Some(RetentionOutcome::Waiting),
        // Every invocation has ended that took a result before.
        Some(_) => None,
    }
}

/// Returns true if `run` was removed, or its removal has begun.
///
/// # Errors
/// Returns a retryable error while the removal is announced, because the data may be kept.
pub(crate) async fn is_being_removed(env: &Env, run: &Run) -> FlowResult<bool> {
    let facts = &run.facts;
    if !env.may_be_removed(facts) {
        return Ok(false);
    }
    let target = env.store.read_target(facts.target_key()).await?;
    if target.is_some_and(|target| target.uid == facts.uid && is_removed(&target)) {
        return Ok(true);
    }
    let first = run.loaded.lifecycle_hooks().next().filter(|_| !matches!(run.hook(), Hook::Event(_)));
    let first = first.map_or_else(|| run.id.clone(), |hook| run.id.sibling(hook));
    match env.store.read_run(&first).await? {
        None => Ok(true),
        Some(present) if present.head.removal_announced.is_some() => {
            Err(FlowError::Contended(format!("run {}", run.id)))
        }
        Some(_) => Ok(false),
    }
}

/// Returns true if the data of the gone instance is being removed, or was. Its target has no plan.
pub(crate) fn is_removed(target: &TargetHead) -> bool {
    target.phase == TargetPhase::Gone && target.plan.is_empty()
}

async fn remove_if_ended(env: &Env, expiry: &InstanceExpiry, now: Timestamp) -> FlowResult<RetentionOutcome> {
    let Some(retention) = env.settings.retention else { return Ok(RetentionOutcome::Disabled) };
    let named = env.store.read_target(expiry.target_key()).await?;
    if let Some(event) = &expiry.event {
        return remove_event(env, expiry, (event, named), now).await;
    }
    if let Some(target) = &named {
        let pending = target.pending_update.as_ref();
        let is_pending = pending.is_some_and(|pending| target.update_uid(pending) == expiry.uid);
        if is_pending || target.has_waiting(&expiry.uid) {
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
    // If the name has another instance or no item, this instance is gone: only gone targets are replaced or removed.
    let own = named.filter(|target| target.uid == expiry.uid);
    let ended = if own.is_some() { None } else { env.store.read_tombstone(&expiry.instance_key()).await? };
    if let Some(kept) = ended.map(|ended| ended.plus(retention)).filter(|kept| *kept > now) {
        return Ok(RetentionOutcome::Postponed(kept));
    }
    let first = read_first_run(env, expiry).await?;
    // An instance that waits is checked in each round, without its plan.
    let closed = first.as_ref().filter(|(_, head)| head.phase == RunPhase::Closed);
    let announced = closed.and_then(|(run, head)| not_announced(env, run, head, now));
    if let Some(waiting @ RetentionOutcome::Waiting) = announced {
        return Ok(waiting);
    }
    let Some(plan) = read_plan(env, expiry).await? else { return remove(env, expiry, own, None).await };
    match may_have_resources(env, expiry, (&plan, first), now).await? {
        Err(outcome) => Ok(outcome),
        Ok(false) => remove(env, expiry, own, Some(&plan)).await,
        Ok(true) => {
            tracing::warn!(
                instance = expiry.instance_key(),
                "resources of an instance may exist; its records are kept"
            );
            let next = now.plus(retention);
            if let Some(ended) = ended {
                // A creation with the same UID would find its runs.
                let tombstone = Tombstone { instance: expiry.instance_key(), ended, needed: Some(next) };
                env.store.put_tombstone(&tombstone).await?;
            }
            Ok(RetentionOutcome::Postponed(next))
        }
    }
}

/// Removes the run of an event, unless the target waits for it or it is the last run of an active target.
async fn remove_event(
    env: &Env,
    expiry: &InstanceExpiry,
    (event, named): (&EventRef, Option<TargetHead>),
    now: Timestamp,
) -> FlowResult<RetentionOutcome> {
    let run = RunId::of_event(&expiry.instance_key(), expiry.generation, event);
    let present = env.store.read_run(&run).await?;
    let is_open = present.as_ref().is_some_and(|present| present.head.phase != RunPhase::Closed);
    let is_needed = named.filter(|target| target.uid == expiry.uid).is_some_and(|target| {
        target.events.waits(event) || (target.phase != TargetPhase::Gone && target.is_last_run(&run))
    });
    if is_open || is_needed {
        return Ok(RetentionOutcome::Postponed(env.now().plus(RECHECK_INTERVAL)));
    }
    if let Some(present) = present {
        // The event may have waited before its run began.
        let due = env.settings.retention.map(|retention| present.facts.started.plus(retention));
        if let Some(due) = due.filter(|&due| due > now) {
            return Ok(RetentionOutcome::Postponed(due));
        }
        if let Some(outcome) = not_announced(env, &run, &present.head, now) {
            return Ok(outcome);
        }
    }
    if !env.store.delete_head(&run).await? {
        return Ok(RetentionOutcome::Postponed(env.now().plus(RECHECK_INTERVAL)));
    }
    env.store.delete_objects(&run).await?;
    env.store.delete_run(&run).await?;
    env.forget_run(&run);
    env.store.delete_expiry(expiry).await?;
    Ok(RetentionOutcome::Removed)
}

/// Returns the first run of an instance that exists, without its plan.
async fn read_first_run(env: &Env, expiry: &InstanceExpiry) -> FlowResult<Option<(RunId, HeadState)>> {
    for run in runs_of(expiry, None) {
        if let Some(present) = env.store.read_run(&run).await? {
            return Ok(Some((run, present.head)));
        }
    }
    Ok(None)
}

/// Returns the plan of an instance, or `None` if an earlier removal has deleted it, which comes after all runs.
async fn read_plan(env: &Env, expiry: &InstanceExpiry) -> FlowResult<Option<Arc<CompiledPlan>>> {
    // An update may have begun after the expiry was written. This function instance may have the plan before it.
    env.forget_plan(&expiry.plan);
    match env.plan(&expiry.instance_key(), &expiry.plan).await {
        Err(error @ FlowError::Damaged { .. }) => {
            if read_first_run(env, expiry).await?.is_some() {
                return Err(error);
            }
            Ok(None)
        }
        loaded => loaded.map(Some),
    }
}

/// Returns true if a resource of an instance may exist that no undo has removed, or the outcome if its runs do not show that
/// yet. `first` is the run that was read before the plan.
async fn may_have_resources(
    env: &Env,
    expiry: &InstanceExpiry,
    (loaded, mut first): (&CompiledPlan, Option<(RunId, HeadState)>),
    now: Timestamp,
) -> FlowResult<Result<bool, RetentionOutcome>> {
    let mut runs = Vec::new();
    for (number, run) in runs_of(expiry, Some(loaded)).into_iter().enumerate() {
        if loaded.hook_plan(run.hook()).is_none() {
            continue;
        }
        let head = match first.take_if(|(found, _)| *found == run) {
            Some((_, head)) => Some(head),
            None => env.store.read_run(&run).await?.map(|present| present.head),
        };
        let Some(head) = head else { continue };
        if head.phase != RunPhase::Closed {
            return Ok(Err(RetentionOutcome::Postponed(now.plus(RECHECK_INTERVAL))));
        }
        // Callbacks read the head of the first run. If it does not exist, an interrupted removal has deleted it, or no run has
        // begun.
        if number == 0
            && let Some(outcome) = not_announced(env, &run, &head, now)
        {
            return Ok(Err(outcome));
        }
        runs.push((run, head));
    }
    Ok(Ok(!possible_resources::possible_resources_of(env, loaded, &runs).await?.is_empty()))
}

/// Returns the runs of an instance in the order of its plan, or the run of an event. Without the plan, some of them may
/// not exist.
fn runs_of(expiry: &InstanceExpiry, plan: Option<&CompiledPlan>) -> Vec<RunId> {
    let instance = expiry.instance_key();
    if let Some(event) = &expiry.event {
        return vec![RunId::of_event(&instance, expiry.generation, event)];
    }
    let hooks: Vec<Hook> = match plan {
        Some(plan) => plan.lifecycle_hooks().collect(),
        None => {
            let updates = (1..=expiry.updates).map(Hook::Update);
            let setup = [Hook::PreStart, Hook::PostStart].into_iter().chain(updates);
            setup.chain([Hook::PreStop, Hook::PostStop]).collect()
        }
    };
    hooks.into_iter().map(|hook| RunId::new(&instance, expiry.generation, hook)).collect()
}

fn has_tasks(plan: &CompiledPlan, hook: Hook) -> bool {
    let mut units = plan.hook_plan(hook).into_iter().flat_map(|(hook_plan, _)| &hook_plan.units);
    units.any(|unit| unit.action.is_relayed())
}

async fn remove(
    env: &Env,
    expiry: &InstanceExpiry,
    own: Option<TargetHead>,
    plan: Option<&CompiledPlan>,
) -> FlowResult<RetentionOutcome> {
    let instance = expiry.instance_key();
    // The target comes first: without its plan, no invocation finds runs whose items are deleted.
    if let Some(seen) = own.filter(|target| !target.plan.is_empty()) {
        let transition = seen.update(|target| {
            target.plan.clear();
            target.removed = Some(env.now());
        });
        if !env.store.move_target(&transition).await? {
            return Ok(RetentionOutcome::Postponed(env.now().plus(RECHECK_INTERVAL)));
        }
    }
    // Setup runs come first. While one exists, the teardown with the results of its undos must exist, too.
    let runs = runs_of(expiry, plan);
    // Without the head of its first run, no run of the instance takes results, even if this removal is interrupted.
    if let Some(first) = runs.first().filter(|_| plan.is_some())
        && !env.store.delete_head(first).await?
    {
        // The removal of another expiry of the instance has withdrawn the announcement.
        return Ok(RetentionOutcome::Postponed(env.now().plus(RECHECK_INTERVAL)));
    }
    for run in runs {
        // A log may exist without a record, so the records do not list all objects.
        if plan.is_some_and(|plan| has_tasks(plan, run.hook())) {
            env.store.delete_objects(&run).await?;
        }
        env.store.delete_run(&run).await?;
        env.forget_run(&run);
    }
    if !expiry.plan.is_empty() {
        env.store.delete_plan(&instance).await?;
        env.forget_plan(&expiry.plan);
    }
    env.store.delete_expiry(expiry).await?;
    tracing::info!(instance, "removed the data of an instance");
    Ok(RetentionOutcome::Removed)
}
