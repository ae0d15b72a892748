//! The only place where time acts: due retries, deadlines, lost dispatches, lost callbacks, times to live, outcomes
//! that were not accepted.
//!
//! The index is a hint. Each thing is read strongly, acted on, and only then made due again: two sweeps at a time do no
//! harm, and one that dies in between leaves it due.

mod failing;
mod look;
mod place;
mod target;
mod tries;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ebb_engine::{Attempt, Epoch, Timestamp, Unit};
use ebb_store::{Due, Mark};
use futures::StreamExt as _;
use futures::future::{Either, select};

use crate::drive::slice;
use crate::env::{Env, SweepStore};
use crate::error::FlowError;
use crate::observe;
use crate::ports::Message;
use place::Places;

pub(crate) use failing::Failing;
pub use look::{sweep_run, sweep_unit};
pub(crate) use place::BEGINS;
use place::Place;
pub use target::sweep_target;

/// Runs and targets that one sweep looks at. A look that waits for a cluster holds no place.
const AT_ONCE: usize = 2_000;
/// Unfinished looks that are postponed at a time.
const PUT_OFF_AT_ONCE: usize = 16;
/// No hint is sent further ahead: SQS delays no message for longer, and the schedule comes by anyway.
pub(crate) const LONGEST_HINT: Duration = Duration::from_secs(900);

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub looked: usize,
    /// Things that could not be dealt with; they are due again.
    pub failed: usize,
    /// Things that were not dealt with to the end.
    pub given_up: usize,
    /// Milliseconds that the most urgent one was due for when it was found.
    pub late_ms: u64,
}

/// The condition under which a look acts on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Due,
    /// Always: the sender may have died, and this process has no request under way.
    Anyway,
}

/// Looks at everything that is due.
///
/// # Errors
/// The index cannot be asked. What fails later is counted, and due again.
pub async fn sweep(env: &Env, store: &dyn SweepStore) -> Result<Swept, FlowError> {
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
) -> Result<Swept, FlowError> {
    let now = env.now();
    let mut due = store.query_due(now, AT_ONCE).await?;
    let late_ms = due.first().map_or(0, |(first, _)| now.0.saturating_sub(first.0));
    if is_reversed(now) {
        due.reverse();
    }
    let mut swept = Swept { late_ms, ..Swept::default() };
    // Reported at once: a look that hangs must not hide the delay.
    observe::swept(0, late_ms);
    let places = Places::new(now);
    let begun: Mutex<BTreeSet<Due>> = Mutex::default();
    let open = || begun.lock().unwrap_or_else(PoisonError::into_inner);
    let looks = due.into_iter().map(|(_, due)| {
        let (places, open) = (&places, &open);
        async move {
            let mut place = places.take().await;
            // The next sweep begins with the rest, because everything that was looked at is due later.
            if place.is_late(env) {
                return None;
            }
            open().insert(due.clone());
            let done = match &due {
                Due::Run(run) => Box::pin(look::look_at(env, run, When::Due, &mut place)).await,
                Due::Target(kind, name) => Box::pin(target::look_at(env, kind, name, &mut place)).await,
            };
            open().remove(&due);
            Some(done.inspect_err(|error| tracing::warn!(?due, %error, "stays due")).is_ok())
        }
    });
    {
        let (mut looks, mut end) = (futures::stream::iter(looks).buffer_unordered(AT_ONCE), pin!(end));
        loop {
            match select(looks.next(), end.as_mut()).await {
                Either::Left((Some(Some(well)), _)) => {
                    swept.looked += 1;
                    swept.failed += usize::from(!well);
                }
                Either::Left((Some(None), _)) => {}
                Either::Left((None, _)) | Either::Right(_) => break,
            }
        }
    }
    let given_up = begun.into_inner().unwrap_or_else(PoisonError::into_inner);
    swept.given_up = given_up.len();
    let put_off = given_up.into_iter().map(|due| async move { put_off(env, &due).await });
    futures::stream::iter(put_off).buffer_unordered(PUT_OFF_AT_ONCE).collect::<()>().await;
    observe::swept(swept.looked, late_ms);
    Ok(swept)
}

/// Returns true in odd minutes, in which a sweep begins with the least overdue entries. A look that ends its process, for
/// example by running out of memory, also ends the looks after it. Alternating the order gives each entry its turn.
fn is_reversed(now: Timestamp) -> bool {
    now.0 / 60_000 % 2 == 1
}

/// Postpones a run or target whose look is unfinished.
async fn put_off(env: &Env, due: &Due) {
    let wait = env.warm.failing.wait(due, true);
    match due {
        Due::Run(run) => look::put_off(env, run, wait).await,
        Due::Target(kind, name) => target::put_off(env, kind, name, wait).await,
    }
}

/// Postpones the run or target of a message whose processing was dropped. Without it only the message would know of the work.
pub async fn put_off_message(env: &Env, message: &Message) {
    match message {
        Message::Run(run)
        | Message::Recover(run)
        | Message::Unit { run, .. }
        | Message::Dispatch { run, .. } => put_off(env, &Due::Run(run.clone())).await,
        Message::Target(kind, name) => put_off(env, &Due::Target(kind.clone(), name.clone())).await,
        Message::Mark => {}
    }
}

/// Marks that a minute of the schedule has come.
///
/// # Errors
/// The store's.
pub async fn minute(env: &Env) -> Result<(), FlowError> {
    Ok(env.store.mark(Mark::Schedule, env.now()).await?)
}

/// Takes a message of the queue.
///
/// # Errors
/// The store's; the message may be delivered again.
pub async fn receive_message(env: &Env, message: &Message) -> Result<(), FlowError> {
    match message {
        Message::Run(run) => sweep_run(env, run, When::Due).await,
        Message::Recover(run) => sweep_run(env, run, When::Anyway).await,
        Message::Unit { run, unit, attempt } => sweep_unit(env, run, Unit(*unit), Attempt(*attempt)).await,
        Message::Target(kind, name) => sweep_target(env, kind, name).await,
        Message::Mark => Ok(env.store.mark(Mark::Queue, env.now()).await?),
        Message::Dispatch { run, epoch, units, again, passed } => {
            let units: Vec<(Unit, Attempt)> =
                units.iter().map(|&(unit, attempt)| (Unit(unit), Attempt(attempt))).collect();
            let passed = passed.map_or(env.now(), Timestamp);
            slice(env, run, Epoch(*epoch), &units, again.map(Timestamp), passed).await
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
