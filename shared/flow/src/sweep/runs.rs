//! A look at one due run: the tries to send, the tries whose time is up, and the time of the next look.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_engine::follow::{in_flight, outcome};
use ebb_engine::{Attempt, HeadState, Millis, RunEvent, RunPhase, RunView, Timestamp, Unit, accept};
use ebb_protocol::id::RunId;
use ebb_store::{DueItem, PatchResult, RunHead};

use super::SweepCondition;
use super::attempts::RunSweep;
use super::attempts::end_expired;
use super::permits::ClusterAdmission;
use super::permits::SweepPermit;
use crate::env::Env;
use crate::error::FlowError;
use crate::guarded_relay;
use crate::ports::QueueMessage;
use crate::run::attempt::AttemptRef;
use crate::run::cancel;
use crate::run::dispatch_all::SweepContext;
use crate::run::dispatch_all::drive;
use crate::run::dispatch_all::drive_for_sweep;
use crate::run::head;
use crate::run::head::Run;
use crate::run::inputs::InvocationCache;
use crate::run::progress;
use crate::run::progress::Continuation;
use crate::run::records;
use crate::run::results;
use crate::run::wakeup;
use crate::run::wakeup::MAX_MESSAGE_DELAY;

/// How often a run is looked at again at once because it changed meanwhile.
const MAX_PASSES: usize = 4;
/// The wait of a run that others change all the time, and of one whose clusters could not be asked in time.
const BUSY_WAIT: Millis = Millis(5_000);

/// Looks at one run. A hint that comes before the run is due finds nothing to do: each wake-up has its own.
///
/// # Errors
/// The store's; the run is due again.
pub async fn sweep_run(env: &Env, id: &RunId, when: SweepCondition) -> Result<(), FlowError> {
    sweep_with_permit(env, id, when, &mut SweepPermit::standalone(env)).await
}

/// Looks at a run from a place of a sweep. One that cannot be dealt with is due again later.
#[tracing::instrument(name = "look", skip_all, fields(run = %id))]
pub(super) async fn sweep_with_permit<'a>(
    env: &'a Env,
    id: &RunId,
    when: SweepCondition,
    place: &mut SweepPermit<'a>,
) -> Result<(), FlowError> {
    let due = DueItem::Run(id.clone());
    let mut when = when;
    for _ in 0..MAX_PASSES {
        match Box::pin(sweep_once(env, id, when, place)).await {
            Ok(SweepOutcome::Done) => {
                env.cache.failed_sweeps.clear(&due);
                return Ok(());
            }
            Ok(SweepOutcome::Changed) => {}
            // This process may have requests under way now.
            Ok(SweepOutcome::WokenEarlier) => when = SweepCondition::Due,
            Err(error) => {
                postpone_failed(env, id, env.cache.failed_sweeps.next_wait(&due, error.is_retryable())).await;
                return Err(error);
            }
        }
    }
    postpone_failed(env, id, BUSY_WAIT).await;
    Ok(())
}

/// Makes a run whose look failed due again after `wait`, even if the run has changed since. It changes only the due time.
pub(super) async fn postpone_failed(env: &Env, id: &RunId, wait: Millis) {
    if let Err(error) = postpone(env, id, wait).await {
        tracing::warn!(run = %id, %error, "the run stays due");
    }
}

async fn postpone(env: &Env, id: &RunId, wait: Millis) -> Result<(), FlowError> {
    let mut seen = env.store.read_root(id).await?.and_then(|root| root.head.due);
    for _ in 0..crate::ATTEMPTS {
        let now = env.now();
        let Some(due) = seen.filter(|&due| due <= now) else { return Ok(()) };
        let next = now.plus(wait);
        match env.store.patch_run(id, &accept(RunEvent::Postponed { seen: due, next })).await? {
            PatchResult::Written(_) => {
                wakeup::send_wakeup(env, id, next).await;
                return Ok(());
            }
            PatchResult::ConditionFailed(image) => seen = image.and_then(|image| image.head.due),
        }
    }
    Ok(())
}

/// The outcome of a look at a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepOutcome {
    /// The run waits, is over, or another invocation takes care of it.
    Done,
    /// The run has changed since it was read. Nothing was done.
    Changed,
    /// During the look, another write made the run due earlier.
    WokenEarlier,
}

async fn sweep_once<'a>(
    env: &'a Env,
    id: &RunId,
    when: SweepCondition,
    place: &mut SweepPermit<'a>,
) -> Result<SweepOutcome, FlowError> {
    let heads = env.store.read_run(id).await?;
    let Some(RunHead { head: root, facts: Some(facts), .. }) = heads.first().cloned() else {
        return Ok(SweepOutcome::Done);
    };
    let stops = root.phase == RunPhase::Cancelling;
    let asleep = when == SweepCondition::Due && root.due.is_some_and(|due| due > env.now());
    if root.phase == RunPhase::Closed || (asleep && !stops) {
        return Ok(SweepOutcome::Done);
    }
    let run = Run::of(env, id, facts).await?;
    let view = RunView::whole(run.graph(), head::heads(heads));
    let open = in_flight(run.graph(), &view);
    let clusters = clusters(env, &run, &open);
    if place.acquire_clusters(env, clusters.clone()).await == ClusterAdmission::Delayed {
        return Ok(SweepOutcome::Changed);
    }
    if place.is_out_of_time(env) {
        let waits = match open.iter().all(|(unit, _)| run.is_relayed(*unit)) {
            true => earliest_retry(env, &clusters),
            false => None,
        };
        return defer(env, id, &root, waits, when).await;
    }
    if stops {
        if let Some(work) = cancel::finish_cancel(env, &run, &view).await? {
            drive(env, work).await?;
        }
        return Ok(SweepOutcome::Done);
    }
    let memory = InvocationCache::default();
    let epoch = head::epoch(&view);
    if open.is_empty() {
        drive(env, Continuation { run, epoch, ready: Vec::new(), outcome: Some(outcome(&view)), cache: memory })
            .await?;
        return Ok(SweepOutcome::Done);
    }
    let units: Vec<Unit> = open.iter().map(|(unit, _)| *unit).collect();
    let records = records::read_open(env, &run, &units).await?;
    let now = env.now();
    let mut look = RunSweep::new(now, when, now.plus(interval(env, &run, &view)));
    let mut progress = progress::RunProgress::default();
    for (unit, attempt) in open {
        let this = AttemptRef { unit, attempt, epoch };
        if let Some(result) = look.classify(env, &run, this, &records) {
            // Recorded, and its writer died before the head knew.
            merge(&mut progress, results::resume(env, &run, this, &result, &memory).await?);
        }
    }
    look.record_starts(env, &run).await?;
    merge(&mut progress, end_expired(env, &run, &memory, &mut look).await?);
    let behalf = SweepContext {
        unstarted: look.unstarted.clone(),
        next_sweep: now.plus(env.settings.first_sweep_delay),
        is_slice: false,
    };
    let mut ready = look.take_dispatches(env, &run);
    ready.append(&mut progress.ready);
    let wake =
        drive_for_sweep(env, Continuation { run, epoch, ready, outcome: progress.outcome, cache: memory }, &behalf)
            .await?;
    wake.into_iter().for_each(|at| look.sweep_by(at));
    reschedule(env, id, &root, look.next_sweep).await
}

fn merge(all: &mut progress::RunProgress, more: progress::RunProgress) {
    all.ready.extend(more.ready);
    all.outcome = all.outcome.or(more.outcome);
}

/// The clusters where units may be.
fn clusters(env: &Env, run: &Run, units: &[(Unit, Attempt)]) -> BTreeSet<String> {
    let relayed = units.iter().map(|(unit, _)| *unit);
    let relayed = relayed.filter(|&unit| run.is_relayed(unit));
    let named: BTreeSet<Option<&str>> = relayed.map(|unit| run.cluster(unit)).collect();
    named.into_iter().map(|cluster| guarded_relay::cluster_name(env, cluster)).collect()
}

/// Returns when the first of `clusters` is asked again; `None` if one of them may be asked now.
fn earliest_retry(env: &Env, clusters: &BTreeSet<String>) -> Option<Timestamp> {
    let times: Option<Vec<_>> =
        clusters.iter().map(|cluster| guarded_relay::circuit_open_until(env, cluster)).collect();
    times?.into_iter().min()
}

/// Leaves a run to a later look, because too little time is left to wait for its clusters. `asked`: nothing of the run can
/// be done before that.
async fn defer(
    env: &Env,
    id: &RunId,
    root: &HeadState,
    asked: Option<Timestamp>,
    when: SweepCondition,
) -> Result<SweepOutcome, FlowError> {
    let soonest = env.now().plus(BUSY_WAIT);
    let next = asked.map_or(soonest, |at| at.max(soonest));
    if when == SweepCondition::Always {
        // The look that is due then would take what a dead sender has left for what is under way.
        let wait = Duration::from_millis(next.since(env.now()).0).min(MAX_MESSAGE_DELAY);
        env.queue.send(QueueMessage::Recover(id.clone()), wait).await;
    }
    if root.due.is_none_or(|due| due > env.now()) {
        return Ok(SweepOutcome::Done);
    }
    reschedule(env, id, root, next).await
}

/// Looks at one try whose time may be up.
///
/// # Errors
/// The store's; the deadline is found when the run is due.
#[tracing::instrument(name = "look", skip_all, fields(run = %id))]
pub async fn sweep_unit(env: &Env, id: &RunId, unit: Unit, attempt: Attempt) -> Result<(), FlowError> {
    let Some(run) = Run::load(env, id).await? else { return Ok(()) };
    let view = run.read_view(env).await?;
    let running = view.root().is_some_and(|root| root.phase == RunPhase::Running);
    if !running || view.status(unit) != ebb_engine::UnitProgress::Open(attempt) {
        return Ok(());
    }
    let records = records::read_open(env, &run, &[unit]).await?;
    let epoch = head::epoch(&view);
    let memory = InvocationCache::default();
    let this = AttemptRef { unit, attempt, epoch };
    let mut look = RunSweep::new(env.now(), SweepCondition::Due, Timestamp(u64::MAX));
    let mut progress = match look.classify(env, &run, this, &records) {
        Some(result) => results::resume(env, &run, this, &result, &memory).await?,
        None => progress::RunProgress::default(),
    };
    look.record_starts(env, &run).await?;
    merge(&mut progress, end_expired(env, &run, &memory, &mut look).await?);
    let mut sends = look.take_dispatches(env, &run);
    if progress.ready.is_empty() && progress.outcome.is_none() && sends.is_empty() {
        // Woken too early, or its time was given to it later than when this was sent.
        if look.next_sweep < Timestamp(u64::MAX) && look.next_sweep > look.now {
            let wait = Duration::from_millis(look.next_sweep.since(look.now).0).min(MAX_MESSAGE_DELAY);
            env.queue.send(QueueMessage::unit(id, unit, attempt), wait).await;
        }
        return Ok(());
    }
    progress.ready.append(&mut sends);
    drive(env, Continuation::of(run, epoch, progress, memory)).await
}

/// Until when an open run may be left alone: no longer than the shortest time that any of its open units may take, so
/// that a unit which starts in between is found at its deadline or soon after.
fn interval(env: &Env, run: &Run, view: &RunView) -> Millis {
    let open = run.graph().units().filter(|&unit| !results::is_over(view, unit));
    let shortest = open.filter_map(|unit| run.unit(unit)).map(|unit| unit.timeout_ms).min();
    let shortest = Millis(shortest.unwrap_or(u64::MAX)).max(env.settings.first_sweep_delay);
    shortest.min(env.settings.max_sweep_interval)
}

/// Makes a run due at `next` that is due later. It changes only the due time, so that a run that is over may be closed.
async fn advance(env: &Env, id: &RunId, next: Timestamp) -> Result<(), FlowError> {
    if env.store.patch_run(id, &accept(RunEvent::SweepAdvanced { due: next })).await?.is_written() {
        wakeup::send_wakeup(env, id, next).await;
    }
    Ok(())
}

/// Makes the run due at `next`, unless its due time has changed since it was read.
async fn reschedule(env: &Env, id: &RunId, seen: &HeadState, next: Timestamp) -> Result<SweepOutcome, FlowError> {
    let Some(due) = seen.due else { return Ok(SweepOutcome::Done) };
    // A look takes its time.
    let next = next.max(env.now().plus(Millis(1)));
    let event = RunEvent::Rescheduled { seen: due, version: seen.version, next };
    match env.store.patch_run(id, &accept(event)).await? {
        PatchResult::Written(_) => wakeup::send_wakeup(env, id, next).await,
        // Written before, and its answer was lost.
        PatchResult::ConditionFailed(Some(image)) if image.head.due == Some(next) => {
            wakeup::send_wakeup(env, id, next).await
        }
        PatchResult::ConditionFailed(Some(image)) if image.head.due == Some(due) => {
            return Ok(SweepOutcome::WokenEarlier);
        }
        // Another look has put it off, and does not know of what this one has begun.
        PatchResult::ConditionFailed(Some(image)) if image.head.due > Some(next) => advance(env, id, next).await?,
        PatchResult::ConditionFailed(_) => {}
    }
    Ok(SweepOutcome::Done)
}
