//! A cancelled run: no new decision to start anything, what may run is killed and waited for, then teardown begins.
//!
//! An undo may begin only when every try that may have started is settled: its result is recorded, or nothing can run
//! under its name any more. Sends that were decided before the cancellation may arrive until
//! [`crate::env::Settings::landing`] after it.
//!
//! Queued work is removed before running work is killed: the place of a killed script goes to the next one in the queue.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_engine::follow::in_flight;
use ebb_engine::{Attempt, Change, Event, RunPhase, Shard, Timestamp, Unit, View, accept};
use ebb_spec::plan::Work as Kind;
use ebb_store::Patched;
use ebb_wire::callback::ReasonCode;
use ebb_wire::id::RunId;
use ebb_wire::record::Record;
use ebb_wire::relay::WorkState;
use futures::StreamExt as _;

use crate::breaker::Relays;
use crate::complete;
use crate::dispatch;
use crate::drive::Work;
use crate::env::Env;
use crate::error::FlowError;
use crate::finish;
use crate::outcome::Ended;
use crate::ports::{Message, Relay as _, RelayError};
use crate::records;
use crate::run::{self, Run};
use crate::sweep::BEGINS;
use crate::switch::{self, Rule};

/// Units of one cluster that are killed at a time, each with the tail of its log in memory.
const AT_ONCE: usize = 64;
/// Units of one cluster that are removed from its queue at a time: a few batches, with small answers.
const DEQUEUED_AT_ONCE: usize = 512;
/// While something of a cancelled run may still run, it is looked at this often at first, and never less often than
/// [`LOOK_AGAIN_MAX_MS`]: a cluster may be out of reach for days.
const LOOK_AGAIN_MS: u64 = 1_000;
const LOOK_AGAIN_MAX_MS: u64 = 60_000;

/// Stops a run: bumps the epoch of the root; [`settle`] sees to the other items. A run that is closed gets a new epoch
/// only, so that an invocation that saw it before does not open it again.
///
/// # Errors
/// The store's; safe to repeat, and has to be repeated until it succeeds.
pub async fn cancel(env: &Env, id: &RunId) -> Result<(), FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let Some(root) = env.store.read_root(id).await? else { return Ok(()) };
        let epoch = root.head.epoch;
        let event = match root.head.phase {
            RunPhase::Running => Event::Cancelled { shard: Shard::ROOT, epoch, now: env.now() },
            RunPhase::Closed if root.head.stopped.is_none() => Event::Outdated { epoch },
            RunPhase::Stopping | RunPhase::Closed => return Ok(()),
        };
        let mut patch = accept(event);
        if !switch::holds(Rule::CancelByEpoch) {
            patch.changes.retain(|change| !matches!(change, Change::SetEpoch(_)));
        }
        if let Patched::Written(_) = env.store.patch_run(id, &patch).await? {
            return Ok(());
        }
    }
    Err(FlowError::Contended(format!("run {id}")))
}

/// Looks at a run that is stopping. Gives what begins once it has settled; otherwise the run is due again soon.
///
/// # Errors
/// The store's.
pub async fn settle(env: &Env, run: &Run, view: &View) -> Result<Option<Work>, FlowError> {
    let Some(stopped) = stop_all(env, run, view).await? else {
        return again(env, run, env.now()).await;
    };
    // The items were read before some of them were stopped: what counts is their state from then on.
    let view = run.look(env).await?;
    let open = in_flight(run.graph(), &view);
    let units: Vec<Unit> = open.iter().map(|(unit, _)| *unit).collect();
    let mut found: BTreeMap<(Unit, Attempt), Record> = BTreeMap::new();
    if !units.is_empty() {
        found = records::of_open(env, run, &units).await?;
    }
    let has_result = |one: &(Unit, Attempt)| found.get(one).is_some_and(|record| record.result.is_some());
    let mut settled = true;
    let mut relayed: BTreeMap<Option<&str>, Vec<(Unit, Attempt)>> = BTreeMap::new();
    for (unit, attempt) in open.into_iter().filter(|one| !has_result(one)) {
        let Some(plan) = run.unit(unit) else { continue };
        match plan.work {
            Kind::Webhook(_) => {
                let accepted = found.get(&(unit, attempt)).and_then(|record| record.accepted);
                settled &= settle_webhook(env, run, (unit, attempt), accepted.is_some(), stopped).await?;
            }
            Kind::Pod(_) | Kind::Object(_) | Kind::Removal => {
                relayed.entry(run.cluster(unit)).or_default().push((unit, attempt));
            }
        }
    }
    // Each cluster by itself: one that does not answer holds up no other.
    let begun = env.now();
    let clusters = relayed.into_values().map(|units| settle_cluster(env, run, units, begun));
    for one in futures::future::join_all(clusters).await {
        settled &= one?;
    }
    let landed = env.now() >= stopped.plus(env.settings.landing);
    let settled = settled || !switch::holds(Rule::SettleBeforeUndo);
    let landed = landed || !switch::holds(Rule::WaitForLanding);
    if settled && landed {
        return finish::settled(env, run).await;
    }
    again(env, run, stopped).await
}

/// Makes a run that stops due again. Sends one hint for each time at which it is due: looks that happen at once must not
/// multiply the hints.
async fn again(env: &Env, run: &Run, stopped: Timestamp) -> Result<Option<Work>, FlowError> {
    let waited = env.now().since(stopped).0;
    let landing = stopped.plus(env.settings.landing).since(env.now()).0;
    let wait = (waited / 4).clamp(LOOK_AGAIN_MS, LOOK_AGAIN_MAX_MS);
    // Where only the landing time is left, its end is the next thing that happens.
    let wait = if landing > 0 { wait.min(landing) } else { wait };
    let now = env.now();
    let next = now.plus(ebb_engine::Millis(wait));
    let Some(root) = env.store.read_root(&run.id).await? else { return Ok(None) };
    let event = match root.head.due {
        // The write that made it due sent the hint.
        Some(due) if due > now && due <= next => return Ok(None),
        Some(seen) if seen <= now => Event::Rearmed { seen, version: root.head.version, next },
        _ => Event::Hastened { due: next },
    };
    match env.store.patch_run(&run.id, &accept(event)).await? {
        Patched::Written(_) => dispatch::hint(env, &run.id, next).await,
        // Written before, and its answer was lost.
        Patched::Refused(Some(image)) if image.head.due == Some(next) => {
            dispatch::hint(env, &run.id, next).await;
        }
        // Another look made the run due, or the run is closed.
        Patched::Refused(_) => {}
    }
    Ok(None)
}

/// Brings every item into the root's epoch. Gives since when all were, or `None` if some only are now.
async fn stop_all(env: &Env, run: &Run, view: &View) -> Result<Option<Timestamp>, FlowError> {
    let epoch = run::epoch(view);
    let Some(before) = epoch.0.checked_sub(1) else { return Ok(None) };
    let stopped = view.root().and_then(|root| root.stopped);
    if stopped.is_some() {
        return Ok(stopped);
    }
    let items = if switch::holds(Rule::StopEveryItem) { Shard::count(run.graph().len()) } else { 1 };
    for number in 1..items {
        let shard = Shard(number);
        let event = Event::Cancelled { shard, epoch: ebb_engine::Epoch(before), now: env.now() };
        // Refused: it is stopped already.
        env.store.patch_run(&run.id, &accept(event)).await?;
    }
    let now = env.now();
    env.store.patch_run(&run.id, &accept(Event::Stopped { now, epoch })).await?;
    Ok(Some(now))
}

/// Settles the last tries of units of one cluster that were open when the run was cancelled; earlier tries were settled
/// before these began. Gives whether all are.
async fn settle_cluster(
    env: &Env,
    run: &Run,
    units: Vec<(Unit, Attempt)>,
    begun: Timestamp,
) -> Result<bool, FlowError> {
    let (mut running, mut queue_is_empty) = (Vec::new(), true);
    if switch::holds(Rule::DequeueBeforeKill) {
        let each = units.into_iter().map(|one| async move {
            let stands =
                if is_over(env, begun) { AttemptStanding::Unsure } else { dequeue(env, run, one).await? };
            Ok::<_, FlowError>((one, stands))
        });
        let mut each = futures::stream::iter(each).buffer_unordered(DEQUEUED_AT_ONCE);
        while let Some(one) = each.next().await {
            match one? {
                (_, AttemptStanding::Settled) => {}
                (one, AttemptStanding::Runs) => running.push(one),
                (_, AttemptStanding::Unsure) => queue_is_empty = false,
            }
        }
    } else {
        running = units;
    }
    if !queue_is_empty {
        return Ok(false);
    }
    let each = running
        .into_iter()
        .map(|one| async move { Ok::<_, FlowError>(!is_over(env, begun) && kill(env, run, one).await?) });
    let mut each = futures::stream::iter(each).buffer_unordered(AT_ONCE);
    let mut settled = true;
    while let Some(one) = each.next().await {
        settled &= one?;
    }
    Ok(settled)
}

/// Returns whether an invocation that began its requests then begins no more of them.
fn is_over(env: &Env, begun: Timestamp) -> bool {
    env.now().since(begun).0 >= BEGINS
}

/// Where a try of a cancelled run stands after it was to leave the queue.
enum AttemptStanding {
    /// Its result is recorded: nothing of it runs, now or later.
    Settled,
    /// It runs, or may have begun.
    Runs,
    /// It may still wait for its turn.
    Unsure,
}

async fn dequeue(
    env: &Env,
    run: &Run,
    (unit, attempt): (Unit, Attempt),
) -> Result<AttemptStanding, FlowError> {
    let name = dispatch::work_name(run, unit, attempt);
    match Relays(env).dequeue(run.cluster(unit), &name).await {
        Ok(WorkState::Running { .. } | WorkState::Unknown) => Ok(AttemptStanding::Runs),
        Ok(WorkState::Waiting { .. }) => Ok(AttemptStanding::Unsure),
        answer => match settle_one(env, run, (unit, attempt), answer).await? {
            true => Ok(AttemptStanding::Settled),
            false => Ok(AttemptStanding::Unsure),
        },
    }
}

/// Kills what runs of a try. Gives whether it is settled.
async fn kill(env: &Env, run: &Run, (unit, attempt): (Unit, Attempt)) -> Result<bool, FlowError> {
    if run.unit(unit).is_some_and(|plan| matches!(plan.work, Kind::Pod(_))) {
        keep_log(env, run, unit, attempt).await?;
    }
    let name = dispatch::work_name(run, unit, attempt);
    let answer = Relays(env).cancel(run.cluster(unit), &name, env.settings.grace).await;
    settle_one(env, run, (unit, attempt), answer).await
}

/// Records how a try ended by what its relay answers. Gives whether it has.
async fn settle_one(
    env: &Env,
    run: &Run,
    (unit, attempt): (Unit, Attempt),
    answer: Result<WorkState, RelayError>,
) -> Result<bool, FlowError> {
    let ended = match answer {
        Ok(WorkState::Tombstoned) => Ended::Cancelled("killed when the run was cancelled".to_owned()),
        Ok(WorkState::Ended(callback)) => match complete::ended(*callback) {
            Some(ended) => ended,
            None => return Ok(false),
        },
        Ok(WorkState::Running { .. } | WorkState::Waiting { .. } | WorkState::Unknown) => return Ok(false),
        Err(RelayError::Refused(reason)) => Ended::Cancelled(reason),
        Err(RelayError::Unreachable(reason) | RelayError::Busy(reason)) => {
            let unit = run.unit(unit).map_or("", |plan| plan.key.as_str());
            tracing::warn!(run = %run.id, unit, reason, "waiting for the relay to kill a unit");
            return Ok(false);
        }
    };
    put(env, run, unit, attempt, ended).await?;
    Ok(true)
}

/// Settles a try of a webhook once its time has passed: a request cannot be killed. What was accepted gets its time to
/// end, what was not has arrived or never will.
async fn settle_webhook(
    env: &Env,
    run: &Run,
    (unit, attempt): (Unit, Attempt),
    accepted: bool,
    stopped: Timestamp,
) -> Result<bool, FlowError> {
    let grace = ebb_engine::Millis(u64::try_from(env.settings.grace.as_millis()).unwrap_or(u64::MAX));
    let until = match accepted {
        true => stopped.plus(grace.max(env.settings.landing)),
        false => stopped.plus(env.settings.sending()),
    };
    if env.now() < until {
        return Ok(false);
    }
    let why = "the run was cancelled before an answer came".to_owned();
    put(env, run, unit, attempt, Ended::Cancelled(why)).await?;
    Ok(true)
}

/// Records a result that nothing of the run follows from. Outputs of a success go through the same checks as others.
async fn put(env: &Env, run: &Run, unit: Unit, attempt: Attempt, ended: Ended) -> Result<(), FlowError> {
    let Some(plan) = run.unit(unit) else { return Ok(()) };
    let ended = complete::checked(run, plan, ended);
    records::put(env, run, unit, attempt, &ended, None).await?;
    Ok(())
}

/// Keeps what a script has printed before it is killed: a relay knows nothing of it afterwards. Nothing waits for this.
async fn keep_log(env: &Env, run: &Run, unit: Unit, attempt: Attempt) -> Result<(), FlowError> {
    let name = dispatch::work_name(run, unit, attempt);
    // Not through the circuit: a log that hangs says nothing of the cluster, and must not keep the work from being killed.
    if let Ok(WorkState::Running { log, .. }) = env.relay.get(run.cluster(unit), &name).await
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
pub async fn halt(env: &Env, id: &RunId) -> Result<(), FlowError> {
    let Some((run, view)) = cancelled(env, id).await? else { return Ok(()) };
    if view.root().is_some_and(|root| root.phase == RunPhase::Stopping) {
        stop_all(env, &run, &view).await?;
    }
    Ok(())
}

/// Cancels a run and reads it. `None`: the run does not exist.
async fn cancelled(env: &Env, id: &RunId) -> Result<Option<(Run, View)>, FlowError> {
    cancel(env, id).await?;
    let Some(run) = Run::load(env, id).await? else { return Ok(None) };
    let view = run.look(env).await?;
    Ok(Some((run, view)))
}

/// Stops the run of a target that is stopping, and begins to settle it at once.
///
/// # Errors
/// The store's.
pub async fn stop(env: &Env, id: &RunId) -> Result<Option<Work>, FlowError> {
    let Some((run, view)) = cancelled(env, id).await? else { return Ok(None) };
    match view.root().map(|root| root.phase) {
        Some(RunPhase::Stopping) => settle(env, &run, &view).await,
        // It had ended by itself: the target only has to move on.
        Some(RunPhase::Closed) => finish::settled(env, &run).await,
        Some(RunPhase::Running) | None => {
            env.queue.send(Message::Run(id.clone()), Duration::ZERO).await;
            Ok(None)
        }
    }
}

/// A failure that says that the unit's time is up.
pub fn timed_out(seconds: u64) -> crate::outcome::Failure {
    crate::outcome::Failure::new(ReasonCode::Timeout, &format!("no result within {seconds} s"))
}
