//! Moves runs on: sends what is ready, takes what is answered at once, and goes on with what follows from it.
//!
//! One invocation sends a bounded number of units for a bounded time; what is left goes through the queue in slices.
//! Every send is joined before the invocation returns: Lambda freezes what is left behind.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ebb_engine::follow::in_flight;
use ebb_engine::{Attempt, Epoch, Millis, RunOutcome, RunPhase, Timestamp, Unit};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tracing::Instrument as _;

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::QueueMessage;
use crate::run::acceptances::AcceptanceBatch;
use crate::run::attempt::AttemptRef;
use crate::run::dispatch;
use crate::run::dispatch_outcome::DispatchOutcome;
use crate::run::dispatch_outcome::DispatchReason;
use crate::run::head::Run;
use crate::run::inputs;
use crate::run::inputs::InvocationCache;
use crate::run::lease;
use crate::run::progress::Continuation;
use crate::run::progress::RunProgress;
use crate::run::results;
use crate::run::undo;
use crate::run::wakeup;
use crate::run::wakeup::AttemptWakeup;
use crate::target::transition;
use crate::target::transition::NotificationSender;
use crate::telemetry;

/// Sends at a time. A send is mostly waiting.
const MAX_CONCURRENT: usize = 64;
/// Units per message of the queue.
const UNITS_PER_MESSAGE: usize = 50;
/// After a failed send the run is looked at again after this long.
const RETRY_DELAY: Millis = Millis(2_000);

/// A look that units are sent for.
pub(crate) struct SweepContext {
    /// Those of which no start is recorded.
    pub(crate) unstarted: BTreeSet<(Unit, Attempt)>,
    /// When the look makes the run due again at the latest.
    pub(crate) next_sweep: Timestamp,
    /// True if the look has passed the units on.
    pub(crate) is_slice: bool,
}

/// Goes on until nothing is left to do at once: over the ends of runs, into the runs that follow them. The queue passes the
/// outcome of the last run on.
///
/// # Errors
/// The first error of the store, after everything that was begun has ended and the run is due to be looked at again.
pub async fn drive(env: &Env, work: Continuation) -> Result<(), FlowError> {
    drive_until_spent(env, work, None, NotificationSender::Queue).await.map(drop)
}

/// Does what [`drive`] does, and sends the notification of the last run, as long as its budget lasts. It may wait for the platform.
///
/// # Errors
/// As [`drive`].
pub(crate) async fn drive_to_outcome(env: &Env, work: Continuation) -> Result<(), FlowError> {
    drive_until_spent(env, work, None, NotificationSender::Invocation).await.map(drop)
}

/// Does what [`drive`] does for a look, which makes the run due again by itself. Gives when at the latest, if that matters
/// to a unit.
///
/// # Errors
/// As [`drive`], but that the run is not made due.
pub(crate) async fn drive_for_sweep(
    env: &Env,
    work: Continuation,
    behalf: &SweepContext,
) -> Result<Option<Timestamp>, FlowError> {
    drive_until_spent(env, work, Some(behalf), NotificationSender::Queue).await
}

async fn drive_until_spent(
    env: &Env,
    work: Continuation,
    behalf: Option<&SweepContext>,
    sender: NotificationSender,
) -> Result<Option<Timestamp>, FlowError> {
    let until = env.now().plus(Millis(millis(env.settings.dispatch_budget)));
    let mut next = Some((work, behalf));
    let mut sends = 0;
    let mut wake = None;
    while let Some((work, behalf)) = next {
        telemetry::run_driven(&work.run.id);
        let over = match work.outcome {
            Some(outcome) => Some(outcome),
            None => {
                let (over, first) = send_all(env, &work, until, &mut sends, behalf).await?;
                wake = wake.or(first);
                over
            }
        };
        next = match over {
            Some(outcome) => {
                // The caller has waited for units already: the platform would come on top of that.
                let sender = if env.now() >= until { NotificationSender::Queue } else { sender };
                // The following runs do not belong to the look.
                transition::end_run(env, &work.run, outcome, sender).await?.map(|work| (work, None))
            }
            None => None,
        };
    }
    Ok(wake)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// When a run has to be looked at because of what was sent of it.
#[derive(Default)]
struct WakeupTimes {
    poll: Option<Timestamp>,
    recorded: Option<Timestamp>,
}

impl WakeupTimes {
    fn add(&mut self, wake: AttemptWakeup) {
        let (earliest, at) = match wake {
            AttemptWakeup::Poll(at) => (&mut self.poll, at),
            AttemptWakeup::Recorded(at) => (&mut self.recorded, at),
        };
        *earliest = Some(earliest.map_or(at, |known| known.min(at)));
    }

    fn earliest(&self) -> Option<Timestamp> {
        self.poll.into_iter().chain(self.recorded).min()
    }

    /// Has the run looked at in time: once, however many units want it. Gives when a look has to see to that itself.
    async fn schedule(
        &self,
        env: &Env,
        run: &Run,
        behalf: Option<&SweepContext>,
    ) -> Result<Option<Timestamp>, FlowError> {
        let wanted = match behalf {
            Some(look) if !look.is_slice => return Ok(self.earliest()),
            // That look polls again.
            Some(look) if env.now() < look.next_sweep => self.recorded,
            Some(_) | None => self.earliest(),
        };
        if let Some(at) = wanted {
            wakeup::wake_by(env, &run.id, at).await?;
        }
        Ok(None)
    }
}

/// Sends what is ready and all that follows from it in this run. Gives how the run ended, if it did, and when the look that
/// this is done for has to look again.
async fn send_all(
    env: &Env,
    work: &Continuation,
    until: Timestamp,
    sends: &mut usize,
    behalf: Option<&SweepContext>,
) -> Result<(Option<RunOutcome>, Option<Timestamp>), FlowError> {
    let mut ready: VecDeque<(Unit, Attempt)> = work.ready.iter().copied().collect();
    // All are polled together: a batch may wait for memory that a send under way holds.
    let mut under_way: FuturesUnordered<BoxFuture<'_, DriveStep>> = FuturesUnordered::new();
    let (mut sending, mut is_preparing) = (0, false);
    let mut over = None;
    let mut wakes = WakeupTimes::default();
    let mut accepted = AcceptanceBatch::default();
    let mut error: Option<FlowError> = None;
    loop {
        // One batch at a time is prepared, so that no two read the same.
        if !is_preparing && error.is_none() {
            let mut batch = Vec::new();
            while sending + batch.len() < MAX_CONCURRENT && !is_spent(env, until, *sends) {
                let Some(one) = ready.pop_front() else { break };
                *sends += 1;
                batch.push(one);
            }
            if !batch.is_empty() {
                is_preparing = true;
                under_way.push(prepare(env, work, batch).boxed());
            }
        }
        // What this invocation will not send goes now: a slow answer that is still awaited must not hold it up.
        if error.is_none() && !ready.is_empty() && is_spent(env, until, *sends) {
            let rest: Vec<_> = std::mem::take(&mut ready).into();
            let passed = async move { DriveStep::Enqueued(enqueue_rest(env, work, &rest, behalf).await) };
            under_way.push(passed.boxed());
        }
        match under_way.next().await {
            None => break,
            Some(DriveStep::Prepared(Ok(batch))) => {
                is_preparing = false;
                sending += batch.len();
                for (unit, attempt) in batch {
                    let this = AttemptRef { unit, attempt, epoch: work.epoch };
                    let sender = match behalf {
                        None => DispatchReason::Result,
                        Some(look) if look.unstarted.contains(&(unit, attempt)) => DispatchReason::SweepStart,
                        Some(_) => DispatchReason::SweepRepeat,
                    };
                    let sent = dispatch_one(env, &work.run, this, &work.cache, sender);
                    under_way.push(sent.map(DriveStep::Dispatched).boxed());
                }
            }
            Some(DriveStep::Dispatched(Ok(DispatchProgress { progress, wakeup: wake, accepted: this }))) => {
                sending -= 1;
                ready.extend(progress.ready);
                over = over.or(progress.outcome);
                wake.into_iter().for_each(|wake| wakes.add(wake));
                this.into_iter().for_each(|this| accepted.add(this, env.now()));
            }
            Some(DriveStep::Enqueued(Ok(wake))) => wake.into_iter().for_each(|wake| wakes.add(wake)),
            Some(
                DriveStep::Prepared(Err(failed))
                | DriveStep::Dispatched(Err(failed))
                | DriveStep::Enqueued(Err(failed)),
            ) => error = Some(error.unwrap_or(failed)),
        }
        if (under_way.is_empty() || accepted.is_due(env.now()))
            && let Err(failed) = accepted.flush(env, &work.run).await
        {
            error = Some(error.unwrap_or(failed));
        }
    }
    // The table first: if that fails too, only the caller's repetition or the next look remains.
    let seen = match error {
        None => return Ok((over, wakes.schedule(env, &work.run, behalf).await?)),
        Some(error) if behalf.is_some_and(|look| !look.is_slice) => return Err(error),
        Some(error) => (wakeup::wake_by(env, &work.run.id, env.now().plus(RETRY_DELAY)).await, error),
    };
    if let Err(second) = seen.0 {
        tracing::warn!(run = %work.run.id, %second, "the run could not be made due");
    }
    Err(seen.1)
}

/// Returns true if this invocation begins no further send.
fn is_spent(env: &Env, until: Timestamp, sends: usize) -> bool {
    sends >= env.settings.max_dispatches || (sends > 0 && env.now() >= until)
}

/// A step of a drive that has ended.
enum DriveStep {
    Prepared(Result<Vec<(Unit, Attempt)>, FlowError>),
    /// A try was sent, and concluded if it was answered at once.
    Dispatched(Result<DispatchProgress, FlowError>),
    Enqueued(Result<Option<AttemptWakeup>, FlowError>),
}

/// Does what comes before a batch is sent, once for all of it.
async fn prepare(env: &Env, work: &Continuation, batch: Vec<(Unit, Attempt)>) -> DriveStep {
    let units: Vec<Unit> = batch.iter().map(|(unit, _)| *unit).collect();
    let prepared = async {
        undo::seal(env, &work.run, &units, &work.cache).await?;
        inputs::prefetch(env, &work.run, &units, &work.cache).await
    };
    DriveStep::Prepared(prepared.await.map(|()| batch))
}

/// The outcome of the send of one try.
struct DispatchProgress {
    progress: RunProgress,
    wakeup: Option<AttemptWakeup>,
    /// The try, if its receiver will call back and that is not noted.
    accepted: Option<AttemptRef>,
}

/// One try: sent, and concluded if it was answered at once.
async fn dispatch_one(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    memory: &InvocationCache,
    sender: DispatchReason,
) -> Result<DispatchProgress, FlowError> {
    let key = run.unit(this.unit).map_or("", |unit| unit.key.as_str());
    let span = tracing::info_span!("attempt", run = %run.id, unit = key, attempt = this.attempt.0);
    Box::pin(send(env, run, this, memory, sender)).instrument(span).await
}

async fn send(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    memory: &InvocationCache,
    sender: DispatchReason,
) -> Result<DispatchProgress, FlowError> {
    let sent = Box::pin(dispatch::send(env, run, this, memory, sender)).await?;
    log_outcome(&sent);
    let progress = match sent.end {
        Some(ended) => Box::pin(results::apply_result(env, run, this, &ended, sent.remaining, memory)).await?,
        None => RunProgress::default(),
    };
    Ok(DispatchProgress { progress, wakeup: sent.wakeup, accepted: sent.is_accepted.then_some(this) })
}

/// Logs what goes well at debug: the figures of the invocation count it.
fn log_outcome(sent: &DispatchOutcome) {
    match &sent.end {
        None => tracing::debug!("no result yet"),
        Some(crate::run::attempt_end::AttemptEnd::Succeeded(_)) => tracing::debug!("succeeded"),
        Some(crate::run::attempt_end::AttemptEnd::Skipped(_)) => tracing::debug!("skipped"),
        Some(crate::run::attempt_end::AttemptEnd::Failed(_)) => tracing::info!("failed"),
        Some(crate::run::attempt_end::AttemptEnd::Cancelled(_)) => tracing::info!("cancelled"),
    }
}

/// Hands units to other invocations. The run is due soon before the messages go: a lost one costs time only. A look sees to
/// that itself, at the time that is given.
async fn enqueue_rest(
    env: &Env,
    work: &Continuation,
    units: &[(Unit, Attempt)],
    behalf: Option<&SweepContext>,
) -> Result<Option<AttemptWakeup>, FlowError> {
    let again = behalf.map(|look| look.next_sweep);
    if again.is_none_or(|again| again <= env.now()) {
        // Refused where the run is due sooner anyway. A lost message costs only time, so one attempt is enough.
        let due = env.now().plus(env.settings.first_sweep_delay);
        env.store.patch_run(&work.run.id, &ebb_engine::accept(ebb_engine::RunEvent::WakeupAdvanced { due })).await?;
    }
    let slices = units
        .chunks(UNITS_PER_MESSAGE)
        .map(|slice| QueueMessage::dispatch(&work.run.id, work.epoch, slice, again, env.now()));
    env.queue.send_all(slices.collect()).await;
    Ok(again.filter(|&again| again > env.now()).map(AttemptWakeup::Poll))
}

/// Sends a slice that another invocation passed on at `passed`, as far as it still has to be sent. `again`: when the look that
/// has passed it on looks at the run again, if it was one.
///
/// # Errors
/// The store's.
pub async fn drive_slice(
    env: &Env,
    run: &ebb_protocol::id::RunId,
    epoch: Epoch,
    units: &[(Unit, Attempt)],
    again: Option<Timestamp>,
    passed: Timestamp,
) -> Result<(), FlowError> {
    let Some(run) = Run::load(env, run).await? else { return Ok(()) };
    let view = run.read_view(env).await?;
    let running = view.root().is_some_and(|root| root.phase == RunPhase::Running && root.epoch == epoch);
    if !running {
        return Ok(());
    }
    let open: BTreeSet<(Unit, Attempt)> = in_flight(run.graph(), &view).into_iter().collect();
    let ready = units.iter().copied().filter(|one| open.contains(one)).collect();
    let is_own = lease::lease_delivery(env, &run, units, passed).await?;
    let mut unsent = lease::unsent(env, &run, ready).await?;
    unsent.retain(|one| is_own || !one.is_webhook);
    let ready = unsent.iter().map(|one| one.unit_attempt).collect();
    let work = Continuation { run, epoch, ready, outcome: None, cache: InvocationCache::default() };
    let Some(again) = again else { return drive(env, work).await };
    let unstarted = unsent.iter().filter(|one| !one.is_started).map(|one| one.unit_attempt).collect();
    drive_for_sweep(env, work, &SweepContext { unstarted, next_sweep: again, is_slice: true }).await.map(drop)
}
