//! Acceptances of one invocation: its sends are answered 202 at about the same time, and one write notes them all.

use std::collections::BTreeMap;

use ebb_engine::{Attempt, Millis, Shard, Timestamp, Unit};

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::AttemptRef;
use crate::run::head::Run;
use crate::run::wakeup;

/// Acceptances that are noted together at most. Their item stays within one write unit.
const MAX_BATCH: usize = 50;
/// How long an acceptance waits for others, as long as sends come to an end. `sweep` repeats no request before the slowest
/// one of the invocation must have been answered.
const MAX_DELAY: Millis = Millis(1_000);

/// Tries that were accepted, and whose acceptance is not noted yet.
#[derive(Default)]
pub(crate) struct AcceptanceBatch {
    attempts: Vec<AttemptRef>,
    /// When the first one was accepted.
    since: Option<Timestamp>,
}

impl AcceptanceBatch {
    /// Adds a try that was accepted at `now`.
    pub(crate) fn add(&mut self, this: AttemptRef, now: Timestamp) {
        self.attempts.push(this);
        self.since.get_or_insert(now);
    }

    /// Returns whether they are to be noted at `now`, although other sends are under way.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.attempts.len() >= MAX_BATCH || self.since.is_some_and(|since| now >= since.plus(MAX_DELAY))
    }

    /// Notes them: a single one in its record, several with one write for each head item that has units among them.
    ///
    /// # Errors
    /// The store's; the run is to be looked at again.
    pub(crate) async fn flush(&mut self, env: &Env, run: &Run) -> Result<(), FlowError> {
        self.since = None;
        let tries = std::mem::take(&mut self.attempts);
        if let [this] = tries.as_slice()
            && let Some(unit) = run.unit(this.unit)
        {
            return wakeup::record_acceptance(env, run, *this, unit).await;
        }
        let mut items: BTreeMap<Shard, Vec<(Unit, Attempt)>> = BTreeMap::new();
        for this in &tries {
            items.entry(Shard::of(this.unit).0).or_default().push((this.unit, this.attempt));
        }
        for (shard, tries) in items {
            env.store.record_accepted(&run.id, shard, &tries, env.now()).await?;
        }
        for this in tries {
            if let Some(unit) = run.unit(this.unit) {
                wakeup::send_deadline_wakeup(env, run, this, unit).await;
            }
        }
        Ok(())
    }
}
