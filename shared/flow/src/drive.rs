//! Moves runs on: sends what is ready, takes what is answered at once, and goes on with what follows from it.
//!
//! One invocation sends a bounded number of units for a bounded time; what is left goes through the queue in slices.
//! Every send is joined before the invocation returns: Lambda freezes what is left behind.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ebb_engine::follow::in_flight;
use ebb_engine::{Attempt, Epoch, Millis, Outcome, RunPhase, Timestamp, Unit};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tracing::Instrument as _;

use crate::accepted::Acceptances;
use crate::claim;
use crate::dispatch::{self, Sender, Sent, Try, Wake};
use crate::env::Env;
use crate::error::FlowError;
use crate::finish::{self, Teller};
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
const AFTER_ERROR: Millis = Millis(2_000);

/// Something to go on with.
pub struct Work {
    pub run: Run,
    pub epoch: Epoch,
    pub ready: Vec<(Unit, Attempt)>,
    /// Set when the run is over.
    pub over: Option<Outcome>,
    pub memory: Memory,
}

impl Work {
    /// What follows from a result of `run`.
    pub fn of(run: Run, epoch: Epoch, progress: Progress, memory: Memory) -> Self {
        Self { run, epoch, ready: progress.ready, over: progress.over, memory }
    }
}

/// A look that units are sent for.
pub(crate) struct Behalf {
    /// Those of which no start is recorded.
    pub(crate) unstarted: BTreeSet<(Unit, Attempt)>,
    /// When the look makes the run due again at the latest.
    pub(crate) again: Timestamp,
    /// True if the look has passed the units on.
    pub(crate) is_slice: bool,
}

/// Goes on until nothing is left to do at once: over the ends of runs, into the runs that follow them. The queue passes the
/// outcome of the last run on.
///
/// # Errors
/// The first error of the store, after everything that was begun has ended and the run is due to be looked at again.
pub async fn drive(env: &Env, work: Work) -> Result<(), FlowError> {
    go_on(env, work, None, Teller::Queue).await.map(drop)
}

/// Does what [`drive`] does, and sends the outcome of the last run, as long as its budget lasts. It may wait for the platform.
///
/// # Errors
/// As [`drive`].
pub(crate) async fn drive_to_outcome(env: &Env, work: Work) -> Result<(), FlowError> {
    go_on(env, work, None, Teller::Invocation).await.map(drop)
}

/// Does what [`drive`] does for a look, which makes the run due again by itself. Gives when at the latest, if that matters
/// to a unit.
///
/// # Errors
/// As [`drive`], but that the run is not made due.
pub(crate) async fn drive_for(
    env: &Env,
    work: Work,
    behalf: &Behalf,
) -> Result<Option<Timestamp>, FlowError> {
    go_on(env, work, Some(behalf), Teller::Queue).await
}

async fn go_on(
    env: &Env,
    work: Work,
    behalf: Option<&Behalf>,
    teller: Teller,
) -> Result<Option<Timestamp>, FlowError> {
    let until = env.now().plus(Millis(millis(env.settings.budget)));
    let mut next = Some((work, behalf));
    let mut sends = 0;
    let mut wake = None;
    while let Some((work, behalf)) = next {
        observe::drives(&work.run.id);
        let over = match work.over {
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
                let teller = if env.now() >= until { Teller::Queue } else { teller };
                // The following runs do not belong to the look.
                finish::over(env, &work.run, outcome, teller).await?.map(|work| (work, None))
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
struct Wakes {
    poll: Option<Timestamp>,
    recorded: Option<Timestamp>,
}

impl Wakes {
    fn add(&mut self, wake: Wake) {
        let (earliest, at) = match wake {
            Wake::Poll(at) => (&mut self.poll, at),
            Wake::Recorded(at) => (&mut self.recorded, at),
        };
        *earliest = Some(earliest.map_or(at, |known| known.min(at)));
    }

    fn first(&self) -> Option<Timestamp> {
        self.poll.into_iter().chain(self.recorded).min()
    }

    /// Has the run looked at in time: once, however many units want it. Gives when a look has to see to that itself.
    async fn see_to(
        &self,
        env: &Env,
        run: &Run,
        behalf: Option<&Behalf>,
    ) -> Result<Option<Timestamp>, FlowError> {
        let wanted = match behalf {
            Some(look) if !look.is_slice => return Ok(self.first()),
            // That look polls again.
            Some(look) if env.now() < look.again => self.recorded,
            Some(_) | None => self.first(),
        };
        if let Some(at) = wanted {
            dispatch::hasten(env, &run.id, at).await?;
        }
        Ok(None)
    }
}

/// Sends what is ready and all that follows from it in this run. Gives how the run ended, if it did, and when the look that
/// this is done for has to look again.
async fn send_all(
    env: &Env,
    work: &Work,
    until: Timestamp,
    sends: &mut usize,
    behalf: Option<&Behalf>,
) -> Result<(Option<Outcome>, Option<Timestamp>), FlowError> {
    let mut ready: VecDeque<(Unit, Attempt)> = work.ready.iter().copied().collect();
    // All are polled together: a batch may wait for memory that a send under way holds.
    let mut under_way: FuturesUnordered<BoxFuture<'_, DriveStep>> = FuturesUnordered::new();
    let (mut sending, mut is_preparing) = (0, false);
    let mut over = None;
    let mut wakes = Wakes::default();
    let mut accepted = Acceptances::default();
    let mut error: Option<FlowError> = None;
    loop {
        // One batch at a time is prepared, so that no two read the same.
        if !is_preparing && error.is_none() {
            let mut batch = Vec::new();
            while sending + batch.len() < AT_ONCE && !is_spent(env, until, *sends) {
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
            let passed = async move { DriveStep::Passed(pass_on(env, work, &rest, behalf).await) };
            under_way.push(passed.boxed());
        }
        if !switch::holds(Rule::JoinEverySend) && ready.is_empty() && !is_preparing {
            // What is left behind is frozen: polled once, and never again.
            futures::future::poll_immediate(under_way.next()).await;
            break;
        }
        match under_way.next().await {
            None => break,
            Some(DriveStep::Prepared(Ok(batch))) => {
                is_preparing = false;
                sending += batch.len();
                for (unit, attempt) in batch {
                    let this = Try { unit, attempt, epoch: work.epoch };
                    let sender = match behalf {
                        None => Sender::Result,
                        Some(look) if look.unstarted.contains(&(unit, attempt)) => Sender::Look,
                        Some(_) => Sender::Repeat,
                    };
                    let sent = one(env, &work.run, this, &work.memory, sender);
                    under_way.push(sent.map(DriveStep::Answered).boxed());
                }
            }
            Some(DriveStep::Answered(Ok(SendOutcome { progress, wake, accepted: this }))) => {
                sending -= 1;
                ready.extend(progress.ready);
                over = over.or(progress.over);
                wake.into_iter().for_each(|wake| wakes.add(wake));
                this.into_iter().for_each(|this| accepted.add(this, env.now()));
            }
            Some(DriveStep::Passed(Ok(wake))) => wake.into_iter().for_each(|wake| wakes.add(wake)),
            Some(
                DriveStep::Prepared(Err(failed))
                | DriveStep::Answered(Err(failed))
                | DriveStep::Passed(Err(failed)),
            ) => error = Some(error.unwrap_or(failed)),
        }
        if (under_way.is_empty() || accepted.is_due(env.now()))
            && let Err(failed) = accepted.note(env, &work.run).await
        {
            error = Some(error.unwrap_or(failed));
        }
    }
    // The table first: if that fails too, only the caller's repetition or the next look remains.
    let seen = match error {
        None => return Ok((over, wakes.see_to(env, &work.run, behalf).await?)),
        Some(error) if behalf.is_some_and(|look| !look.is_slice) => return Err(error),
        Some(error) => (dispatch::hasten(env, &work.run.id, env.now().plus(AFTER_ERROR)).await, error),
    };
    if let Err(second) = seen.0 {
        tracing::warn!(run = %work.run.id, %second, "the run could not be made due");
    }
    Err(seen.1)
}

/// Whether this invocation begins no further send.
fn is_spent(env: &Env, until: Timestamp, sends: usize) -> bool {
    sends >= env.settings.sends || (sends > 0 && env.now() >= until)
}

/// A step of a drive that has ended.
enum DriveStep {
    Prepared(Result<Vec<(Unit, Attempt)>, FlowError>),
    /// A try was sent, and concluded if it was answered at once.
    Answered(Result<SendOutcome, FlowError>),
    Passed(Result<Option<Wake>, FlowError>),
}

/// Does what comes before a batch is sent, once for all of it.
async fn prepare(env: &Env, work: &Work, batch: Vec<(Unit, Attempt)>) -> DriveStep {
    let units: Vec<Unit> = batch.iter().map(|(unit, _)| *unit).collect();
    let prepared = async {
        undo::seal(env, &work.run, &units, &work.memory).await?;
        inputs::prepare(env, &work.run, &units, &work.memory).await
    };
    DriveStep::Prepared(prepared.await.map(|()| batch))
}

/// The outcome of the send of one try.
struct SendOutcome {
    progress: Progress,
    wake: Option<Wake>,
    /// The try, if its receiver will call back and that is not noted.
    accepted: Option<Try>,
}

/// One try: sent, and concluded if it was answered at once.
async fn one(
    env: &Env,
    run: &Run,
    this: Try,
    memory: &Memory,
    sender: Sender,
) -> Result<SendOutcome, FlowError> {
    let key = run.unit(this.unit).map_or("", |unit| unit.key.as_str());
    let span = tracing::info_span!("try", run = %run.id, unit = key, attempt = this.attempt.0);
    Box::pin(send(env, run, this, memory, sender)).instrument(span).await
}

async fn send(
    env: &Env,
    run: &Run,
    this: Try,
    memory: &Memory,
    sender: Sender,
) -> Result<SendOutcome, FlowError> {
    let sent = Box::pin(dispatch::send(env, run, this, memory, sender)).await?;
    log(&sent);
    let progress = match sent.ended {
        Some(ended) => Box::pin(results::conclude(env, run, this, &ended, sent.more, memory)).await?,
        None => Progress::default(),
    };
    Ok(SendOutcome { progress, wake: sent.wake, accepted: sent.is_accepted.then_some(this) })
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

/// Hands units to other invocations. The run is due soon before the messages go: a lost one costs time only. A look sees to
/// that itself, at the time that is given.
async fn pass_on(
    env: &Env,
    work: &Work,
    units: &[(Unit, Attempt)],
    behalf: Option<&Behalf>,
) -> Result<Option<Wake>, FlowError> {
    if !switch::holds(Rule::PassOnTheRest) {
        return Ok(None);
    }
    let again = behalf.map(|look| look.again);
    if again.is_none_or(|again| again <= env.now()) {
        // Refused where the run is due sooner anyway. A lost message costs only time, so one attempt is enough.
        let due = env.now().plus(env.settings.first_look);
        env.store.patch_run(&work.run.id, &ebb_engine::accept(ebb_engine::Event::Hastened { due })).await?;
    }
    let slices =
        units.chunks(SLICE).map(|slice| Message::dispatch(&work.run.id, work.epoch, slice, again, env.now()));
    env.queue.send_all(slices.collect()).await;
    Ok(again.filter(|&again| again > env.now()).map(Wake::Poll))
}

/// Sends a slice that another invocation passed on at `passed`, as far as it still has to be sent. `again`: when the look that
/// has passed it on looks at the run again, if it was one.
///
/// # Errors
/// The store's.
pub async fn slice(
    env: &Env,
    run: &ebb_wire::id::RunId,
    epoch: Epoch,
    units: &[(Unit, Attempt)],
    again: Option<Timestamp>,
    passed: Timestamp,
) -> Result<(), FlowError> {
    let Some(run) = Run::load(env, run).await? else { return Ok(()) };
    let view = run.look(env).await?;
    let running = view.root().is_some_and(|root| root.phase == RunPhase::Running && root.epoch == epoch);
    if !running {
        return Ok(());
    }
    let open: BTreeSet<(Unit, Attempt)> = in_flight(run.graph(), &view).into_iter().collect();
    let ready = units.iter().copied().filter(|one| open.contains(one)).collect();
    let is_own = claim::claim_delivery(env, &run, units, passed).await?;
    let mut unsent = claim::unsent(env, &run, ready).await?;
    unsent.retain(|one| is_own || !one.is_posted);
    let ready = unsent.iter().map(|one| one.try_of).collect();
    let work = Work { run, epoch, ready, over: None, memory: Memory::default() };
    let Some(again) = again else { return drive(env, work).await };
    let unstarted = unsent.iter().filter(|one| !one.is_started).map(|one| one.try_of).collect();
    drive_for(env, work, &Behalf { unstarted, again, is_slice: true }).await.map(drop)
}
