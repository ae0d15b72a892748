//! Cancels a run.
//!
//! 1. Set the next epoch. No further attempt starts.
//! 2. Remove queued tasks, then stop running tasks. The order matters, because the slot of a stopped task goes to a
//!    queued one (rule DequeueBeforeKill).
//! 3. When each attempt that may have started has a result, or can no longer run, end the run. Teardown begins.
//!
//! Requests that were sent before the cancel can arrive until [`crate::env::DeploymentSettings::max_in_flight`] after
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_documents::plan::{Action, UnitPlan};
use ebb_engine::{Attempt, AttemptRef, HeadState, Millis, RunEvent, RunPhase, Timestamp, Unit, accept, in_flight};
use ebb_protocol::{AttemptOutcome, AttemptRecord, AttemptResult, RunId, RunningTask, TaskState, rfc3339};
use futures::{StreamExt as _, TryStreamExt as _};

use crate::advance::{Continuation, transition};
use crate::guarded_relay::cluster_name;
use crate::run::records::{self, OpenRecords};
use crate::run::request::describe;
use crate::run::{AttemptContext, AttemptEnd, InvocationCache, callback_result, slots, undo, wakeup};
use crate::{
    Env, FlowError, FlowResult, QueueMessage, RelayError, Run, START_WINDOW_MS, UnitCluster, guarded, loaded_run,
    permits,
};

/// Tasks of one cluster that are stopped at the same time, each with the tail of its log in memory.
const MAX_CONCURRENT_KILLS: usize = 64;
/// Tasks of one cluster that are dequeued at the same time: a few batches with small responses.
const MAX_CONCURRENT_DEQUEUES: usize = 512;
/// The wait before the next check of a cancelled run, between these bounds. A cluster may be unreachable for days.
const MIN_RECHECK_MS: u64 = 1_000;
const MAX_RECHECK_MS: u64 = 60_000;

/// Cancels a run by its epoch. A closed run only gets a new epoch, so that an invocation that read it before cannot reopen
/// it. Repeat the call until it succeeds.
pub async fn begin_cancel(env: &Env, id: &RunId) -> FlowResult<()> {
    let is_written = loaded_run::patch_head(env, id, |head| {
        let epoch = head.epoch;
        let event = match head.phase {
            RunPhase::Running => RunEvent::Cancelled { epoch, now: env.now() },
            RunPhase::Closed if head.stopped.is_none() => RunEvent::EpochFenced { epoch },
            RunPhase::Cancelling | RunPhase::Closed => return None,
        };
        Some(accept(event))
    });
    is_written.await.map(drop)
}

/// Advances the cancel of a run with a head that was read after it. Returns the continuation after its end; otherwise the run
/// is due again soon.
pub async fn finish_cancel(env: &Env, run: &Run, head: &HeadState) -> FlowResult<Option<Continuation>> {
    let stopped = record_stop(env, run, head).await?;
    let open = in_flight(run.graph(), head);
    let cache = InvocationCache::default();
    let mut found = records::read_open(env, run, &open).await?;
    let mut has_waited = false;
    for &(unit, number) in &open {
        let context = AttemptContext::new(env, run, AttemptRef { unit, number, epoch: head.epoch }, &cache)?;
        has_waited |= end_wait(context, &found, stopped).await?;
    }
    if has_waited {
        found = records::read_open(env, run, &open).await?;
    }
    // Repeated requests of units that have ended can be in flight.
    let is_new = |unit: Unit| head.attempt(unit) == Attempt::FIRST || open.iter().any(|&(other, _)| other == unit);
    let is_untouched = head.done.is_empty() && head.failed.is_empty() && run.graph().units().all(is_new);
    let is_untouched = is_untouched && !open.is_empty();
    let has_ended = |at: &(Unit, Attempt)| found.get(at).is_some_and(|record| record.result.is_some());
    let made_nothing = is_untouched && open.iter().all(has_ended) && found.values().all(undo::made_nothing);
    let mut all_ended = true;
    let mut relayed: BTreeMap<UnitCluster<'_>, Vec<AttemptContext<'_>>> = BTreeMap::new();
    for &(unit, number) in &open {
        let record = found.get(&(unit, number));
        if record.is_some_and(|record| record.result.is_some()) {
            continue;
        }
        let context = AttemptContext::new(env, run, AttemptRef { unit, number, epoch: head.epoch }, &cache)?;
        if context.unit.action.is_relayed() {
            relayed.entry(run.cluster(unit)).or_default().push(context);
        } else {
            all_ended &= cancel_request(context, record, stopped).await?;
        }
    }
    // Clusters are independent, so an unreachable one does not delay the others.
    let begun = env.now();
    let clusters = relayed.into_values().map(|attempts| cancel_in_cluster(attempts, begun));
    for has_ended in futures::future::join_all(clusters).await {
        all_ended &= has_ended?;
    }
    let limit_passed = made_nothing || env.now() >= stopped.plus(env.settings.max_in_flight);
    if all_ended && limit_passed {
        return Box::pin(transition::end_cancelled_run(env, run)).await;
    }
    reschedule(env, run, stopped).await
}

/// Makes a cancelled run due again. Only the write that sets the time sends a message, so concurrent sweeps do not
/// multiply messages.
async fn reschedule(env: &Env, run: &Run, stopped: Timestamp) -> FlowResult<Option<Continuation>> {
    let waited = env.now().since(stopped).0;
    let until_limit = stopped.plus(env.settings.max_in_flight).since(env.now()).0;
    let wait = (waited / 4).clamp(MIN_RECHECK_MS, MAX_RECHECK_MS);
    // If only the in-flight limit remains, its end is the next event.
    let wait = if until_limit > 0 { wait.min(until_limit) } else { wait };
    let now = env.now();
    let next = now.plus(Millis(wait));
    let Some(present) = env.store.read_run(&run.id).await? else { return Ok(None) };
    let event = match present.head.due {
        // The write that set this time sent the message.
        Some(due) if due > now && due <= next => return Ok(None),
        Some(seen) if seen <= now => RunEvent::Rescheduled { seen, version: present.head.version, next },
        _ => RunEvent::WakeupAdvanced { due: next },
    };
    // The write is rejected if another sweep made the run due, or the run is closed.
    let _ = wakeup::set_due(env, &run.id, event, next).await?;
    Ok(None)
}

/// Returns a time at which the run certainly had the epoch of the cancel: after the write of the epoch, which `head` shows.
/// The first call records it.
async fn record_stop(env: &Env, run: &Run, head: &HeadState) -> FlowResult<Timestamp> {
    if let Some(stopped) = head.stopped {
        return Ok(stopped);
    }
    let now = env.now();
    env.store.patch_run(&run.id, &accept(RunEvent::Stopped { now, epoch: head.epoch })).await?;
    Ok(now)
}

/// Dequeues and stops the open attempts of one cluster. Their earlier attempts ended before these started. Returns true
/// if all have a result.
async fn cancel_in_cluster(attempts: Vec<AttemptContext<'_>>, begun: Timestamp) -> FlowResult<bool> {
    let each: Vec<_> = attempts
        .into_iter()
        .map(|context| async move {
            let standing =
                if is_spent(context.env, begun) { AttemptStanding::Unknown } else { dequeue(context).await? };
            Ok::<_, FlowError>((context, standing))
        })
        .collect();
    let mut open: Vec<(AttemptContext<'_>, AttemptStanding)> =
        futures::stream::iter(each).buffer_unordered(MAX_CONCURRENT_DEQUEUES).try_collect().await?;
    if open.iter().any(|(_, standing)| *standing == AttemptStanding::Unknown) {
        return Ok(false);
    }
    open.retain(|(_, standing)| *standing == AttemptStanding::Running);
    let each: Vec<_> = open
        .into_iter()
        .map(|(context, _)| async move { Ok::<_, FlowError>(!is_spent(context.env, begun) && kill(context).await?) })
        .collect();
    let ended: Vec<bool> = futures::stream::iter(each).buffer_unordered(MAX_CONCURRENT_KILLS).try_collect().await?;
    Ok(ended.into_iter().all(|has_ended| has_ended))
}

/// Returns true if an invocation must not start further requests.
fn is_spent(env: &Env, begun: Timestamp) -> bool {
    env.now().since(begun).0 >= START_WINDOW_MS
}

/// The state of an attempt after its removal from the queue.
#[derive(PartialEq)]
enum AttemptStanding {
    /// The result is recorded. No part of the attempt runs or will run.
    Ended,
    /// The attempt runs, or may have started.
    Running,
    /// The attempt may still be queued.
    Unknown,
}

async fn dequeue(context: AttemptContext<'_>) -> FlowResult<AttemptStanding> {
    let AttemptContext { env, run, attempt, .. } = context;
    let (cluster, task) = (run.cluster(attempt.unit), context.task());
    match guarded(env, cluster.name, env.relay.dequeue(cluster, &task)).await {
        Ok(TaskState::Running { .. } | TaskState::Unknown) => Ok(AttemptStanding::Running),
        Ok(TaskState::Queued { .. }) => Ok(AttemptStanding::Unknown),
        response => match record_cancelled(context, response).await? {
            true => Ok(AttemptStanding::Ended),
            false => Ok(AttemptStanding::Unknown),
        },
    }
}

/// Stops an attempt. Returns true if it has a result.
async fn kill(context: AttemptContext<'_>) -> FlowResult<bool> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    if matches!(unit.action, Action::Pod(_)) {
        save_log(context).await?;
    }
    let (cluster, task) = (run.cluster(attempt.unit), context.task());
    let response = guarded(env, cluster.name, env.relay.cancel(cluster, &task, env.settings.grace)).await;
    record_cancelled(context, response).await
}

/// Records the end of an attempt from the response of its relay. Returns true if it has ended.
async fn record_cancelled(context: AttemptContext<'_>, response: Result<TaskState, RelayError>) -> FlowResult<bool> {
    let end = match response {
        Ok(TaskState::Tombstoned) => AttemptEnd::Cancelled("stopped when the run was cancelled".to_owned()),
        Ok(TaskState::Ended(callback)) => match callback_result::relay_result(*callback) {
            Some(end) => end,
            None => return Ok(false),
        },
        Ok(TaskState::Running { .. } | TaskState::Queued { .. } | TaskState::Unknown) => return Ok(false),
        Err(RelayError::Refused(reason)) => AttemptEnd::Cancelled(reason),
        Err(RelayError::Unreachable(reason) | RelayError::Busy(reason)) => {
            let AttemptContext { run, unit, .. } = context;
            tracing::warn!(run = %run.id, unit = unit.key, reason, "waiting for the relay to stop a unit");
            return Ok(false);
        }
    };
    record_end(context, end).await?;
    Ok(true)
}

/// Ends an attempt that waits for a slot, or for its time after a failure, and returns true. Only a sweep starts it, and
/// records the start before the request. A start at the same time shows in the record.
async fn end_wait(context: AttemptContext<'_>, found: &OpenRecords, stopped: Timestamp) -> FlowResult<bool> {
    let AttemptContext { env, run, attempt: AttemptRef { unit, number, .. }, .. } = context;
    let awaited = records::awaited((unit, number), found).filter(|&(_, next)| next > stopped);
    let why = match (found.get(&(unit, number)), awaited) {
        _ if run.is_relayed(unit) => return Ok(false),
        (Some(record), _) if record.awaited_slot().is_some() => {
            "the run was cancelled before the unit got a slot".to_owned()
        }
        (None, Some((failure, next))) => {
            let after = failure.reason.as_ref().map(|reason| format!(" after \"{}\"", reason.message));
            let (next, after) = (rfc3339(next), after.unwrap_or_default());
            format!("the run was cancelled while the unit waited for its next attempt at {next}{after}")
        }
        _ => return Ok(false),
    };
    let (result, _) = records::build_result(context, &AttemptEnd::Skipped(why), None).await?;
    // The code tells this end from that of an attempt whose request may have been sent.
    let result = AttemptResult { outcome: AttemptOutcome::Cancelled, ..result };
    env.store.put_result(&run.id, unit, number, &result).await?;
    Ok(true)
}

/// Ends an attempt that no relay executes when its time has passed, because a request cannot be stopped. An accepted request gets
/// the grace period; any other one has arrived or never will. An attempt that only asks ends at once.
async fn cancel_request(
    context: AttemptContext<'_>,
    record: Option<&AttemptRecord>,
    stopped: Timestamp,
) -> FlowResult<bool> {
    let AttemptContext { env, unit, .. } = context;
    let (window, grace) = (env.settings.response_window(), Millis::from(env.settings.grace));
    let is_accepted = record.is_some_and(|record| record.accepted.is_some());
    let wait = if is_accepted { grace.max(env.settings.max_in_flight) } else { window };
    let why = match record {
        _ if env.now() >= stopped.plus(wait) => "the run was cancelled before a response arrived",
        Some(record) if only_asks(unit, record, (window, env.now())) => {
            "the run was cancelled while the unit waited for its next question"
        }
        _ => return Ok(false),
    };
    record_end(context, AttemptEnd::Cancelled(why.to_owned())).await?;
    Ok(true)
}

/// Returns true if an attempt of a webhook sends no more than questions, and none of them with a lease now: its request was
/// answered, or its response cannot arrive any more `window` after it was posted.
fn only_asks(unit: &UnitPlan, record: &AttemptRecord, (window, now): (Millis, Timestamp)) -> bool {
    let is_answered = record.wait.is_some() || describe::asks_first(record);
    let is_sent = is_answered || record.posted.is_some_and(|posted| posted.plus(window) <= now);
    let is_busy = record.accepted.is_some() || record.leased_until.is_some();
    matches!(unit.action, Action::Webhook(_)) && is_sent && !is_busy
}

/// Records a result that does not advance the run. Outputs are checked as usual.
async fn record_end(context: AttemptContext<'_>, end: AttemptEnd) -> FlowResult<()> {
    slots::release(context).await?;
    records::put(context, &callback_result::with_checked_outputs(context, end), None).await.map(drop)
}

/// Stores the log of a script before it is stopped, because the relay deletes it then.
async fn save_log(context: AttemptContext<'_>) -> FlowResult<()> {
    let AttemptContext { env, run, attempt: AttemptRef { unit, number, .. }, .. } = context;
    let cluster = run.cluster(unit);
    let Some(_permit) = permits::admit(env, &cluster_name(env, cluster.name)).await else { return Ok(()) };
    // This request does not use the circuit breaker: a slow log is not an outage, and must not delay the stop.
    if let Ok(TaskState::Running(RunningTask { log, .. })) = env.relay.get(cluster, &context.task()).await
        && !log.is_empty()
    {
        env.store.bucket.put_object(&records::log_key(run, unit, number), log.into_bytes()).await?;
    }
    Ok(())
}

/// Cancels the setup run of a stopping target. No unit of it starts after this. Repeat the call until it succeeds.
pub(crate) async fn stop_dispatch(env: &Env, id: &RunId) -> FlowResult<()> {
    begin_cancel(env, id).await?;
    let Some((run, head)) = Run::load_with_head(env, id).await? else { return Ok(()) };
    if head.phase == RunPhase::Cancelling {
        record_stop(env, &run, &head).await?;
    }
    Ok(())
}

/// Cancels the run of a stopping target, and stops its attempts.
pub(crate) async fn cancel_run(env: &Env, id: &RunId) -> FlowResult<Option<Continuation>> {
    begin_cancel(env, id).await?;
    let Some((run, head)) = Run::load_with_head(env, id).await? else { return Ok(None) };
    match head.phase {
        RunPhase::Cancelling => finish_cancel(env, &run, &head).await,
        // The run had ended by itself. Only its target has to move.
        RunPhase::Closed => Box::pin(transition::end_cancelled_run(env, &run)).await,
        RunPhase::Running => {
            env.queue.send(QueueMessage::Run(id.clone()), Duration::ZERO).await;
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record_rows;

    #[test]
    fn a_webhook_only_asks_after_its_request() {
        let action = serde_json::json!({"webhook": {"method": "POST", "url": {"literal": "https://api.example.org"}}});
        let webhook = UnitPlan { action: serde_json::from_value(action).unwrap(), ..UnitPlan::default() };
        for (record, expected) in record_rows::<bool>("attempts_that_only_ask") {
            let asks = |unit: &UnitPlan| only_asks(unit, &record, (Millis(10), Timestamp(20)));
            // A unit of InfraKit can send its request again.
            assert_eq!((asks(&webhook), asks(&UnitPlan::default())), (expected, false), "{record:?}");
        }
    }
}
