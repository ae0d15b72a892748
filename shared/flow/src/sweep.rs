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

/// Things that one sweep looks at. Those that wait for a cluster hold no place.
const AT_ONCE: usize = 2_000;
/// Things that are put off at a time, of those that a sweep could not look at to their end.
const PUT_OFF_AT_ONCE: usize = 16;
/// No hint is sent further ahead: SQS delays no message for longer, and the schedule comes by anyway.
const LONGEST_HINT: Duration = Duration::from_secs(900);

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Things that it looked at.
    pub looked: usize,
    /// Things that could not be dealt with; they are due again.
    pub failed: usize,
    /// Things that were not dealt with to the end.
    pub given_up: usize,
    /// Milliseconds that the most urgent one was due for when it was found.
    pub late_ms: u64,
}

/// Whether a look has to wait until the run is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Yes.
    Due,
    /// No: whoever was sending may have died, and nothing is under way from here.
    Anyway,
}

/// Looks at everything that is due.
///
/// # Errors
/// The index cannot be asked. What fails later is counted, and due again.
pub async fn sweep(env: &Env, store: &dyn SweepStore) -> Result<Swept, FlowError> {
    sweep_until(env, store, std::future::pending()).await
}

/// Looks at everything that is due. What is not looked at to its end at `end` is given up, and due again.
///
/// # Errors
/// The index cannot be asked. What fails later is counted, and due again.
pub async fn sweep_until(
    env: &Env,
    store: &dyn SweepStore,
    end: impl Future<Output = ()>,
) -> Result<Swept, FlowError> {
    let now = env.now();
    let due = store.query_due(now, AT_ONCE).await?;
    let late_ms = due.first().map_or(0, |(first, _)| now.0.saturating_sub(first.0));
    let mut swept = Swept { late_ms, ..Swept::default() };
    // Told at once: what hangs must not hide that it is late.
    observe::swept(0, late_ms);
    let places = Places::new(now);
    let begun: Mutex<BTreeSet<Due>> = Mutex::default();
    let open = || begun.lock().unwrap_or_else(PoisonError::into_inner);
    let looks = due.into_iter().map(|(_, due)| {
        let (places, open) = (&places, &open);
        async move {
            let mut place = places.take().await;
            // What is not looked at now is the first thing of the next sweep: what was looked at is due later.
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

/// Makes something due again later that was not looked at to its end.
async fn put_off(env: &Env, due: &Due) {
    let wait = env.warm.failing.wait(due, true);
    match due {
        Due::Run(run) => look::put_off(env, run, wait).await,
        Due::Target(kind, name) => target::put_off(env, kind, name, wait).await,
    }
}

/// Makes due again later what a message is about that was given up. Nothing but the message may know of it otherwise.
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
        Message::Dispatch { run, epoch, units, again } => {
            let units: Vec<(Unit, Attempt)> =
                units.iter().map(|&(unit, attempt)| (Unit(unit), Attempt(attempt))).collect();
            slice(env, run, Epoch(*epoch), &units, again.map(Timestamp)).await
        }
    }
}
