//! The open tries of a run, and the next step of each.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::UnitPlan;
use ebb_engine::retry::attempts_used;
use ebb_engine::{Attempt, Millis, Timestamp, Unit};
use ebb_protocol::record::{AttemptOutcome, AttemptRecord, AttemptResult};
use ebb_protocol::relay::TaskState;
use ebb_store::AttemptUpdate;
use futures::StreamExt as _;

use super::SweepCondition;
use crate::env::Env;
use crate::error::FlowError;
use crate::guarded_relay;
use crate::guarded_relay::GuardedRelay;
use crate::ports::RelayClient as _;
use crate::ports::RelayError;
use crate::run::attempt;
use crate::run::attempt::AttemptRef;
use crate::run::attempt_end::AttemptEnd;
use crate::run::callback_result;
use crate::run::cancel;
use crate::run::head::Run;
use crate::run::inputs::InvocationCache;
use crate::run::lease;
use crate::run::progress;
use crate::run::records;
use crate::run::results;
use crate::run::undo;
use crate::run::wakeup::START_WINDOW_MS;
use crate::telemetry;

/// Relays that are asked at a time to end tries of one run.
const MAX_ENDS: usize = 16;
/// Starts and leases that are recorded at a time.
const MAX_WRITES: usize = 32;
/// The deadline of what a relay does is the relay's; `sweep` steps in when the relay is this late.
const RELAY_GRACE_MS: u64 = 15_000;
/// A relay that does not end a try whose time is up is asked again after a quarter of the time since, within these bounds.
const MIN_RETRY_MS: u64 = 15_000;
const MAX_RETRY_MS: u64 = 5 * 60 * 1000;

pub(super) type OpenRecords = BTreeMap<(Unit, Attempt), AttemptRecord>;

/// The findings of a look at one run so far.
pub(super) struct RunSweep {
    pub(super) now: Timestamp,
    when: SweepCondition,
    pub(super) next_sweep: Timestamp,
    /// Tries to send, by when they were asked for last.
    dispatches: Vec<(u64, AttemptRef)>,
    /// The tries in `work` without a recorded start.
    pub(super) unstarted: BTreeSet<(Unit, Attempt)>,
    /// Tries whose start is to be recorded.
    starts: Vec<AttemptStart>,
    /// Webhooks that may have been posted before, and when they were asked for last.
    repeats: Vec<WebhookRepeat>,
    /// Tries whose time is up, and since when.
    expired: Vec<(AttemptRef, Timestamp)>,
}

/// A try whose time runs from this look on.
struct AttemptStart {
    this: AttemptRef,
    timeout: Millis,
    /// It has said that it runs.
    is_running: bool,
    /// Only `sweep` begins it.
    is_ours: bool,
}

/// A webhook's try that is posted again by one sweep at a time.
struct WebhookRepeat {
    this: AttemptRef,
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

    fn add_dispatch(&mut self, asked: u64, this: AttemptRef) {
        self.dispatches.push((asked, this));
    }

    /// Judges one try that may be running. Gives its result if there is one that its run does not know.
    pub(super) fn classify(
        &mut self,
        env: &Env,
        run: &Run,
        this: AttemptRef,
        records: &OpenRecords,
    ) -> Option<AttemptResult> {
        let unit = run.unit(this.unit)?;
        let record = records.get(&(this.unit, this.attempt)).cloned().unwrap_or_default();
        if let Some(result) = &record.result {
            return (result.outcome != AttemptOutcome::Cancelled).then(|| result.clone());
        }
        let waits = retry_due(this, records);
        if let Some(wait) = waits.filter(|&until| until > self.now) {
            self.sweep_by(wait);
            return None;
        }
        let is_relayed = unit.action.is_relayed();
        let put_off = record.next_dispatch.map(Timestamp);
        let Some(begun) = records::started_at(&record) else {
            match put_off.filter(|&at| at > self.now) {
                Some(at) => self.sweep_by(at),
                None if is_relayed && record.heartbeat.is_none() => {
                    // Asking a relay is harmless. Its time runs when the relay says that it does.
                    self.unstarted.insert((this.unit, this.attempt));
                    self.add_dispatch(record.next_dispatch.unwrap_or_default(), this);
                }
                None => self.starts.push(AttemptStart {
                    this,
                    timeout: Millis(unit.timeout_ms),
                    is_running: record.heartbeat.is_some(),
                    is_ours: waits.is_some() || put_off.is_some() || is_reopened(unit, this, records),
                }),
            }
            return None;
        };
        telemetry::attempt_started(&run.id, this, begun);
        let deadline = begun.plus(Millis(unit.timeout_ms));
        let deadline = if is_relayed { deadline.plus(Millis(RELAY_GRACE_MS)) } else { deadline };
        if deadline <= self.now {
            self.expired.push((this, deadline));
            return None;
        }
        self.sweep_by(deadline);
        // A try that was postponed before it began is not asked for again.
        match put_off.filter(|&at| at > begun) {
            Some(again) if again > self.now => self.sweep_by(again),
            // An accepted request is never sent again, nor one that was accepted when it was asked again: its callback or
            // the deadline decides.
            again if record.accepted.is_some_and(|at| again.is_none_or(|again| again.0 <= at)) => {}
            Some(again) => self.add_repeat(again.0, this, record, is_relayed),
            None if is_relayed || self.when == SweepCondition::Always => {
                self.add_repeat(u64::MAX, this, record, is_relayed);
            }
            None => {
                let answered = begun.plus(env.settings.response_window());
                if answered <= self.now {
                    self.add_repeat(begun.0, this, record, is_relayed);
                } else {
                    self.sweep_by(answered);
                }
            }
        }
        None
    }

    /// Has a try that has begun asked for again. Relays know works by their names; a webhook is posted by one sweep at a time.
    fn add_repeat(&mut self, asked: u64, this: AttemptRef, seen: AttemptRecord, is_relayed: bool) {
        let leased = seen.leased_until.map(Timestamp).filter(|&until| until > self.now);
        match leased.filter(|_| self.when == SweepCondition::Due) {
            _ if is_relayed => self.add_dispatch(asked, this),
            Some(until) => self.sweep_by(until),
            None => self.repeats.push(WebhookRepeat { this, last_request: asked, seen }),
        }
    }

    /// Records the starts of tries that no look has seen before, and takes the leases of webhooks that are posted again.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn record_starts(&mut self, env: &Env, run: &Run) -> Result<(), FlowError> {
        let now = self.now;
        let starts = std::mem::take(&mut self.starts).into_iter().map(|start| async move {
            let AttemptRef { unit, attempt, .. } = start.this;
            (env.store.update_attempt(&run.id, unit, attempt, &AttemptUpdate::Started(now)).await, start)
        });
        let noted: Vec<_> = futures::stream::iter(starts).buffered(MAX_WRITES).collect().await;
        for (before, start) in noted {
            let before = before?;
            self.sweep_by(now.plus(start.timeout));
            // The record does not say if the request was sent. It may be under way, unless only `sweep` begins the try.
            let first = before.started.is_none() && before.result.is_none();
            let only_here = first && (self.when == SweepCondition::Always || start.is_ours);
            if only_here && !start.is_running {
                self.add_dispatch(0, start.this);
            } else if !start.is_running {
                self.sweep_by(now.plus(env.settings.response_window()));
            }
        }
        let leases = std::mem::take(&mut self.repeats)
            .into_iter()
            .map(|repeat| async move { (lease::lease(env, run, repeat.this, &repeat.seen).await, repeat) });
        let leases: Vec<_> = futures::stream::iter(leases).buffered(MAX_WRITES).collect().await;
        for (is_own, WebhookRepeat { this, last_request: asked, .. }) in leases {
            match is_own? {
                true => self.add_dispatch(asked, this),
                false => self.sweep_by(now.plus(env.settings.response_window())),
            }
        }
        Ok(())
    }

    /// Returns the tries to send now, in the order of their last requests. Clusters that have just given no answer are
    /// asked later.
    pub(super) fn take_dispatches(&mut self, env: &Env, run: &Run) -> Vec<(Unit, Attempt)> {
        let mut work = std::mem::take(&mut self.dispatches);
        work.sort_by_key(|(asked, _)| *asked);
        let mut open: BTreeMap<Option<&str>, Option<Timestamp>> = BTreeMap::new();
        let mut sends = Vec::new();
        for (_, AttemptRef { unit, attempt, .. }) in work {
            let relayed = run.is_relayed(unit);
            let cluster = run.cluster(unit).filter(|_| relayed);
            let until = || guarded_relay::circuit_open_until(env, &guarded_relay::cluster_name(env, cluster));
            match relayed.then(|| *open.entry(cluster).or_insert_with(until)).flatten() {
                Some(until) => self.sweep_by(until),
                None => sends.push((unit, attempt)),
            }
        }
        sends
    }
}

/// Returns when a try may start that follows a failed one. A success has a next try, too, if an undo has more to remove, but
/// the invocation that recorded the success sends it.
fn retry_due(this: AttemptRef, records: &OpenRecords) -> Option<Timestamp> {
    let before = Attempt(this.attempt.0.checked_sub(1)?);
    let result = records.get(&(this.unit, before))?.result.as_ref()?;
    Some(Timestamp(result.next?)).filter(|_| result.outcome == AttemptOutcome::Failed)
}

/// Returns whether the try is the first one since its unit was reopened. The next try of an undo that has more to remove has
/// the same kind of number, but the invocation that recorded the previous try sends it.
fn is_reopened(unit: &UnitPlan, this: AttemptRef, records: &OpenRecords) -> bool {
    let tries = unit.retry.attempts.max(1);
    let begins_block = this.attempt > Attempt::FIRST && attempts_used(this.attempt, tries) == 1;
    let block_before = Attempt(this.attempt.0.saturating_sub(tries).max(1));
    let before = records.range((this.unit, block_before)..(this.unit, this.attempt)).next_back();
    let goes_on = before.and_then(|(_, record)| record.result.as_ref()).is_some_and(AttemptResult::has_more);
    begins_block && !goes_on
}

/// Ends the tries whose time is up. Relays are asked beside each other: one that gives no answer must not keep the others'
/// tries alive.
///
/// # Errors
/// The store's.
pub(super) async fn end_expired(
    env: &Env,
    run: &Run,
    memory: &InvocationCache,
    look: &mut RunSweep,
) -> Result<progress::RunProgress, FlowError> {
    let begun = env.now();
    let killed = std::mem::take(&mut look.expired).into_iter().map(|(this, deadline)| async move {
        let known = if env.now().since(begun).0 < START_WINDOW_MS { end_attempt(env, run, this).await } else { None };
        (this, deadline, known)
    });
    let killed: Vec<_> = futures::stream::iter(killed).buffered(MAX_ENDS).collect().await;
    let mut all = progress::RunProgress::default();
    for (this, deadline, ended) in killed {
        let (Some(unit), Some(ended)) = (run.unit(this.unit), ended) else {
            let now = env.now();
            let wait = (now.since(deadline).0 / 4).clamp(MIN_RETRY_MS, MAX_RETRY_MS);
            look.sweep_by(now.plus(Millis(wait)));
            continue;
        };
        let ended = callback_result::with_checked_outputs(run, unit, ended);
        let more = match unit.undoes.is_empty() {
            true => 0,
            false => undo::remaining(env, run, unit, this, memory).await?,
        };
        let progress = results::apply_result(env, run, this, &ended, more, memory).await?;
        all.ready.extend(progress.ready);
        all.outcome = all.outcome.or(progress.outcome);
    }
    Ok(all)
}

/// Ends a try whose time is up, at its relay if it has one. Returns `None` if the relay does not say how the try ended.
async fn end_attempt(env: &Env, run: &Run, this: AttemptRef) -> Option<AttemptEnd> {
    let unit = run.unit(this.unit)?;
    let timed_out = AttemptEnd::Failed(cancel::timed_out(unit.timeout_ms / 1000));
    if !unit.action.is_relayed() {
        return Some(timed_out);
    }
    let name = attempt::task_id(run, this.unit, this.attempt);
    match GuardedRelay(env).cancel(run.cluster(this.unit), &name, env.settings.grace).await {
        Ok(TaskState::Ended(callback)) => Some(callback_result::relay_result(*callback).unwrap_or(timed_out)),
        Ok(TaskState::Tombstoned) | Err(RelayError::Refused(_)) => Some(timed_out),
        Ok(_) | Err(RelayError::Unreachable(_) | RelayError::Busy(_)) => None,
    }
}
