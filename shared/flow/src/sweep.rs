//! The only place where time acts: due retries, deadlines, lost dispatches, lost callbacks, times to live, notifications
//! that were not accepted.
//!
//! The index is a hint. Each thing is read strongly, acted on, and only then made due again: two sweeps at a time do no
//! harm, and one that dies in between leaves it due.

mod attempts;
pub(crate) mod failures;
pub mod orphans;
pub mod outages;
mod permits;
pub mod retention;
mod runs;
mod targets;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use ebb_engine::{Attempt, Epoch, Timestamp, Unit};
use ebb_store::{DueItem, HealthMark};
use futures::StreamExt as _;
use futures::future::{Either, select};

use crate::env::{Env, SweepStore};
use crate::error::FlowError;
use crate::ports::QueueMessage;
use crate::run::dispatch_all::drive_slice;
use crate::telemetry;
use permits::SweepPermits;

use permits::SweepPermit;
pub use runs::{sweep_run, sweep_unit};
pub use targets::sweep_target;

/// Runs and targets that one sweep looks at. A look that waits for a cluster holds no place.
const MAX_DUE: usize = 2_000;
/// Unfinished looks that are postponed at a time.
const MAX_POSTPONES: usize = 16;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepSummary {
    pub processed: usize,
    /// Things that could not be dealt with; they are due again.
    pub failed: usize,
    /// Things that were not dealt with to the end.
    pub unfinished: usize,
    /// Milliseconds that the most urgent one was due for when it was found.
    pub lag_ms: u64,
}

/// The condition under which a look acts on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepCondition {
    Due,
    /// Always: the sender may have died, and this process has no request under way.
    Always,
}

/// Looks at everything that is due.
///
/// # Errors
/// The index cannot be asked. What fails later is counted, and due again.
pub async fn sweep(env: &Env, store: &dyn SweepStore) -> Result<SweepSummary, FlowError> {
    sweep_until(env, store, std::future::pending()).await
}

/// Looks at everything that is due. A look that is unfinished at `end` is dropped, and its run or target is due again.
///
/// # Errors
/// The index cannot be asked. What fails later is counted, and due again.
pub async fn sweep_until(
    env: &Env,
    store: &dyn SweepStore,
    end: impl Future<Output = ()>,
) -> Result<SweepSummary, FlowError> {
    let now = env.now();
    let mut due = store.query_due(now, MAX_DUE).await?;
    let late_ms = due.first().map_or(0, |(first, _)| now.0.saturating_sub(first.0));
    if is_reversed(now) {
        due.reverse();
    }
    let mut swept = SweepSummary { lag_ms: late_ms, ..SweepSummary::default() };
    // Reported at once: a look that hangs must not hide the delay.
    telemetry::sweep_ended(0, late_ms);
    let places = SweepPermits::new(now);
    let begun: Mutex<BTreeSet<DueItem>> = Mutex::default();
    let open = || begun.lock().unwrap_or_else(PoisonError::into_inner);
    let looks = due.into_iter().map(|(_, due)| {
        let (places, open) = (&places, &open);
        async move {
            let mut place = places.acquire().await;
            // The next sweep begins with the rest, because everything that was looked at is due later.
            if place.is_out_of_time(env) {
                return None;
            }
            open().insert(due.clone());
            let done = match &due {
                DueItem::Run(run) => Box::pin(runs::sweep_with_permit(env, run, SweepCondition::Due, &mut place)).await,
                DueItem::Target(kind, name) => Box::pin(targets::sweep_with_permit(env, kind, name, &mut place)).await,
            };
            open().remove(&due);
            Some(done.inspect_err(|error| tracing::warn!(?due, %error, "stays due")).is_ok())
        }
    });
    {
        let (mut looks, mut end) = (futures::stream::iter(looks).buffer_unordered(MAX_DUE), pin!(end));
        loop {
            match select(looks.next(), end.as_mut()).await {
                Either::Left((Some(Some(well)), _)) => {
                    swept.processed += 1;
                    swept.failed += usize::from(!well);
                }
                Either::Left((Some(None), _)) => {}
                Either::Left((None, _)) | Either::Right(_) => break,
            }
        }
    }
    let given_up = begun.into_inner().unwrap_or_else(PoisonError::into_inner);
    swept.unfinished = given_up.len();
    let put_off = given_up.into_iter().map(|due| async move { postpone(env, &due).await });
    futures::stream::iter(put_off).buffer_unordered(MAX_POSTPONES).collect::<()>().await;
    telemetry::sweep_ended(swept.processed, late_ms);
    Ok(swept)
}

/// Returns true in odd minutes, in which a sweep begins with the least overdue entries. A look that ends its process, for
/// example by running out of memory, also ends the looks after it. Alternating the order gives each entry its turn.
fn is_reversed(now: Timestamp) -> bool {
    now.0 / 60_000 % 2 == 1
}

/// Postpones a run or target whose look is unfinished.
async fn postpone(env: &Env, due: &DueItem) {
    let wait = env.cache.failed_sweeps.next_wait(due, true);
    match due {
        DueItem::Run(run) => runs::postpone_failed(env, run, wait).await,
        DueItem::Target(kind, name) => targets::postpone_failed(env, kind, name, wait).await,
    }
}

/// Postpones the run or target of a message whose processing was dropped. Without it only the message would know of the work.
pub async fn postpone_message(env: &Env, message: &QueueMessage) {
    match message {
        QueueMessage::Run(run)
        | QueueMessage::Recover(run)
        | QueueMessage::Unit { run, .. }
        | QueueMessage::Dispatch { run, .. } => postpone(env, &DueItem::Run(run.clone())).await,
        QueueMessage::Target(kind, name) => postpone(env, &DueItem::Target(kind.clone(), name.clone())).await,
        QueueMessage::Mark => {}
    }
}

/// Marks that a minute of the schedule has come.
///
/// # Errors
/// The store's.
pub async fn mark_schedule(env: &Env) -> Result<(), FlowError> {
    Ok(env.store.put_mark(HealthMark::Schedule, env.now()).await?)
}

/// Takes a message of the queue.
///
/// # Errors
/// The store's; the message may be delivered again.
pub async fn receive_message(env: &Env, message: &QueueMessage) -> Result<(), FlowError> {
    match message {
        QueueMessage::Run(run) => sweep_run(env, run, SweepCondition::Due).await,
        QueueMessage::Recover(run) => sweep_run(env, run, SweepCondition::Always).await,
        QueueMessage::Unit { run, unit, attempt } => sweep_unit(env, run, Unit(*unit), Attempt(*attempt)).await,
        QueueMessage::Target(kind, name) => sweep_target(env, kind, name).await,
        QueueMessage::Mark => Ok(env.store.put_mark(HealthMark::Queue, env.now()).await?),
        QueueMessage::Dispatch { run, epoch, units, next_sweep: again, forwarded_at: passed } => {
            let units: Vec<(Unit, Attempt)> =
                units.iter().map(|&(unit, attempt)| (Unit(unit), Attempt(attempt))).collect();
            let passed = passed.map_or(env.now(), Timestamp);
            drive_slice(env, run, Epoch(*epoch), &units, again.map(Timestamp), passed).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_begin_at_either_end_by_turns() {
        let orders = [0, 59_999, 60_000, 119_999, 120_000].map(|at| is_reversed(Timestamp(at)));
        assert_eq!(orders, [false, false, true, true, false]);
    }
}
