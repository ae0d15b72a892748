//! Sweeps one run.
//!
//! 1. Read the run. Wait for a permit if its clusters have no recent response.
//! 2. Apply recorded results that the head item lacks, end expired attempts, and dispatch the others that are due.
//! 3. Make the run due again, after all of this (rule RescheduleAfterActing).

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_engine::follow::{in_flight, outcome};
use ebb_engine::{Attempt, AttemptRef, HeadState, Millis, RunEvent, RunPhase, Timestamp, Unit, UnitProgress, accept};
use ebb_protocol::{AttemptRecord, RunId};
use ebb_store::{DueItem, RunHead};

use super::attempts::{RunSweep, SweepCondition, end_expired};
use super::postpone::{postpone, record_end};
use crate::advance::dispatch_all::{SweepContext, drive, drive_until_spent};
use crate::advance::transition::{self, NotificationSender};
use crate::advance::{Continuation, RunEnd, apply_result, cancel, progress};
use crate::run::wakeup::{self, MAX_MESSAGE_DELAY};
use crate::run::{AttemptContext, InvocationCache, records};
use crate::{Env, FlowResult, QueueMessage, Run, SweepPermit, guarded_relay};

/// Maximum passes over a run that changes meanwhile.
const MAX_PASSES: usize = 4;
/// The wait of a run that changes continuously, or whose clusters were not admitted in time.
const BUSY_WAIT: Millis = Millis(5_000);

/// Sweeps one run. A message that arrives before the run is due has no effect, because each wake-up has its own
/// message. After an error, the run is due again later.
#[tracing::instrument(name = "sweep", skip_all, fields(run = %id))]
pub(super) async fn sweep_run(
    env: &Env,
    id: &RunId,
    condition: SweepCondition,
    permit: &SweepPermit,
) -> FlowResult<()> {
    let due = DueItem::Run(id.clone());
    let mut condition = condition;
    for _ in 0..MAX_PASSES {
        match Box::pin(sweep_once(env, id, condition, permit)).await {
            Ok(SweepOutcome::Done) => return record_end(env, &due, Ok(())).await,
            Ok(SweepOutcome::Changed) => {}
            // This process may have requests in progress now.
            Ok(SweepOutcome::WokenEarlier) => condition = SweepCondition::Due,
            Err(error) => return record_end(env, &due, Err(error)).await,
        }
    }
    postpone(env, &due, BUSY_WAIT).await;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepOutcome {
    /// The run waits, has ended, or is handled by another invocation.
    Done,
    /// The run may have changed since it was read. Nothing was done.
    Changed,
    /// Another write made the run due earlier.
    WokenEarlier,
}

async fn sweep_once(
    env: &Env,
    id: &RunId,
    condition: SweepCondition,
    permit: &SweepPermit,
) -> FlowResult<SweepOutcome> {
    let Some(RunHead { head, facts }) = env.store.read_run(id).await? else { return Ok(SweepOutcome::Done) };
    let stops = head.phase == RunPhase::Cancelling;
    let asleep = condition == SweepCondition::Due && head.due.is_some_and(|due| due > env.now());
    if head.phase == RunPhase::Closed || (asleep && !stops) {
        return Ok(SweepOutcome::Done);
    }
    let Some(run) = Run::with_units(env, id, facts).await? else {
        transition::close(env, id).await?;
        return Ok(SweepOutcome::Done);
    };
    let open = in_flight(run.graph(), &head);
    let clusters = clusters(env, &run, &open);
    if permit.acquire_clusters(env, clusters.clone()).await {
        return Ok(SweepOutcome::Changed);
    }
    if permit.is_out_of_time(env) {
        let not_before = match open.iter().all(|(unit, _)| run.is_relayed(*unit)) {
            true => earliest_retry(env, &clusters),
            false => None,
        };
        return defer(env, id, &head, not_before, condition).await;
    }
    if stops {
        drive(env, cancel::finish_cancel(env, &run, &head).await?).await?;
        return Ok(SweepOutcome::Done);
    }
    let cache = InvocationCache::default();
    let epoch = head.epoch;
    if open.is_empty() {
        let end = RunEnd { outcome: Some(outcome(run.graph(), &head)), head: None };
        drive(env, Continuation { run, epoch, ready: Vec::new(), end: Some(end), target: None, cache }).await?;
        return Ok(SweepOutcome::Done);
    }
    let records = records::read_open(env, &run, &open).await?;
    let now = env.now();
    let mut sweep = RunSweep::new(now, condition, now.plus(interval(env, &run, &head)));
    let mut progress = progress::RunProgress::default();
    for (unit, attempt) in open {
        let attempt = AttemptRef { unit, number: attempt, epoch };
        if let Some(result) = sweep.classify(env, &run, attempt, &records) {
            // The result was recorded, and its writer ended before it updated the head.
            let context = AttemptContext::new(env, &run, attempt, &cache)?;
            progress.merge(apply_result::resume(context, &result).await?);
        }
    }
    sweep.record_starts(env, &run).await?;
    progress.merge(end_expired(env, &run, &cache, &mut sweep).await?);
    let mut ready = sweep.take_dispatches(env, &run);
    let (unstarted, next_sweep) = (sweep.unstarted.clone(), now.plus(env.settings.first_sweep_delay));
    let own = ready.iter().copied().collect();
    let context = SweepContext { unstarted, own, next_sweep, is_slice: false };
    ready.append(&mut progress.ready);
    let continuation = Continuation { run, epoch, ready, end: progress.end, target: None, cache };
    let wakeup = drive_until_spent(env, continuation, Some(&context), NotificationSender::Queue).await?;
    wakeup.into_iter().for_each(|at| sweep.sweep_by(at));
    reschedule(env, id, &head, sweep.next_sweep).await
}

/// Returns the clusters of tasks among `units`.
fn clusters(env: &Env, run: &Run, units: &[(Unit, Attempt)]) -> BTreeSet<String> {
    let relayed = units.iter().map(|(unit, _)| *unit).filter(|&unit| run.is_relayed(unit));
    let named: BTreeSet<Option<&str>> = relayed.map(|unit| run.cluster(unit).name).collect();
    named.into_iter().map(|cluster| guarded_relay::cluster_name(env, cluster)).collect()
}

/// Returns the time of the next request to one of `clusters`, or `None` if one of them is available now.
fn earliest_retry(env: &Env, clusters: &BTreeSet<String>) -> Option<Timestamp> {
    let times: Option<Vec<_>> =
        clusters.iter().map(|cluster| guarded_relay::circuit_open_until(env, cluster)).collect();
    times?.into_iter().min()
}

/// Postpones a run because too little time remains to wait for its clusters. `not_before` is the time of the next
/// request to them.
async fn defer(
    env: &Env,
    id: &RunId,
    head: &HeadState,
    not_before: Option<Timestamp>,
    condition: SweepCondition,
) -> FlowResult<SweepOutcome> {
    let soonest = env.now().plus(BUSY_WAIT);
    let next = not_before.map_or(soonest, |at| at.max(soonest));
    if condition == SweepCondition::Always {
        // A sweep of a due run would treat the attempts of the interrupted dispatcher as in progress, so the condition
        // is repeated.
        let wait = Duration::from_millis(next.since(env.now()).0).min(MAX_MESSAGE_DELAY);
        env.queue.send(QueueMessage::Recover(id.clone()), wait).await;
    }
    if head.due.is_none_or(|due| due > env.now()) {
        return Ok(SweepOutcome::Done);
    }
    reschedule(env, id, head, next).await
}

/// Checks the deadline of one attempt. After an error, the next sweep of the run finds the deadline.
#[tracing::instrument(name = "sweep", skip_all, fields(run = %id))]
pub(super) async fn sweep_unit(env: &Env, id: &RunId, unit: Unit, number: Attempt) -> FlowResult<()> {
    let Some((run, head)) = load_open(env, id, unit, number).await? else { return Ok(()) };
    let records = records::read_open(env, &run, &[(unit, number)]).await?;
    let epoch = head.epoch;
    let cache = InvocationCache::default();
    let attempt = AttemptRef { unit, number, epoch };
    let mut sweep = RunSweep::new(env.now(), SweepCondition::Due, Timestamp(u64::MAX));
    let mut progress = match sweep.classify(env, &run, attempt, &records) {
        Some(result) => apply_result::resume(AttemptContext::new(env, &run, attempt, &cache)?, &result).await?,
        None => progress::RunProgress::default(),
    };
    sweep.record_starts(env, &run).await?;
    progress.merge(end_expired(env, &run, &cache, &mut sweep).await?);
    let mut dispatches = sweep.take_dispatches(env, &run);
    if progress.ready.is_empty() && progress.end.is_none() && dispatches.is_empty() {
        // The message is early, or the deadline was set after it was sent.
        if sweep.next_sweep < Timestamp(u64::MAX) && sweep.next_sweep > sweep.now {
            let wait = Duration::from_millis(sweep.next_sweep.since(sweep.now).0).min(MAX_MESSAGE_DELAY);
            env.queue.send(QueueMessage::Unit { run: id.clone(), unit, attempt: number }, wait).await;
        }
        return Ok(());
    }
    progress.ready.append(&mut dispatches);
    drive(env, Continuation::of(run, epoch, progress, cache)).await
}

/// Asks for the state for which an attempt waits, unless the attempt has ended or a sweep has asked since. The message was
/// sent before the sweep at `sweep`.
pub(super) async fn poll_unit(
    env: &Env,
    id: &RunId,
    (unit, number): (Unit, Attempt),
    sweep: Timestamp,
) -> FlowResult<()> {
    let Some((run, head)) = load_open(env, id, unit, number).await? else { return Ok(()) };
    let records = env.store.read_records(id, &[unit]).await?;
    let is_next = |record: &AttemptRecord| {
        record.wait.is_some() && record.result.is_none() && record.next_dispatch == Some(sweep)
    };
    if records.iter().any(|(_, of, record)| *of == number && is_next(record)) {
        drive(env, Continuation::dispatching(run, head.epoch, vec![(unit, number)])).await?;
    }
    Ok(())
}

/// Returns a run with its head, if an attempt of it is in progress.
async fn load_open(env: &Env, id: &RunId, unit: Unit, number: Attempt) -> FlowResult<Option<(Run, HeadState)>> {
    let is_open = |head: &HeadState| head.phase == RunPhase::Running && head.status(unit) == UnitProgress::Open(number);
    Ok(Run::load_with_head(env, id).await?.filter(|(_, head)| is_open(head)))
}

/// Returns the maximum time until the next sweep of an open run: the shortest timeout of its open units, so that a unit
/// which starts in between is found soon after its deadline.
fn interval(env: &Env, run: &Run, head: &HeadState) -> Millis {
    let open = run.graph().units().filter(|&unit| matches!(head.status(unit), UnitProgress::Open(_)));
    let shortest = open.filter_map(|unit| run.unit(unit)).map(|unit| unit.timeout_ms).min();
    Millis(shortest.unwrap_or(u64::MAX)).max(env.settings.first_sweep_delay).min(env.settings.max_sweep_interval)
}

/// Makes a run due at `next` if it is due later. Changes the due time only, so that a concurrent close succeeds.
async fn advance(env: &Env, id: &RunId, next: Timestamp) -> FlowResult<()> {
    if env.store.patch_run(id, &accept(RunEvent::SweepAdvanced { due: next })).await?.is_written() {
        wakeup::send_wakeup(env, id, next).await;
    }
    Ok(())
}

/// Makes the run due at `next`, unless its due time or version has changed since it was read (rule VersionGuardsReschedule).
async fn reschedule(env: &Env, id: &RunId, seen: &HeadState, next: Timestamp) -> FlowResult<SweepOutcome> {
    let Some(due) = seen.due else { return Ok(SweepOutcome::Done) };
    // The sweep itself may have taken longer.
    let next = next.max(env.now().plus(Millis(1)));
    let event = RunEvent::Rescheduled { seen: due, version: seen.version, next };
    match wakeup::set_due(env, id, event, next).await? {
        Err(Some(image)) if image.head.due == Some(due) => return Ok(SweepOutcome::WokenEarlier),
        // Another sweep postponed the run without reading the attempts that this one started.
        Err(Some(image)) if image.head.due > Some(next) => advance(env, id, next).await?,
        Ok(()) | Err(_) => {}
    }
    Ok(SweepOutcome::Done)
}
