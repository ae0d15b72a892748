//! Moves runs on: sends what is ready, takes what is answered at once, and goes on with what follows from it.
//!
//! One invocation sends a bounded number of units for a bounded time; what is left goes through the queue in slices.
//! Every send is joined before the invocation returns: Lambda freezes what is left behind.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ebb_engine::follow::in_flight;
use ebb_engine::{Attempt, Epoch, Outcome, RunPhase, Unit};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tracing::Instrument as _;

use crate::claim;
use crate::dispatch::{self, Sent, Try};
use crate::env::Env;
use crate::error::FlowError;
use crate::finish;
use crate::inputs::{self, Memory};
use crate::observe;
use crate::ports::Message;
use crate::results::{self, Progress};
use crate::run::Run;
use crate::switch::{self, Rule};
use crate::undo;

/// Sends at a time. A send is mostly waiting.
const AT_ONCE: usize = 64;
/// Units per message of the queue.
const SLICE: usize = 50;
/// After a failed send the run is looked at again after this long.
const AFTER_ERROR_MS: u64 = 2_000;

/// Something to go on with.
pub struct Work {
    /// The run.
    pub run: Run,
    /// Its epoch.
    pub epoch: Epoch,
    /// Units to send.
    pub ready: Vec<(Unit, Attempt)>,
    /// Set when nothing of the run can move any more.
    pub over: Option<Outcome>,
    /// What is known of it.
    pub memory: Memory,
}

impl Work {
    /// What follows from a result of `run`.
    pub fn of(run: Run, epoch: Epoch, progress: Progress, memory: Memory) -> Self {
        Self { run, epoch, ready: progress.ready, over: progress.over, memory }
    }
}

/// Goes on until nothing is left to do at once: over the ends of runs, into the runs that follow them.
///
/// # Errors
/// The first error of the store, after everything that was begun has ended and the run is due to be looked at again.
pub async fn drive(env: &Env, work: Work) -> Result<(), FlowError> {
    let until = env.now().plus(ebb_engine::Millis(millis(env.settings.budget)));
    let mut next = Some(work);
    let mut sends = 0;
    while let Some(work) = next {
        observe::drives(&work.run.id);
        let over = match work.over {
            Some(outcome) => Some(outcome),
            None => send_all(env, &work, until, &mut sends).await?,
        };
        next = match over {
            Some(outcome) => finish::over(env, &work.run, outcome).await?,
            None => None,
        };
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Sends what is ready and all that follows from it in this run. Gives how the run ended, if it did.
async fn send_all(
    env: &Env,
    work: &Work,
    until: ebb_engine::Timestamp,
    sends: &mut usize,
) -> Result<Option<Outcome>, FlowError> {
    let mut ready: VecDeque<(Unit, Attempt)> = work.ready.iter().copied().collect();
    let mut under_way = FuturesUnordered::new();
    let mut over = None;
    let mut error: Option<FlowError> = None;
    loop {
        let mut batch = Vec::new();
        while under_way.len() + batch.len() < AT_ONCE && error.is_none() {
            if is_spent(env, until, *sends) {
                break;
            }
            let Some(one) = ready.pop_front() else { break };
            *sends += 1;
            batch.push(one);
        }
        if !batch.is_empty() {
            let units: Vec<Unit> = batch.iter().map(|(unit, _)| *unit).collect();
            if let Err(failed) = prepare(env, work, &units).await {
                error = Some(failed);
                ready.extend(batch.drain(..));
            }
            for (unit, attempt) in batch {
                let this = Try { unit, attempt, epoch: work.epoch };
                under_way.push(one(env, &work.run, this, &work.memory));
            }
        }
        // What this invocation will not send goes now: a slow answer that is still awaited must not hold it up.
        if error.is_none() && !ready.is_empty() && is_spent(env, until, *sends) {
            match pass_on(env, work, ready.make_contiguous()).await {
                Ok(()) => ready.clear(),
                Err(failed) => error = Some(failed),
            }
        }
        if !switch::holds(Rule::JoinEverySend) && ready.is_empty() {
            // What is left behind is frozen: polled once, and never again.
            futures::future::poll_immediate(under_way.next()).await;
            break;
        }
        match under_way.next().await {
            None => break,
            Some(Ok(progress)) => {
                ready.extend(progress.ready);
                over = over.or(progress.over);
            }
            Some(Err(failed)) => error = Some(error.unwrap_or(failed)),
        }
    }
    if let Some(error) = error {
        // The table first: if even that fails, the caller's repetition or the next look is what is left.
        if let Err(second) = dispatch::hasten(env, &work.run, AFTER_ERROR_MS).await {
            tracing::warn!(run = %work.run.id, %second, "the run could not be made due");
        }
        return Err(error);
    }
    Ok(over)
}

/// Whether this invocation begins no further send.
fn is_spent(env: &Env, until: ebb_engine::Timestamp, sends: usize) -> bool {
    sends >= env.settings.sends || (sends > 0 && env.now() >= until)
}

/// What comes before a batch is sent: once for all of it.
async fn prepare(env: &Env, work: &Work, units: &[Unit]) -> Result<(), FlowError> {
    undo::seal(env, &work.run, units, &work.memory).await?;
    inputs::prepare(env, &work.run, units, &work.memory).await
}

/// One try: sent, and concluded if it was answered at once.
async fn one(env: &Env, run: &Run, this: Try, memory: &Memory) -> Result<Progress, FlowError> {
    let key = run.unit(this.unit).map_or("", |unit| unit.key.as_str());
    let span = tracing::info_span!("try", run = %run.id, unit = key, attempt = this.attempt.0);
    Box::pin(send(env, run, this, memory)).instrument(span).await
}

async fn send(env: &Env, run: &Run, this: Try, memory: &Memory) -> Result<Progress, FlowError> {
    let sent = Box::pin(dispatch::send(env, run, this, memory)).await?;
    log(&sent);
    match sent.ended {
        Some(ended) => Box::pin(results::conclude(env, run, this, &ended, sent.more, memory)).await,
        None => Ok(Progress::default()),
    }
}

/// Logs what goes well at debug: the figures of the invocation count it.
fn log(sent: &Sent) {
    match &sent.ended {
        None => tracing::debug!("no result yet"),
        Some(crate::outcome::Ended::Succeeded(_)) => tracing::debug!("succeeded"),
        Some(crate::outcome::Ended::Skipped(_)) => tracing::debug!("skipped"),
        Some(crate::outcome::Ended::Failed(_)) => tracing::info!("failed"),
        Some(crate::outcome::Ended::Cancelled(_)) => tracing::info!("cancelled"),
    }
}

/// Hands units to other invocations. The run is due soon before the messages go: a lost one costs time only.
async fn pass_on(env: &Env, work: &Work, units: &[(Unit, Attempt)]) -> Result<(), FlowError> {
    // Refused where it is due sooner anyway. A lost message costs time, so nobody has to look twice for it.
    let due = env.now().plus(env.settings.first_look);
    env.store.patch_run(&work.run.id, &ebb_engine::accept(ebb_engine::Event::Hastened { due })).await?;
    for slice in units.chunks(SLICE) {
        env.queue.send(Message::dispatch(&work.run.id, work.epoch, slice), Duration::ZERO).await;
    }
    Ok(())
}

/// Sends a slice that another invocation has passed on, as far as it still has to be sent.
///
/// # Errors
/// The store's.
pub async fn slice(
    env: &Env,
    run: &ebb_wire::id::RunId,
    epoch: Epoch,
    units: &[(Unit, Attempt)],
) -> Result<(), FlowError> {
    let Some(run) = Run::load(env, run).await? else { return Ok(()) };
    let view = run.look(env).await?;
    let running = view.root().is_some_and(|root| root.phase == RunPhase::Running && root.epoch == epoch);
    if !running {
        return Ok(());
    }
    let open: BTreeSet<(Unit, Attempt)> = in_flight(run.graph(), &view).into_iter().collect();
    let ready = units.iter().copied().filter(|one| open.contains(one)).collect();
    let ready = claim::unsent(env, &run, ready).await?;
    drive(env, Work { run, epoch, ready, over: None, memory: Memory::default() }).await
}
