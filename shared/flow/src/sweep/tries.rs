//! The open tries of a run, and the next step of each.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::retry::used;
use ebb_engine::{Attempt, Millis, Timestamp, Unit};
use ebb_spec::plan::UnitPlan;
use ebb_store::Note;
use ebb_wire::record::{Record, TryResult, Verdict};
use ebb_wire::relay::WorkState;
use futures::StreamExt as _;

use super::When;
use super::place::BEGINS;
use crate::breaker::{self, Relays};
use crate::claim;
use crate::complete;
use crate::dispatch::{self, Try};
use crate::env::Env;
use crate::error::FlowError;
use crate::inputs::Memory;
use crate::observe;
use crate::outcome::Ended;
use crate::ports::{Relay as _, RelayError};
use crate::results;
use crate::run::Run;
use crate::settle;
use crate::switch::{self, Rule};
use crate::undo;

/// Relays that are asked at a time to end tries of one run.
const ENDS_AT_ONCE: usize = 16;
/// Starts and leases that are recorded at a time.
const NOTES_AT_ONCE: usize = 32;
/// The deadline of what a relay does is the relay's; `sweep` steps in when the relay is this late.
const RELAY_LATE_MS: u64 = 15_000;
/// A relay that does not end a try whose time is up is asked again after a quarter of the time since, within these bounds.
const ENDS_AGAIN_MS: u64 = 15_000;
const LONGEST_ENDS_AGAIN_MS: u64 = 5 * 60 * 1000;

pub(super) type Records = BTreeMap<(Unit, Attempt), Record>;

/// The findings of a look at one run so far.
pub(super) struct Look {
    pub(super) now: Timestamp,
    when: When,
    pub(super) next: Timestamp,
    /// Tries to send, by when they were asked for last.
    work: Vec<(u64, Try)>,
    /// The tries in `work` without a recorded start.
    pub(super) unstarted: BTreeSet<(Unit, Attempt)>,
    /// Tries whose start is to be recorded.
    starts: Vec<Start>,
    /// Webhooks that may have been posted before, and when they were asked for last.
    repeats: Vec<Repeat>,
    /// Tries whose time is up, and since when.
    expired: Vec<(Try, Timestamp)>,
}

/// A try whose time runs from this look on.
struct Start {
    this: Try,
    timeout: Millis,
    /// It has said that it runs.
    says_so: bool,
    /// Only `sweep` begins it.
    begins_here: bool,
}

/// A webhook's try that is posted again by one sweep at a time.
struct Repeat {
    this: Try,
    asked: u64,
    seen: Record,
}

impl Look {
    pub(super) fn new(now: Timestamp, when: When, next: Timestamp) -> Self {
        let (work, starts, repeats, expired) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { now, when, next, work, unstarted: BTreeSet::new(), starts, repeats, expired }
    }

    pub(super) fn not_before(&mut self, at: Timestamp) {
        self.next = self.next.min(at);
    }

    fn send(&mut self, asked: u64, this: Try) {
        self.work.push((asked, this));
    }

    /// Judges one try that may be running. Gives its result if there is one that its run does not know.
    pub(super) fn judge(&mut self, env: &Env, run: &Run, this: Try, records: &Records) -> Option<TryResult> {
        let unit = run.unit(this.unit)?;
        let record = records.get(&(this.unit, this.attempt)).cloned().unwrap_or_default();
        if let Some(result) = &record.result {
            return (result.verdict != Verdict::Cancelled).then(|| result.clone());
        }
        let waits = waits_until(this, records);
        if let Some(wait) = waits.filter(|&until| until > self.now) {
            self.not_before(wait);
            return None;
        }
        let is_relayed = unit.work.is_relayed();
        let put_off = record.again.map(Timestamp);
        let begun = match switch::holds(Rule::DeadlineFromStart) {
            true => complete::begun(&record),
            false => Some(run.facts.started),
        };
        let Some(begun) = begun else {
            match put_off.filter(|&at| at > self.now) {
                Some(at) => self.not_before(at),
                None if is_relayed && record.beat.is_none() => {
                    // Asking a relay is harmless. Its time runs when the relay says that it does.
                    self.unstarted.insert((this.unit, this.attempt));
                    self.send(record.again.unwrap_or_default(), this);
                }
                None => self.starts.push(Start {
                    this,
                    timeout: Millis(unit.timeout_ms),
                    says_so: record.beat.is_some(),
                    begins_here: waits.is_some() || put_off.is_some() || is_reopened(unit, this, records),
                }),
            }
            return None;
        };
        observe::begun(&run.id, this, begun);
        let deadline = begun.plus(Millis(unit.timeout_ms));
        let deadline = if is_relayed { deadline.plus(Millis(RELAY_LATE_MS)) } else { deadline };
        if deadline <= self.now {
            self.expired.push((this, deadline));
            return None;
        }
        self.not_before(deadline);
        // A try that was postponed before it began is not asked for again.
        match put_off.filter(|&at| at > begun) {
            Some(again) if again > self.now => self.not_before(again),
            // An accepted request is never sent again, nor one that was accepted when it was asked again: its callback or
            // the deadline decides.
            again if record.accepted.is_some_and(|at| again.is_none_or(|again| again.0 <= at)) => {}
            Some(again) => self.repeat(again.0, this, record, is_relayed),
            None if is_relayed || self.when == When::Anyway => {
                self.repeat(u64::MAX, this, record, is_relayed);
            }
            None => {
                let answered = begun.plus(env.settings.sending());
                if answered <= self.now {
                    self.repeat(begun.0, this, record, is_relayed);
                } else {
                    self.not_before(answered);
                }
            }
        }
        None
    }

    /// Has a try that has begun asked for again. Relays know works by their names; a webhook is posted by one sweep at a time.
    fn repeat(&mut self, asked: u64, this: Try, seen: Record, is_relayed: bool) {
        let leased = seen.leased.map(Timestamp).filter(|&until| until > self.now);
        match leased.filter(|_| self.when == When::Due) {
            _ if is_relayed => self.send(asked, this),
            Some(until) => self.not_before(until),
            None => self.repeats.push(Repeat { this, asked, seen }),
        }
    }

    /// Records the starts of tries that no look has seen before, and takes the leases of webhooks that are posted again.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn begin(&mut self, env: &Env, run: &Run) -> Result<(), FlowError> {
        let now = self.now;
        let starts = std::mem::take(&mut self.starts).into_iter().map(|start| async move {
            let Try { unit, attempt, .. } = start.this;
            (env.store.note_record(&run.id, unit, attempt, &Note::Started(now)).await, start)
        });
        let noted: Vec<_> = futures::stream::iter(starts).buffered(NOTES_AT_ONCE).collect().await;
        for (before, start) in noted {
            let before = before?;
            self.not_before(now.plus(start.timeout));
            // The record does not say if the request was sent. It may be under way, unless only `sweep` begins the try.
            let first = before.started.is_none() && before.result.is_none();
            let only_here = first && (self.when == When::Anyway || start.begins_here);
            if only_here && !start.says_so {
                self.send(0, start.this);
            } else if !start.says_so {
                self.not_before(now.plus(env.settings.sending()));
            }
        }
        let leases = std::mem::take(&mut self.repeats)
            .into_iter()
            .map(|repeat| async move { (claim::lease(env, run, repeat.this, &repeat.seen).await, repeat) });
        let leases: Vec<_> = futures::stream::iter(leases).buffered(NOTES_AT_ONCE).collect().await;
        for (is_own, Repeat { this, asked, .. }) in leases {
            match is_own? {
                true => self.send(asked, this),
                false => self.not_before(now.plus(env.settings.sending())),
            }
        }
        Ok(())
    }

    /// Returns the tries to send now, in the order of their last requests. Clusters that have just given no answer are
    /// asked later.
    pub(super) fn sends(&mut self, env: &Env, run: &Run) -> Vec<(Unit, Attempt)> {
        let mut work = std::mem::take(&mut self.work);
        work.sort_by_key(|(asked, _)| *asked);
        let mut open: BTreeMap<Option<&str>, Option<Timestamp>> = BTreeMap::new();
        let mut sends = Vec::new();
        for (_, Try { unit, attempt, .. }) in work {
            let relayed = run.is_relayed(unit);
            let cluster = run.cluster(unit).filter(|_| relayed);
            let until = || breaker::open_until(env, &breaker::name(env, cluster));
            match relayed.then(|| *open.entry(cluster).or_insert_with(until)).flatten() {
                Some(until) => self.not_before(until),
                None => sends.push((unit, attempt)),
            }
        }
        sends
    }
}

/// Returns when a try may start that follows a failed one. A success has a next try, too, if an undo has more to remove, but
/// the invocation that recorded the success sends it.
fn waits_until(this: Try, records: &Records) -> Option<Timestamp> {
    let before = Attempt(this.attempt.0.checked_sub(1)?);
    let result = records.get(&(this.unit, before))?.result.as_ref()?;
    Some(Timestamp(result.next?)).filter(|_| result.verdict == Verdict::Failed)
}

/// Returns whether the try is the first one since its unit was reopened. The next try of an undo that has more to remove has
/// the same kind of number, but the invocation that recorded the previous try sends it.
fn is_reopened(unit: &UnitPlan, this: Try, records: &Records) -> bool {
    let tries = unit.retry.attempts.max(1);
    let begins_block = this.attempt > Attempt::FIRST && used(this.attempt, tries) == 1;
    let block_before = Attempt(this.attempt.0.saturating_sub(tries).max(1));
    let before = records.range((this.unit, block_before)..(this.unit, this.attempt)).next_back();
    let goes_on = before.and_then(|(_, record)| record.result.as_ref()).is_some_and(TryResult::has_more);
    begins_block && !goes_on
}

/// Ends the tries whose time is up. Relays are asked beside each other: one that gives no answer must not keep the others'
/// tries alive.
///
/// # Errors
/// The store's.
pub(super) async fn expire(
    env: &Env,
    run: &Run,
    memory: &Memory,
    look: &mut Look,
) -> Result<results::Progress, FlowError> {
    let begun = env.now();
    let killed = std::mem::take(&mut look.expired).into_iter().map(|(this, deadline)| async move {
        let known = if env.now().since(begun).0 < BEGINS { killed(env, run, this).await } else { None };
        (this, deadline, known)
    });
    let killed: Vec<_> = futures::stream::iter(killed).buffered(ENDS_AT_ONCE).collect().await;
    let mut all = results::Progress::default();
    for (this, deadline, ended) in killed {
        let (Some(unit), Some(ended)) = (run.unit(this.unit), ended) else {
            let now = env.now();
            let wait = (now.since(deadline).0 / 4).clamp(ENDS_AGAIN_MS, LONGEST_ENDS_AGAIN_MS);
            look.not_before(now.plus(Millis(wait)));
            continue;
        };
        let ended = complete::checked(run, unit, ended);
        let more = match unit.undoes.is_empty() {
            true => 0,
            false => undo::more(env, run, unit, this, memory).await?,
        };
        let progress = results::conclude(env, run, this, &ended, more, memory).await?;
        all.ready.extend(progress.ready);
        all.over = all.over.or(progress.over);
    }
    Ok(all)
}

/// Ends a try whose time is up, at its relay if it has one. Returns `None` if the relay does not say how the try ended.
async fn killed(env: &Env, run: &Run, this: Try) -> Option<Ended> {
    let unit = run.unit(this.unit)?;
    let timed_out = Ended::Failed(settle::timed_out(unit.timeout_ms / 1000));
    if !unit.work.is_relayed() {
        return Some(timed_out);
    }
    let name = dispatch::work_name(run, this.unit, this.attempt);
    match Relays(env).cancel(run.cluster(this.unit), &name, env.settings.grace).await {
        Ok(WorkState::Ended(callback)) => Some(complete::ended(*callback).unwrap_or(timed_out)),
        Ok(WorkState::Tombstoned) | Err(RelayError::Refused(_)) => Some(timed_out),
        Ok(_) | Err(RelayError::Unreachable(_) | RelayError::Busy(_)) => None,
    }
}
