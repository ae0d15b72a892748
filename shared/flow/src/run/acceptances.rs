//! Collects the acceptances of one invocation: many receivers respond 202 at about the same time, and one write records
//! them together.

use ebb_engine::{Attempt, AttemptRef, Millis, Timestamp, Unit};
use futures::future::{join_all, select};

use crate::run::wakeup;
use crate::{Env, ExpectedResult, FlowResult, Run};

/// Maximum acceptances in one write. Their item stays within one write unit.
const MAX_BATCH: usize = 50;
/// Maximum time for which an acceptance waits for others while dispatches end. `sweep` repeats a request only after the
/// response of the slowest one is due.
const MAX_DELAY: Millis = Millis(1_000);

/// Accepted attempts whose acceptance is not recorded yet.
#[derive(Default)]
pub(crate) struct AcceptanceBatch {
    attempts: Vec<(AttemptRef, ExpectedResult)>,
    /// The time of the first acceptance.
    since: Option<Timestamp>,
}

impl AcceptanceBatch {
    pub(crate) fn add(&mut self, accepted: (AttemptRef, ExpectedResult), now: Timestamp) {
        self.attempts.push(accepted);
        self.since.get_or_insert(now);
    }

    /// Returns true if the batch is full, or its first acceptance is old enough.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.attempts.len() >= MAX_BATCH || self.since.is_some_and(|since| now >= since.plus(MAX_DELAY))
    }

    /// Waits until this function instance has taken the results of all attempts, or until the end of the
    /// [`callback_wait`](crate::env::DeploymentSettings::callback_wait).
    pub(crate) async fn wait(&mut self, env: &Env) {
        let wait = env.settings.callback_wait;
        if self.attempts.is_empty() || wait.is_zero() {
            return;
        }
        let results = Box::pin(join_all(self.attempts.iter_mut().map(|(_, expected)| expected.taken())));
        drop(select(results, env.clock.sleep(wait)).await);
    }

    /// Records the acceptances with one write. The table removes what it writes, so that the
    /// removal of the run does not cost a write for it. An attempt whose result this function instance has taken needs none,
    /// because no sweep repeats its request.
    ///
    /// # Errors
    /// Returns an error if the acceptances may be lost. The run must then become due.
    pub(crate) async fn flush(&mut self, env: &Env, run: &Run) -> FlowResult<()> {
        self.since = None;
        let accepted = std::mem::take(&mut self.attempts).into_iter().filter(|(_, expected)| !expected.is_taken());
        let attempts: Vec<AttemptRef> = accepted.map(|(attempt, _)| attempt).collect();
        if !attempts.is_empty() {
            let units: Vec<(Unit, Attempt)> = attempts.iter().map(|attempt| (attempt.unit, attempt.number)).collect();
            env.store.record_accepted(&run.id, &units, env.now()).await?;
        }
        for attempt in attempts {
            if let Some(unit) = run.unit(attempt.unit) {
                wakeup::send_deadline_wakeup(env, run, attempt, unit).await;
            }
        }
        Ok(())
    }
}
