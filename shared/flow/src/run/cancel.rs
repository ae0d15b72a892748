//! A cancelled run: no new decision to start anything, what may run is killed and waited for, then teardown begins.
//!
//! An undo may begin only when every try that may have started is settled: its result is recorded, or nothing can run
//! under its name any more. Sends that were decided before the cancellation may arrive until
//! [`crate::env::DeploymentSettings::max_in_flight`] after it.
//!
//! Queued work is removed before running work is killed: the place of a killed script goes to the next one in the queue.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_documents::plan::Action as Kind;
use ebb_engine::follow::in_flight;
use ebb_engine::{Attempt, RunEvent, RunPhase, RunView, Shard, Timestamp, Unit, accept};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::id::RunId;
use ebb_protocol::record::AttemptRecord;
use ebb_protocol::relay::TaskState;
use ebb_store::PatchResult;
use futures::StreamExt as _;

use crate::env::Env;
use crate::error::FlowError;
use crate::guarded_relay::GuardedRelay;
use crate::ports::QueueMessage;
use crate::ports::RelayClient as _;
use crate::ports::RelayError;
use crate::run::attempt;
use crate::run::attempt_end::AttemptEnd;
use crate::run::callback_result;
use crate::run::head;
use crate::run::head::Run;
use crate::run::progress::Continuation;
use crate::run::records;
use crate::run::wakeup;
use crate::run::wakeup::START_WINDOW_MS;
use crate::target::transition;

/// Units of one cluster that are killed at a time, each with the tail of its log in memory.
const AT_ONCE: usize = 64;
/// Units of one cluster that are removed from its queue at a time: a few batches, with small answers.
const DEQUEUED_AT_ONCE: usize = 512;
/// While something of a cancelled run may still run, it is looked at this often at first, and never less often than
/// [`MAX_RECHECK_MS`]: a cluster may be out of reach for days.
const MIN_RECHECK_MS: u64 = 1_000;
const MAX_RECHECK_MS: u64 = 60_000;

/// Stops a run: bumps the epoch of the root; [`finish_cancel`] sees to the other items. A run that is closed gets a new epoch
/// only, so that an invocation that saw it before does not open it again.
///
/// # Errors
/// The store's; safe to repeat, and has to be repeated until it succeeds.
pub async fn begin_cancel(env: &Env, id: &RunId) -> Result<(), FlowError> {
    let is_written = head::patch_root(env, id, |root| {
        let epoch = root.epoch;
        let event = match root.phase {
            RunPhase::Running => RunEvent::Cancelled { shard: Shard::ROOT, epoch, now: env.now() },
            RunPhase::Closed if root.stopped.is_none() => RunEvent::EpochFenced { epoch },
            RunPhase::Cancelling | RunPhase::Closed => return None,
        };
        Some(accept(event))
    });
    is_written.await.map(drop)
}

/// Looks at a run that is being cancelled. Gives what begins once it has settled; otherwise the run is due again soon.
///
/// # Errors
/// The store's.
pub async fn finish_cancel(env: &Env, run: &Run, view: &RunView) -> Result<Option<Continuation>, FlowError> {
    let Some(stopped) = fence_items(env, run, view).await? else {
        return reschedule(env, run, env.now()).await;
    };
    // The items were read before some of them were stopped: what counts is their state from then on.
    let view = run.read_view(env).await?;
    let open = in_flight(run.graph(), &view);
    let units: Vec<Unit> = open.iter().map(|(unit, _)| *unit).collect();
    let mut found: BTreeMap<(Unit, Attempt), AttemptRecord> = BTreeMap::new();
    if !units.is_empty() {
        found = records::read_open(env, run, &units).await?;
    }
    let has_result = |one: &(Unit, Attempt)| found.get(one).is_some_and(|record| record.result.is_some());
    let mut settled = true;
    let mut relayed: BTreeMap<Option<&str>, Vec<(Unit, Attempt)>> = BTreeMap::new();
    for (unit, attempt) in open.into_iter().filter(|one| !has_result(one)) {
        let Some(plan) = run.unit(unit) else { continue };
        match plan.action {
            Kind::Webhook(_) => {
                let accepted = found.get(&(unit, attempt)).and_then(|record| record.accepted);
                settled &= cancel_webhook(env, run, (unit, attempt), accepted.is_some(), stopped).await?;
            }
            Kind::Pod(_) | Kind::Object(_) | Kind::Removal => {
                relayed.entry(run.cluster(unit)).or_default().push((unit, attempt));
            }
        }
    }
    // Each cluster by itself: one that does not answer holds up no other.
    let begun = env.now();
    let clusters = relayed.into_values().map(|units| cancel_in_cluster(env, run, units, begun));
    for one in futures::future::join_all(clusters).await {
        settled &= one?;
    }
    let landed = env.now() >= stopped.plus(env.settings.max_in_flight);
    if settled && landed {
        return transition::end_cancelled_run(env, run).await;
    }
    reschedule(env, run, stopped).await
}

/// Makes a run that stops due again. Sends one hint for each time at which it is due: looks that happen at once must not
/// multiply the hints.
async fn reschedule(env: &Env, run: &Run, stopped: Timestamp) -> Result<Option<Continuation>, FlowError> {
    let waited = env.now().since(stopped).0;
    let landing = stopped.plus(env.settings.max_in_flight).since(env.now()).0;
    let wait = (waited / 4).clamp(MIN_RECHECK_MS, MAX_RECHECK_MS);
    // Where only the landing time is left, its end is the next thing that happens.
    let wait = if landing > 0 { wait.min(landing) } else { wait };
    let now = env.now();
    let next = now.plus(ebb_engine::Millis(wait));
    let Some(root) = env.store.read_root(&run.id).await? else { return Ok(None) };
    let event = match root.head.due {
        // The write that made it due sent the hint.
        Some(due) if due > now && due <= next => return Ok(None),
        Some(seen) if seen <= now => RunEvent::Rescheduled { seen, version: root.head.version, next },
        _ => RunEvent::WakeupAdvanced { due: next },
    };
    match env.store.patch_run(&run.id, &accept(event)).await? {
        PatchResult::Written(_) => wakeup::send_wakeup(env, &run.id, next).await,
        // Written before, and its answer was lost.
        PatchResult::ConditionFailed(Some(image)) if image.head.due == Some(next) => {
            wakeup::send_wakeup(env, &run.id, next).await;
        }
        // Another look made the run due, or the run is closed.
        PatchResult::ConditionFailed(_) => {}
    }
    Ok(None)
}

/// Brings every item into the root's epoch. Gives since when all were, or `None` if some only are now.
async fn fence_items(env: &Env, run: &Run, view: &RunView) -> Result<Option<Timestamp>, FlowError> {
    let epoch = head::epoch(view);
    let Some(before) = epoch.0.checked_sub(1) else { return Ok(None) };
    let stopped = view.root().and_then(|root| root.stopped);
    if stopped.is_some() {
        return Ok(stopped);
    }
    for number in 1..Shard::count(run.graph().len()) {
        let shard = Shard(number);
        let event = RunEvent::Cancelled { shard, epoch: ebb_engine::Epoch(before), now: env.now() };
        // Refused: it is stopped already.
        env.store.patch_run(&run.id, &accept(event)).await?;
    }
    let now = env.now();
    env.store.patch_run(&run.id, &accept(RunEvent::Stopped { now, epoch })).await?;
    Ok(Some(now))
}

/// Settles the last tries of units of one cluster that were open when the run was cancelled; earlier tries were settled
/// before these began. Gives whether all are.
async fn cancel_in_cluster(
    env: &Env,
    run: &Run,
    units: Vec<(Unit, Attempt)>,
    begun: Timestamp,
) -> Result<bool, FlowError> {
    let (mut running, mut queue_is_empty) = (Vec::new(), true);
    let each = units.into_iter().map(|one| async move {
        let stands = if is_spent(env, begun) { AttemptStanding::Unknown } else { dequeue(env, run, one).await? };
        Ok::<_, FlowError>((one, stands))
    });
    let mut each = futures::stream::iter(each).buffer_unordered(DEQUEUED_AT_ONCE);
    while let Some(one) = each.next().await {
        match one? {
            (_, AttemptStanding::Ended) => {}
            (one, AttemptStanding::Running) => running.push(one),
            (_, AttemptStanding::Unknown) => queue_is_empty = false,
        }
    }
    if !queue_is_empty {
        return Ok(false);
    }
    let each = running
        .into_iter()
        .map(|one| async move { Ok::<_, FlowError>(!is_spent(env, begun) && kill(env, run, one).await?) });
    let mut each = futures::stream::iter(each).buffer_unordered(AT_ONCE);
    let mut settled = true;
    while let Some(one) = each.next().await {
        settled &= one?;
    }
    Ok(settled)
}

/// Returns whether an invocation that began its requests then begins no more of them.
fn is_spent(env: &Env, begun: Timestamp) -> bool {
    env.now().since(begun).0 >= START_WINDOW_MS
}

/// Where a try of a cancelled run stands after it was to leave the queue.
enum AttemptStanding {
    /// Its result is recorded: nothing of it runs, now or later.
    Ended,
    /// It runs, or may have begun.
    Running,
    /// It may still wait for its turn.
    Unknown,
}

async fn dequeue(env: &Env, run: &Run, (unit, attempt): (Unit, Attempt)) -> Result<AttemptStanding, FlowError> {
    let name = attempt::task_id(run, unit, attempt);
    match GuardedRelay(env).dequeue(run.cluster(unit), &name).await {
        Ok(TaskState::Running { .. } | TaskState::Unknown) => Ok(AttemptStanding::Running),
        Ok(TaskState::Queued { .. }) => Ok(AttemptStanding::Unknown),
        answer => match record_cancelled(env, run, (unit, attempt), answer).await? {
            true => Ok(AttemptStanding::Ended),
            false => Ok(AttemptStanding::Unknown),
        },
    }
}

/// Kills what runs of a try. Gives whether it is settled.
async fn kill(env: &Env, run: &Run, (unit, attempt): (Unit, Attempt)) -> Result<bool, FlowError> {
    if run.unit(unit).is_some_and(|plan| matches!(plan.action, Kind::Pod(_))) {
        save_log(env, run, unit, attempt).await?;
    }
    let name = attempt::task_id(run, unit, attempt);
    let answer = GuardedRelay(env).cancel(run.cluster(unit), &name, env.settings.grace).await;
    record_cancelled(env, run, (unit, attempt), answer).await
}

/// Records how a try ended by what its relay answers. Gives whether it has.
async fn record_cancelled(
    env: &Env,
    run: &Run,
    (unit, attempt): (Unit, Attempt),
    answer: Result<TaskState, RelayError>,
) -> Result<bool, FlowError> {
    let ended = match answer {
        Ok(TaskState::Tombstoned) => AttemptEnd::Cancelled("killed when the run was cancelled".to_owned()),
        Ok(TaskState::Ended(callback)) => match callback_result::relay_result(*callback) {
            Some(ended) => ended,
            None => return Ok(false),
        },
        Ok(TaskState::Running { .. } | TaskState::Queued { .. } | TaskState::Unknown) => return Ok(false),
        Err(RelayError::Refused(reason)) => AttemptEnd::Cancelled(reason),
        Err(RelayError::Unreachable(reason) | RelayError::Busy(reason)) => {
            let unit = run.unit(unit).map_or("", |plan| plan.key.as_str());
            tracing::warn!(run = %run.id, unit, reason, "waiting for the relay to kill a unit");
            return Ok(false);
        }
    };
    record_end(env, run, unit, attempt, ended).await?;
    Ok(true)
}

/// Settles a try of a webhook once its time has passed: a request cannot be killed. What was accepted gets its time to
/// end, what was not has arrived or never will.
async fn cancel_webhook(
    env: &Env,
    run: &Run,
    (unit, attempt): (Unit, Attempt),
    accepted: bool,
    stopped: Timestamp,
) -> Result<bool, FlowError> {
    let grace = ebb_engine::Millis(u64::try_from(env.settings.grace.as_millis()).unwrap_or(u64::MAX));
    let until = match accepted {
        true => stopped.plus(grace.max(env.settings.max_in_flight)),
        false => stopped.plus(env.settings.response_window()),
    };
    if env.now() < until {
        return Ok(false);
    }
    let why = "the run was cancelled before an answer came".to_owned();
    record_end(env, run, unit, attempt, AttemptEnd::Cancelled(why)).await?;
    Ok(true)
}

/// Records a result that nothing of the run follows from. Outputs of a success go through the same checks as others.
async fn record_end(env: &Env, run: &Run, unit: Unit, attempt: Attempt, ended: AttemptEnd) -> Result<(), FlowError> {
    let Some(plan) = run.unit(unit) else { return Ok(()) };
    let ended = callback_result::with_checked_outputs(run, plan, ended);
    records::put(env, run, unit, attempt, &ended, None).await?;
    Ok(())
}

/// Keeps what a script has printed before it is killed: a relay knows nothing of it afterwards. Nothing waits for this.
async fn save_log(env: &Env, run: &Run, unit: Unit, attempt: Attempt) -> Result<(), FlowError> {
    let name = attempt::task_id(run, unit, attempt);
    // Not through the circuit: a log that hangs says nothing of the cluster, and must not keep the work from being killed.
    if let Ok(TaskState::Running { log, .. }) = env.relay.get(run.cluster(unit), &name).await
        && !log.is_empty()
    {
        env.store.put_object(&records::log_key(run, unit, attempt), log.into_bytes()).await?;
    }
    Ok(())
}

/// Stops the run of a target that is stopping: no unit of it starts after this.
///
/// # Errors
/// The store's; has to be repeated until it succeeds.
pub async fn stop_dispatch(env: &Env, id: &RunId) -> Result<(), FlowError> {
    let Some((run, view)) = cancel_and_read(env, id).await? else { return Ok(()) };
    if view.root().is_some_and(|root| root.phase == RunPhase::Cancelling) {
        fence_items(env, &run, &view).await?;
    }
    Ok(())
}

/// Cancels a run and reads it. `None`: the run does not exist.
async fn cancel_and_read(env: &Env, id: &RunId) -> Result<Option<(Run, RunView)>, FlowError> {
    begin_cancel(env, id).await?;
    let Some(run) = Run::load(env, id).await? else { return Ok(None) };
    let view = run.read_view(env).await?;
    Ok(Some((run, view)))
}

/// Stops the run of a target that is stopping, and begins to settle it at once.
///
/// # Errors
/// The store's.
pub async fn cancel_run(env: &Env, id: &RunId) -> Result<Option<Continuation>, FlowError> {
    let Some((run, view)) = cancel_and_read(env, id).await? else { return Ok(None) };
    match view.root().map(|root| root.phase) {
        Some(RunPhase::Cancelling) => finish_cancel(env, &run, &view).await,
        // It had ended by itself: the target only has to move on.
        Some(RunPhase::Closed) => transition::end_cancelled_run(env, &run).await,
        Some(RunPhase::Running) | None => {
            env.queue.send(QueueMessage::Run(id.clone()), Duration::ZERO).await;
            Ok(None)
        }
    }
}

/// A failure that says that the unit's time is up.
pub fn timed_out(seconds: u64) -> crate::run::attempt_end::AttemptFailure {
    crate::run::attempt_end::AttemptFailure::new(ReasonCode::Timeout, &format!("no result within {seconds} s"))
}
