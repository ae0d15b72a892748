//! Drives a run: dispatches ready attempts, applies immediate results, and continues with the next attempts.
//!
//! An invocation dispatches a limited number of attempts for a limited time. The rest goes through the queue in slices.
//! Every dispatch is joined before the invocation returns, because Lambda freezes remaining tasks (rule JoinEverySend).

use std::collections::{BTreeSet, VecDeque};

use ebb_engine::{Attempt, AttemptRef, HeadState, Millis, RunEvent, RunPhase, Timestamp, Unit, accept, in_flight};
use ebb_protocol::id::RunId;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tracing::Instrument as _;

use crate::advance::transition::{self, NotificationSender};
use crate::advance::{Continuation, RunEnd, RunProgress, apply_result, cancel, next_run};
use crate::run::acceptances::AcceptanceBatch;
use crate::run::wakeup::{self, AttemptWakeup};
use crate::run::{AttemptContext, AttemptEnd, DispatchOutcome, DispatchReason, dispatch, inputs, lease, undo};
use crate::{Env, ExpectedResult, FlowError, FlowResult, ForwardedAttempts, QueueMessage, Run, telemetry};

/// Maximum concurrent dispatches. A dispatch spends most of its time waiting.
const MAX_CONCURRENT: usize = 64;
const UNITS_PER_MESSAGE: usize = 50;
/// The wait before the next sweep after a failed dispatch.
const RETRY_DELAY: Millis = Millis(2_000);

/// The sweep that dispatches attempts.
pub(crate) struct SweepContext {
    /// Attempts without a recorded start.
    pub(crate) unstarted: BTreeSet<(Unit, Attempt)>,
    /// All attempts that the sweep dispatches. Results make further ones ready.
    pub(crate) own: BTreeSet<(Unit, Attempt)>,
    /// The time at which the sweep makes the run due again at the latest.
    pub(crate) next_sweep: Timestamp,
    /// True if the sweep forwarded the attempts through the queue.
    pub(crate) is_slice: bool,
}

/// Drives a run, if there is one, and the runs that follow it, until no step is possible now. The queue delivers the
/// notification of the last run.
///
/// # Errors
/// Returns the first error, after every dispatch has ended and the run is due again.
pub async fn drive(env: &Env, continuation: impl Into<Option<Continuation>>) -> FlowResult<()> {
    let Some(continuation) = continuation.into() else { return Ok(()) };
    drive_until_spent(env, continuation, None, NotificationSender::Queue).await.map(drop)
}

/// The follow-up of an accepted request. If this process ends early, `sweep` does it later.
#[derive(Default)]
pub struct FollowUp {
    pub(crate) continuation: Option<Continuation>,
    /// A cancelled run whose attempts have to be stopped.
    pub(crate) cancelled_run: Option<RunId>,
}

impl FollowUp {
    pub(crate) fn drive(continuation: Option<Continuation>) -> Self {
        Self { continuation, ..Self::default() }
    }

    /// Runs the follow-up, with the notifications of its runs: it may wait for the platform. After an error, `sweep` does
    /// the rest.
    pub async fn finish(self, env: &Env) -> FlowResult<()> {
        if let Some(continuation) = self.continuation {
            Box::pin(drive_until_spent(env, continuation, None, NotificationSender::Invocation)).await?;
        }
        if let Some(run) = self.cancelled_run
            && let Some(continuation) = Box::pin(cancel::cancel_run(env, &run)).await?
        {
            Box::pin(drive_until_spent(env, continuation, None, NotificationSender::Invocation)).await?;
        }
        Ok(())
    }
}

/// Does the same as [`drive`], also for a sweep, which makes the run due again itself. Returns the time at which a unit
/// needs the next sweep. `sender` delivers the notification of the last run.
///
/// # Errors
/// Returns the first error, after every dispatch has ended. The run of a sweep is not made due.
pub(crate) async fn drive_until_spent(
    env: &Env,
    continuation: Continuation,
    sweep: Option<&SweepContext>,
    sender: NotificationSender,
) -> FlowResult<Option<Timestamp>> {
    let until = env.now().plus(env.settings.dispatch_budget.into());
    let mut next = Some((continuation, sweep));
    let mut dispatches = 0;
    let mut wakeup = None;
    while let Some((mut continuation, sweep)) = next {
        telemetry::run_driven(&continuation.run.id);
        let end = match continuation.end.take() {
            Some(end) => Some(end),
            None => {
                let (end, first) = send_all(env, &continuation, until, &mut dispatches, sweep).await?;
                wakeup = wakeup.or(first);
                end
            }
        };
        let Some(end) = end else { break };
        // The caller has already waited for units, so the queue delivers the notification.
        let sender = if env.now() >= until { NotificationSender::Queue } else { sender };
        let known = (continuation.target.take(), sender);
        let (following, has_pending_update) = Box::pin(transition::end_run(env, &continuation.run, end, known)).await?;
        let following = match has_pending_update {
            true => Box::pin(next_run::start_update(env, false, continuation.run.facts.target_key())).await?,
            false => following,
        };
        // Following runs are not part of the sweep.
        next = following.map(|following| (following, None));
    }
    Ok(wakeup)
}

/// The earliest times at which dispatched attempts need a sweep.
#[derive(Default)]
struct WakeupTimes {
    poll: Option<Timestamp>,
    recorded: Option<Timestamp>,
}

impl WakeupTimes {
    fn add(&mut self, wakeup: AttemptWakeup) {
        let (earliest, at) = match wakeup {
            AttemptWakeup::Poll(at) => (&mut self.poll, at),
            AttemptWakeup::Recorded(at) => (&mut self.recorded, at),
        };
        *earliest = Some(earliest.map_or(at, |earliest| earliest.min(at)));
    }

    fn earliest(&self) -> Option<Timestamp> {
        self.poll.into_iter().chain(self.recorded).min()
    }

    /// Makes the run due at the earliest time, with one write for all attempts. Returns the time if the sweep has to do
    /// that itself.
    async fn schedule(&self, env: &Env, run: &Run, sweep: Option<&SweepContext>) -> FlowResult<Option<Timestamp>> {
        let due = match sweep {
            Some(sweep) if !sweep.is_slice => return Ok(self.earliest()),
            // The sweep polls at its next time.
            Some(sweep) if env.now() < sweep.next_sweep => self.recorded,
            Some(_) | None => self.earliest(),
        };
        if let Some(at) = due {
            wakeup::wake_by(env, &run.id, at).await?;
        }
        Ok(None)
    }
}

/// Dispatches the ready attempts of a run and all that follow. Returns the end of the run if it ended, and the time of
/// the next step of the sweep.
async fn send_all(
    env: &Env,
    continuation: &Continuation,
    until: Timestamp,
    dispatches: &mut usize,
    sweep: Option<&SweepContext>,
) -> FlowResult<(Option<RunEnd>, Option<Timestamp>)> {
    let mut ready: VecDeque<(Unit, Attempt)> = continuation.ready.iter().copied().collect();
    // All steps are polled together, because a batch may wait for memory that a dispatch holds.
    let mut in_progress: FuturesUnordered<BoxFuture<'_, FlowResult<DriveStep>>> = FuturesUnordered::new();
    let (mut dispatching, mut is_preparing) = (0, false);
    let mut end: Option<RunEnd> = None;
    let mut wakeups = WakeupTimes::default();
    let mut accepted = AcceptanceBatch::default();
    let mut error: Option<FlowError> = None;
    loop {
        // Batches are prepared one at a time, so that two do not read the same data.
        if !is_preparing && error.is_none() {
            let mut batch = Vec::new();
            while dispatching + batch.len() < MAX_CONCURRENT && !is_spent(env, until, *dispatches) {
                let Some(one) = ready.pop_front() else { break };
                *dispatches += 1;
                batch.push(one);
            }
            if !batch.is_empty() {
                is_preparing = true;
                in_progress.push(prepare(env, continuation, batch).boxed());
            }
        }
        // The rest is enqueued now, so that a slow response does not delay it.
        if error.is_none() && !ready.is_empty() && is_spent(env, until, *dispatches) {
            let rest: Vec<_> = std::mem::take(&mut ready).into();
            let enqueue = async move { enqueue_rest(env, continuation, &rest, sweep).await.map(DriveStep::Enqueued) };
            in_progress.push(enqueue.boxed());
        }
        match in_progress.next().await {
            None => break,
            Some(Err(failed)) => error = Some(error.unwrap_or(failed)),
            Some(Ok(DriveStep::Prepared(batch))) => {
                is_preparing = false;
                dispatching += batch.len();
                for (unit, number) in batch {
                    let attempt = AttemptRef { unit, number, epoch: continuation.epoch };
                    let reason = match sweep {
                        Some(sweep) if sweep.unstarted.contains(&(unit, number)) => DispatchReason::SweepStart,
                        Some(sweep) if sweep.own.contains(&(unit, number)) => DispatchReason::SweepRepeat,
                        Some(_) | None => DispatchReason::Result,
                    };
                    in_progress.push(dispatch_one(env, continuation, attempt, reason).boxed());
                }
            }
            Some(Ok(DriveStep::Dispatched { progress, wakeup, accepted: attempt })) => {
                dispatching -= 1;
                ready.extend(progress.ready);
                end = end.or(progress.end);
                wakeup.into_iter().for_each(|wakeup| wakeups.add(wakeup));
                attempt.into_iter().for_each(|attempt| accepted.add(attempt, env.now()));
            }
            Some(Ok(DriveStep::Enqueued(wakeup))) => wakeup.into_iter().for_each(|wakeup| wakeups.add(wakeup)),
        }
        if in_progress.is_empty() && ready.is_empty() {
            accepted.wait(env).await;
        }
        if (in_progress.is_empty() || accepted.is_due(env.now()))
            && let Err(failed) = accepted.flush(env, &continuation.run).await
        {
            error = Some(error.unwrap_or(failed));
        }
    }
    // The wake-up is written before the error is returned. If the write fails, too, only the repetition by the caller
    // or the next sweep remains.
    let (written, error) = match error {
        None => {
            let next_sweep = wakeups.schedule(env, &continuation.run, sweep).await?;
            // A wake-up bumps the version, so the head of the last result cannot close the run any more.
            if let (Some(end), Some(_)) = (&mut end, wakeups.earliest()) {
                end.head = None;
            }
            return Ok((end, next_sweep));
        }
        Some(error) if sweep.is_some_and(|sweep| !sweep.is_slice) => return Err(error),
        Some(error) => (wakeup::wake_by(env, &continuation.run.id, env.now().plus(RETRY_DELAY)).await, error),
    };
    if let Err(second) = written {
        tracing::warn!(run = %continuation.run.id, %second, "cannot make the run due");
    }
    Err(error)
}

/// Returns true if this invocation starts no further dispatch.
fn is_spent(env: &Env, until: Timestamp, dispatches: usize) -> bool {
    dispatches >= env.settings.max_dispatches || (dispatches > 0 && env.now() >= until)
}

enum DriveStep {
    Prepared(Vec<(Unit, Attempt)>),
    Dispatched {
        progress: RunProgress,
        wakeup: Option<AttemptWakeup>,
        /// The attempt, if its acceptance has to be recorded, with its result.
        accepted: Option<(AttemptRef, ExpectedResult)>,
    },
    Enqueued(Option<AttemptWakeup>),
}

/// Seals undone units and reads inputs, once for a whole batch.
async fn prepare(env: &Env, continuation: &Continuation, batch: Vec<(Unit, Attempt)>) -> FlowResult<DriveStep> {
    let units: Vec<Unit> = batch.iter().map(|(unit, _)| *unit).collect();
    undo::seal(env, &continuation.run, &units, &continuation.cache).await?;
    inputs::prefetch(env, &continuation.run, &units, &continuation.cache).await?;
    Ok(DriveStep::Prepared(batch))
}

/// Dispatches an attempt, and applies its result if it is immediate.
async fn dispatch_one(
    env: &Env,
    Continuation { run, cache, .. }: &Continuation,
    attempt: AttemptRef,
    reason: DispatchReason,
) -> FlowResult<DriveStep> {
    let context = AttemptContext::new(env, run, attempt, cache)?;
    let unit = context.unit;
    let span = tracing::info_span!("attempt", run = %run.id, unit = unit.key, attempt = attempt.number.0);
    let send = async {
        let expected = env.cache.taken_results.observe(&run.id, attempt.unit, attempt.number);
        let outcome = Box::pin(dispatch::send(context, reason)).await?;
        log_outcome(&outcome);
        let progress = match outcome.end {
            Some(end) => Box::pin(apply_result::apply_result(context, &end, outcome.remaining)).await?,
            None => RunProgress::default(),
        };
        let accepted = outcome.is_accepted.then_some((attempt, expected));
        Ok::<_, FlowError>(DriveStep::Dispatched { progress, wakeup: outcome.wakeup, accepted })
    };
    Box::pin(send).instrument(span).await
}

/// Logs successes at debug level, because the metrics of the invocation count them.
fn log_outcome(outcome: &DispatchOutcome) {
    match &outcome.end {
        None => tracing::debug!("no result yet"),
        Some(AttemptEnd::Succeeded(_)) => tracing::debug!("succeeded"),
        Some(AttemptEnd::Skipped(_)) => tracing::debug!("skipped"),
        Some(AttemptEnd::Failed(_)) => tracing::info!("failed"),
        Some(AttemptEnd::Cancelled(_)) => tracing::info!("cancelled"),
    }
}

/// Forwards attempts to other invocations through the queue. Makes the run due first, so that a lost message only
/// causes a delay. A sweep makes the run due itself.
async fn enqueue_rest(
    env: &Env,
    continuation: &Continuation,
    units: &[(Unit, Attempt)],
    sweep: Option<&SweepContext>,
) -> FlowResult<Option<AttemptWakeup>> {
    let next_sweep = sweep.map(|sweep| sweep.next_sweep);
    if next_sweep.is_none_or(|next_sweep| next_sweep <= env.now()) {
        // The write is rejected if the run is due sooner. A lost message only causes a delay, so one attempt is enough.
        let due = env.now().plus(env.settings.first_sweep_delay);
        env.store.patch_run(&continuation.run.id, &accept(RunEvent::WakeupAdvanced { due })).await?;
    }
    let slices = units.chunks(UNITS_PER_MESSAGE).map(|units| {
        let (run, epoch, units) = (continuation.run.id.clone(), continuation.epoch, units.to_vec());
        QueueMessage::Dispatch(ForwardedAttempts { run, epoch, units, next_sweep, forwarded_at: env.now() })
    });
    env.queue.send_all(slices.collect()).await;
    Ok(next_sweep.filter(|&next_sweep| next_sweep > env.now()).map(AttemptWakeup::Poll))
}

/// Dispatches the forwarded attempts that are still unsent.
pub(crate) async fn drive_slice(env: &Env, slice: &ForwardedAttempts) -> FlowResult<()> {
    let is_running = |head: &HeadState| head.phase == RunPhase::Running && head.epoch == slice.epoch;
    let running = Run::load_with_head(env, &slice.run).await?.filter(|(_, head)| is_running(head));
    let Some((run, head)) = running else { return Ok(()) };
    let open: BTreeSet<(Unit, Attempt)> = in_flight(run.graph(), &head).into_iter().collect();
    let ready = slice.units.iter().copied().filter(|attempt| open.contains(attempt)).collect();
    let is_own = lease::lease_delivery(env, &run, &slice.units, slice.forwarded_at).await?;
    let mut unsent = lease::unsent(env, &run, ready).await?;
    // The sweep that starts a postponed attempt records the start.
    unsent.retain(|attempt| {
        let is_postponed = attempt.is_postponed && !attempt.is_started;
        !attempt.is_webhook || (is_own && !is_postponed)
    });
    let ready: Vec<_> = unsent.iter().map(|attempt| attempt.unit_attempt).collect();
    let own = ready.iter().copied().collect();
    let continuation = Continuation::dispatching(run, slice.epoch, ready);
    let Some(next_sweep) = slice.next_sweep else { return drive(env, continuation).await };
    let unstarted = unsent.iter().filter(|attempt| !attempt.is_started).map(|attempt| attempt.unit_attempt).collect();
    let context = SweepContext { unstarted, own, next_sweep, is_slice: true };
    drive_until_spent(env, continuation, Some(&context), NotificationSender::Queue).await.map(drop)
}
