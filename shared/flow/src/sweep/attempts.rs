//! Classifies the open attempts of a run, and records, repeats or ends them.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::{Action, UnitPlan};
use ebb_engine::{Attempt, AttemptRef, Millis, Timestamp, Unit, attempts_used};
use ebb_protocol::{AttemptOutcome, AttemptRecord, AttemptResult, TaskState};
use ebb_store::AttemptUpdate;
use futures::StreamExt as _;

use crate::advance::{apply_result, progress};
use crate::run::records::{self, OpenRecords};
use crate::run::{AttemptContext, AttemptEnd, InvocationCache, callback_result, lease, timeout, undo};
use crate::{Env, FlowResult, RelayError, Run, START_WINDOW_MS, guarded, guarded_relay, telemetry};

/// Attempts of one run that are ended at their relays at the same time.
const MAX_ENDS: usize = 16;
/// Starts and leases that are recorded at the same time.
const MAX_WRITES: usize = 32;
/// Delay after the deadline of a task. The relay enforces the deadline. `sweep` acts if the relay does not.
const RELAY_GRACE_MS: u64 = 15_000;
/// The wait before the next request to end an expired task: a quarter of the time since its deadline, between these
/// bounds.
const MIN_RETRY_MS: u64 = 15_000;
const MAX_RETRY_MS: u64 = 5 * 60 * 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SweepCondition {
    Due,
    /// Always, because its dispatcher may have ended early, and this process has no request in progress.
    Always,
}

pub(super) struct RunSweep {
    pub(super) now: Timestamp,
    when: SweepCondition,
    pub(super) next_sweep: Timestamp,
    /// Attempts to dispatch, with the time of their last request.
    dispatches: Vec<(u64, AttemptRef)>,
    pub(super) unstarted: BTreeSet<(Unit, Attempt)>,
    starts: Vec<AttemptStart>,
    /// Webhooks that may have been posted before.
    repeats: Vec<WebhookRepeat>,
    /// Attempts past their deadline, with the deadline.
    expired: Vec<(AttemptRef, Timestamp)>,
}

/// An attempt whose deadline counts from this sweep.
struct AttemptStart {
    attempt: AttemptRef,
    timeout: Millis,
    /// True if it sent a heartbeat.
    is_running: bool,
    /// True if only `sweep` dispatches it, or if another dispatch is harmless: of two for a resource of InfraKit, one
    /// records the intent.
    is_ours: bool,
}

/// A webhook attempt that has to be posted again, by one sweep at a time.
struct WebhookRepeat {
    attempt: AttemptRef,
    last_request: u64,
    seen: AttemptRecord,
}

impl RunSweep {
    pub(super) fn new(now: Timestamp, when: SweepCondition, next_sweep: Timestamp) -> Self {
        let (dispatches, starts, repeats, expired) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { now, when, next_sweep, dispatches, unstarted: BTreeSet::new(), starts, repeats, expired }
    }

    pub(super) fn sweep_by(&mut self, at: Timestamp) {
        self.next_sweep = self.next_sweep.min(at);
    }

    /// Classifies an attempt that may be in flight. Returns its recorded result, if its run has not applied it.
    pub(super) fn classify(
        &mut self,
        env: &Env,
        run: &Run,
        attempt: AttemptRef,
        records: &OpenRecords,
    ) -> Option<AttemptResult> {
        let unit = run.unit(attempt.unit)?;
        let record = records.get(&(attempt.unit, attempt.number)).cloned().unwrap_or_default();
        if let Some(result) = &record.result {
            return (result.outcome != AttemptOutcome::Cancelled).then(|| result.clone());
        }
        let retry_at = records::awaited((attempt.unit, attempt.number), records).map(|(_, at)| at);
        if let Some(until) = retry_at.filter(|&until| until > self.now) {
            self.sweep_by(until);
            return None;
        }
        let is_relayed = unit.action.is_relayed();
        let postponed = record.next_dispatch;
        let Some(begun) = records::started_at(&record) else {
            match postponed.filter(|&at| at > self.now) {
                Some(at) => self.sweep_by(at),
                None if is_relayed => {
                    // A request to a relay is harmless. The deadline counts from the start that the relay reports, also
                    // after a heartbeat: a sweep may come much later.
                    self.unstarted.insert((attempt.unit, attempt.number));
                    self.dispatches.push((record.next_dispatch.unwrap_or_default().0, attempt));
                }
                None => self.starts.push(AttemptStart {
                    attempt,
                    timeout: Millis(unit.timeout_ms),
                    is_running: record.heartbeat.is_some(),
                    is_ours: retry_at.is_some()
                        || postponed.is_some()
                        || is_reopened(unit, attempt, records)
                        || matches!(unit.action, Action::Infrakit(_) | Action::Destroy),
                }),
            }
            return None;
        };
        telemetry::attempt_started(&run.id, attempt, begun);
        let deadline = begun.plus(Millis(unit.timeout_ms));
        let deadline = if is_relayed { deadline.plus(Millis(RELAY_GRACE_MS)) } else { deadline };
        if deadline <= self.now {
            self.expired.push((attempt, deadline));
            return None;
        }
        self.sweep_by(deadline);
        // An attempt that was postponed before its start is not repeated.
        match postponed.filter(|&at| at > begun) {
            // The messages of an attempt that waits for a state are lost with the process. A question is harmless.
            Some(next_request)
                if record.wait.is_some() && (next_request <= self.now || self.when == SweepCondition::Always) =>
            {
                // The messages end before this time.
                if next_request > self.now {
                    self.sweep_by(next_request);
                }
                self.dispatches.push((next_request.0, attempt));
            }
            Some(next_request) if next_request > self.now => self.sweep_by(next_request),
            // An accepted request is not repeated, even if a repetition was planned before the acceptance. Its callback
            // or its deadline decides.
            next_request
                if record.accepted.is_some_and(|at| next_request.is_none_or(|next_request| next_request <= at)) => {}
            Some(next_request) => self.add_repeat(next_request.0, attempt, record, is_relayed),
            None if is_relayed || self.when == SweepCondition::Always => {
                self.add_repeat(u64::MAX, attempt, record, is_relayed);
            }
            None => {
                let response_due = begun.plus(env.settings.response_window());
                if response_due <= self.now {
                    self.add_repeat(begun.0, attempt, record, is_relayed);
                } else {
                    self.sweep_by(response_due);
                }
            }
        }
        None
    }

    /// Plans the repetition of a started attempt. Relays identify tasks by name, but a webhook needs a lease.
    fn add_repeat(&mut self, last_request: u64, attempt: AttemptRef, seen: AttemptRecord, is_relayed: bool) {
        match seen.leased_until.filter(|&until| until > self.now).filter(|_| self.when == SweepCondition::Due) {
            // A queued task was postponed until after its start. It has a slot now, so other attempts are sent first.
            _ if is_relayed => self.dispatches.push((u64::MAX, attempt)),
            Some(until) => self.sweep_by(until),
            None => self.repeats.push(WebhookRepeat { attempt, last_request, seen }),
        }
    }

    /// Records the starts of new attempts, and takes the leases of webhooks that are posted again.
    pub(super) async fn record_starts(&mut self, env: &Env, run: &Run) -> FlowResult<()> {
        let now = self.now;
        let starts = std::mem::take(&mut self.starts).into_iter().map(|start| async move {
            let AttemptRef { unit, number, .. } = start.attempt;
            (env.store.update_attempt(&run.id, unit, number, &AttemptUpdate::Started(now)).await, start)
        });
        let starts: Vec<_> = futures::stream::iter(starts).buffered(MAX_WRITES).collect().await;
        for (before, start) in starts {
            let before = before?;
            self.sweep_by(now.plus(start.timeout));
            // The record does not show whether the request was sent. It may be in progress, unless only `sweep`
            // dispatches the attempt.
            let first = before.started.is_none() && before.result.is_none();
            if start.is_running {
                continue;
            }
            if first && start.is_ours {
                self.unstarted.insert((start.attempt.unit, start.attempt.number));
                self.dispatches.push((0, start.attempt));
            } else if first && self.when == SweepCondition::Always {
                // The lease records that the interrupted dispatcher may have sent the request.
                self.repeats.push(WebhookRepeat { attempt: start.attempt, last_request: 0, seen: before });
            } else {
                self.sweep_by(now.plus(env.settings.response_window()));
            }
        }
        let leases = std::mem::take(&mut self.repeats)
            .into_iter()
            .map(|repeat| async move { (lease::lease(env, run, repeat.attempt, &repeat.seen).await, repeat) });
        let leases: Vec<_> = futures::stream::iter(leases).buffered(MAX_WRITES).collect().await;
        for (is_own, WebhookRepeat { attempt, last_request, .. }) in leases {
            match is_own? {
                true => self.dispatches.push((last_request, attempt)),
                false => self.sweep_by(now.plus(env.settings.response_window())),
            }
        }
        Ok(())
    }

    /// Returns the attempts to dispatch now, the longest-waiting first. Attempts of clusters with an open circuit wait.
    pub(super) fn take_dispatches(&mut self, env: &Env, run: &Run) -> Vec<(Unit, Attempt)> {
        let mut dispatches = std::mem::take(&mut self.dispatches);
        dispatches.sort_by_key(|(last_request, _)| *last_request);
        let mut open: BTreeMap<Option<&str>, Option<Timestamp>> = BTreeMap::new();
        let mut ready = Vec::new();
        for (_, AttemptRef { unit, number, .. }) in dispatches {
            let relayed = run.is_relayed(unit);
            let cluster = run.cluster(unit).name.filter(|_| relayed);
            let until = || guarded_relay::circuit_open_until(env, &guarded_relay::cluster_name(env, cluster));
            match relayed.then(|| *open.entry(cluster).or_insert_with(until)).flatten() {
                Some(until) => self.sweep_by(until),
                None => ready.push((unit, number)),
            }
        }
        ready
    }
}

/// Returns true if the attempt is the first one since its unit was reopened. The next attempt of an undo with remaining
/// results has such a number, too, but the invocation that recorded the previous one dispatches it.
fn is_reopened(unit: &UnitPlan, attempt: AttemptRef, records: &OpenRecords) -> bool {
    let attempts = unit.retry.attempts.max(1);
    let begins_block = attempt.number > Attempt::FIRST && attempts_used(attempt.number, attempts) == 1;
    let block_before = Attempt(attempt.number.0.saturating_sub(attempts).max(1));
    let before = records.range((attempt.unit, block_before)..(attempt.unit, attempt.number)).next_back();
    let has_more = before.and_then(|(_, record)| record.result.as_ref()).is_some_and(AttemptResult::has_more);
    begins_block && !has_more
}

/// Ends expired attempts. Relays get their requests concurrently, so that an unreachable one does not delay the others.
pub(super) async fn end_expired(
    env: &Env,
    run: &Run,
    cache: &InvocationCache,
    sweep: &mut RunSweep,
) -> FlowResult<progress::RunProgress> {
    let begun = env.now();
    let mut results = Vec::new();
    for (attempt, deadline) in std::mem::take(&mut sweep.expired) {
        let context = AttemptContext::new(env, run, attempt, cache)?;
        results.push(async move {
            let end = if env.now().since(begun).0 < START_WINDOW_MS { end_attempt(context).await } else { None };
            (context, deadline, end)
        });
    }
    let results: Vec<_> = futures::stream::iter(results).buffered(MAX_ENDS).collect().await;
    let mut all = progress::RunProgress::default();
    for (context, deadline, end) in results {
        let Some(end) = end else {
            let now = env.now();
            let wait = (now.since(deadline).0 / 4).clamp(MIN_RETRY_MS, MAX_RETRY_MS);
            sweep.sweep_by(now.plus(Millis(wait)));
            continue;
        };
        let end = callback_result::with_checked_outputs(context, end);
        let remaining = if context.unit.undoes.is_empty() { 0 } else { undo::remaining(context).await? };
        all.merge(apply_result::apply_result(context, &end, remaining).await?);
    }
    Ok(all)
}

/// Ends an expired attempt, at its relay if it has one. Returns `None` if the relay does not report its end.
async fn end_attempt(context: AttemptContext<'_>) -> Option<AttemptEnd> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    if !unit.action.is_relayed() {
        return timeout::unreported(context).await.ok().map(AttemptEnd::Failed);
    }
    let timed_out = AttemptEnd::Failed(timeout::timed_out(unit, &AttemptRecord::default()));
    let (cluster, task) = (run.cluster(attempt.unit), context.task());
    match guarded(env, cluster.name, env.relay.cancel(cluster, &task, env.settings.grace)).await {
        Ok(TaskState::Ended(callback)) => Some(callback_result::relay_result(*callback).unwrap_or(timed_out)),
        Ok(TaskState::Tombstoned) | Err(RelayError::Refused(_)) => Some(timed_out),
        Ok(_) | Err(RelayError::Unreachable(_) | RelayError::Busy(_)) => None,
    }
}
