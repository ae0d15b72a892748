//! Repairs due runs and targets. Only this module acts because of time: retries, deadlines, lost dispatches and
//! callbacks, times to live, undelivered notifications, and desired states that are not applied.
//!
//! The index is a hint. Each item is read with strong consistency, handled, and only then made due again. Concurrent
//! sweeps are therefore harmless, and an item whose sweep is interrupted stays due.

mod attempts;
pub mod orphans;
pub mod outages;
mod postpone;
mod runs;
mod targets;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use ebb_protocol::{TargetKey, Timestamp};
use ebb_store::{DesiredKey, DueItem, HealthMark, Store};
use futures::StreamExt as _;

use crate::advance::dispatch_all::drive_slice;
use crate::instance::outbox;
use crate::permits::SweepPermits;
use crate::source::{observe, reconcile};
use crate::{Env, FlowResult, QueueMessage, SweepPermit, lock, telemetry};
use attempts::SweepCondition;
use postpone::{postpone_dropped, record_end};

pub use postpone::postpone_message;

/// Maximum runs and targets per sweep. One that waits for its turn at a destination holds no place.
const MAX_DUE: usize = 2_000;
/// Unfinished runs and targets that are postponed at the same time.
const MAX_POSTPONES: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepSummary {
    pub processed: usize,
    /// Runs and targets that failed. They are due again.
    pub failed: usize,
    /// Runs and targets that were not finished in time.
    pub unfinished: usize,
    /// Milliseconds by which the most urgent one was overdue.
    pub lag_ms: u64,
}

/// Sweeps all due runs and targets that `index` lists, until `end`. Unfinished ones are dropped and due again.
///
/// # Errors
/// Returns an error if the index cannot be read. Later errors are counted, and their items are due again.
pub async fn sweep(env: &Env, index: &Store, end: impl Future<Output = ()>) -> FlowResult<SweepSummary> {
    let now = env.now();
    let mut due = index.query_due(now, MAX_DUE).await?;
    let late_ms = due.first().map_or(0, |(first, _)| now.0.saturating_sub(first.0));
    if is_reversed(now) {
        due.reverse();
    }
    let mut swept = SweepSummary { lag_ms: late_ms, ..SweepSummary::default() };
    // The delay is reported first, so that a hanging sweep does not hide it.
    telemetry::sweep_ended(0, late_ms);
    let permits = SweepPermits::new(env.steady());
    let begun: Mutex<BTreeSet<DueItem>> = Mutex::default();
    let open = || lock(&begun);
    let sweeps = due.into_iter().map(|(_, due)| {
        let (permits, open) = (&permits, &open);
        async move {
            let permit = permits.acquire().await;
            // The next sweep begins with the rest, because all handled items are due later.
            if permit.is_out_of_time(env) {
                return None;
            }
            open().insert(due.clone());
            let done = match &due {
                DueItem::Run(run) => {
                    permit.limit(Box::pin(runs::sweep_run(env, run, SweepCondition::Due, &permit))).await
                }
                DueItem::Target(kind, name) => {
                    permit.limit(Box::pin(targets::sweep_target(env, TargetKey::new(kind, name), &permit))).await
                }
                DueItem::Desired(key) => permit.limit(Box::pin(sweep_desired(env, key))).await,
                DueItem::Source(name) => {
                    // A list can take as long as the sweep.
                    permit.leave_place();
                    record_end(env, &due, Box::pin(observe::observe(env, name)).await).await
                }
            };
            open().remove(&due);
            Some(
                done.inspect_err(|error| tracing::warn!(?due, %error, "cannot sweep an item; it is due again later"))
                    .is_ok(),
            )
        }
    });
    let ended = futures::stream::iter(sweeps).buffer_unordered(MAX_DUE).take_until(end);
    let ended: Vec<bool> = ended.filter_map(std::future::ready).collect().await;
    swept.processed = ended.len();
    swept.failed = ended.iter().filter(|succeeded| !**succeeded).count();
    let given_up = begun.into_inner().unwrap_or_else(PoisonError::into_inner);
    swept.unfinished = given_up.len();
    let postponed = given_up.into_iter().map(|due| async move { postpone_dropped(env, &due).await });
    futures::stream::iter(postponed).buffer_unordered(MAX_POSTPONES).collect::<()>().await;
    telemetry::sweep_ended(swept.processed, late_ms);
    Ok(swept)
}

/// Applies a desired state, if its invocation has ended early or the target could not take it. After an error, it is due again
/// later.
async fn sweep_desired(env: &Env, key: &DesiredKey) -> FlowResult<()> {
    let applied = async {
        let (_, follow_ups) = reconcile::apply(env, key).await?;
        for follow_up in follow_ups {
            follow_up.finish(env).await?;
        }
        Ok(())
    };
    record_end(env, &DueItem::Desired(key.clone()), applied.await).await
}

/// Returns true in odd minutes, in which a sweep begins with the least urgent items. An item that ends the process, for
/// example by its memory, blocks all items after it. With alternating order it cannot block the same items each time.
fn is_reversed(now: Timestamp) -> bool {
    now.0 / 60_000 % 2 == 1
}

/// Writes the schedule mark of the health check.
pub async fn mark_schedule(env: &Env) -> FlowResult<()> {
    Ok(env.store.put_mark(HealthMark::Schedule, env.now()).await?)
}

/// Handles a queue message. After an error it may be delivered again.
pub async fn receive_message(env: &Env, message: &QueueMessage) -> FlowResult<()> {
    let permit = || SweepPermit::standalone(env);
    match message {
        QueueMessage::Run(run) => runs::sweep_run(env, run, SweepCondition::Due, &permit()).await,
        QueueMessage::Recover(run) => runs::sweep_run(env, run, SweepCondition::Always, &permit()).await,
        QueueMessage::Unit { run, unit, attempt } => Box::pin(runs::sweep_unit(env, run, *unit, *attempt)).await,
        QueueMessage::Poll { run, unit, attempt, sweep } => {
            Box::pin(runs::poll_unit(env, run, (*unit, *attempt), *sweep)).await
        }
        QueueMessage::Target(kind, name) => targets::sweep_target(env, TargetKey::new(kind, name), &permit()).await,
        QueueMessage::Deliver(kind, name) => Box::pin(outbox::deliver(env, TargetKey::new(kind, name))).await,
        QueueMessage::Mark => Ok(env.store.put_mark(HealthMark::Queue, env.now()).await?),
        QueueMessage::Dispatch(slice) => drive_slice(env, slice).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_alternate_their_order() {
        let orders = [0, 59_999, 60_000, 119_999, 120_000].map(|at| is_reversed(Timestamp(at)));
        assert_eq!(orders, [false, false, true, true, false]);
    }
}
