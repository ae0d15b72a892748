//! How a try ended: recorded, accepted by the run, and followed.
//!
//! Flow: the record first (what exists is known before anything else), then the head, then what follows. Each step
//! may be repeated: the record's first result stays and decides, the head refuses what it has.
//!
//! Guarantees: a success is never acknowledged before it is either progress or in the ledger as late, with its undo
//! reopened if that has begun to read.

use std::time::Duration;

use ebb_engine::accept::accept_waking;
use ebb_engine::retry::{next_block, used};
use ebb_engine::{
    Attempt, Cause, Epoch, Event, Follow, Moment, Next, Outcome, Refusal, Shard, Status, Timestamp, Unit,
    accept, follow, refusal,
};
use ebb_spec::plan::UnitAt;
use ebb_spec::render::Produced;
use ebb_store::{Put, RunHead};
use ebb_wire::limits;
use ebb_wire::record::{TryResult, Verdict};

use crate::claim;
use crate::dispatch::{self, Try};
use crate::env::Env;
use crate::error::FlowError;
use crate::inputs::Memory;
use crate::observe::{self, End};
use crate::outcome::{Ended, Failure};
use crate::ports::Message;
use crate::records;
use crate::release;
use crate::reopen::{ReopenCause, reopen};
use crate::run::Run;
use crate::switch::{self, Rule};
use crate::undo;

/// What follows from a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub ready: Vec<(Unit, Attempt)>,
    /// Set when nothing can move any more.
    pub over: Option<Outcome>,
    /// Set when the result did not count as progress.
    pub late: Option<Late>,
}

/// Why a result did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// A success that is in the ledger now.
    Recorded,
    /// A failure of a try that nobody waits for.
    Ignored,
    /// One distinct success more than are kept of an attempt. It is counted, and no undo takes it into account.
    Excess,
}

impl Progress {
    fn late(late: Late) -> Self {
        Self { late: Some(late), ..Self::default() }
    }
}

/// Records how a try ended, moves the run on, and says what follows. `more` is set for an undo that has further
/// things to take away: its success starts the next try instead.
///
/// # Errors
/// The store's; nothing is acknowledged then, and the same result may be given again.
pub async fn conclude(
    env: &Env,
    run: &Run,
    this: Try,
    ended: &Ended,
    more: u32,
    memory: &Memory,
) -> Result<Progress, FlowError> {
    match ended {
        Ended::Succeeded(success) => {
            if !switch::holds(Rule::RecordBeforeHead) {
                done(env, run, this, ended).await?;
            }
            let printed = success.log.as_ref().is_some_and(|log| !log.is_empty());
            let kept = !success.outputs.is_empty() || printed || more > 0;
            if kept {
                // That there is more to take away has to outlive this invocation.
                let next = (more > 0).then(|| env.now());
                if let Some(progress) = put_success(env, run, this, ended, next, memory).await? {
                    return Ok(progress);
                }
            }
            if more > 0 {
                return again_for_more(env, run, this, Verdict::Succeeded).await;
            }
            memory.learn(run, this.unit, records::produced(success.outputs.clone()));
            done(env, run, this, ended).await
        }
        Ended::Skipped(_) => {
            // The condition of an undo counts for each of the results.
            let next = (more > 0).then(|| env.now());
            if let Some(progress) = put_success(env, run, this, ended, next, memory).await? {
                return Ok(progress);
            }
            if more > 0 {
                return again_for_more(env, run, this, Verdict::Skipped).await;
            }
            memory.learn(run, this.unit, Produced::Skipped);
            done(env, run, this, ended).await
        }
        Ended::Failed(failure) => failed(env, run, this, failure, memory).await,
        Ended::Cancelled(_) => {
            records::put(env, run, this.unit, this.attempt, ended, None).await?;
            Ok(Progress::late(Late::Ignored))
        }
    }
}

/// Puts a success into the record. `Some` when another result was there first and decides what follows.
async fn put_success(
    env: &Env,
    run: &Run,
    this: Try,
    ended: &Ended,
    next: Option<Timestamp>,
    memory: &Memory,
) -> Result<Option<Progress>, FlowError> {
    let (result, put) = records::put(env, run, this.unit, this.attempt, ended, next).await?;
    match put {
        // An undo goes on by what is recorded: its sender may know of fewer things.
        Put::Repeated(first) if first.has_more() && next.is_none() => {
            Box::pin(resume(env, run, this, &first, memory)).await.map(Some)
        }
        Put::First | Put::Repeated(_) => Ok(None),
        // Two different successes: both are in the ledger, the first is the try's result.
        Put::Second(first) if matches!(first.verdict, Verdict::Succeeded | Verdict::Skipped) => {
            let counts = switch::holds(Rule::EveryResultCounts);
            if counts && late(env, run, this, &result.digest).await? == UndoCoverage::No {
                return Ok(Some(excess(run, this)));
            }
            Box::pin(resume(env, run, this, &first, memory)).await.map(Some)
        }
        // The try was given up before its success arrived. The failure decides; the success is late.
        Put::Second(first) => {
            let covered = late(env, run, this, &result.digest).await?;
            if first.verdict == Verdict::Failed {
                Box::pin(resume(env, run, this, &first, memory)).await?;
            }
            Ok(Some(late_progress(run, this, covered)))
        }
        Put::Excess(_) => Ok(Some(excess(run, this))),
    }
}

fn late_progress(run: &Run, this: Try, covered: UndoCoverage) -> Progress {
    match covered {
        UndoCoverage::Yes => Progress::late(Late::Recorded),
        UndoCoverage::No => excess(run, this),
    }
}

/// Reports a success for which the record or the head has no place. Its sender may have made something that no undo knows.
fn excess(run: &Run, this: Try) -> Progress {
    let unit = run.unit(this.unit).map_or("", |unit| unit.key.as_str());
    tracing::warn!(
        run = %run.id, unit, attempt = this.attempt.0,
        "more than {} distinct results were reported; the teardown does not undo the further ones",
        limits::DISTINCT_RESULTS
    );
    observe::excess();
    Progress::late(Late::Excess)
}

/// Moves the head to done and follows.
async fn done(env: &Env, run: &Run, this: Try, ended: &Ended) -> Result<Progress, FlowError> {
    let Try { unit, attempt, epoch } = this;
    let patch = accept(Event::Succeeded { unit, attempt, epoch });
    match run.patch(env, &patch).await? {
        Ok(head) => {
            if !matches!(ended, Ended::Skipped(_)) {
                observe::ended(run, this, End::Completed, env.now());
            }
            fresh(env, run, this, &head).await
        }
        Err(image) => match refusal(unit, attempt, epoch, image.as_ref().map(|head| &head.head)) {
            Refusal::AlreadyDone => match image {
                // A run that was cancelled meanwhile goes nowhere from here.
                Some(head) if head.head.epoch != epoch => Ok(Progress::default()),
                Some(head) => next(env, run, &head, Cause::Again(unit), ResultTaker::Repeated).await,
                None => Ok(Progress::default()),
            },
            Refusal::StillOpen => Err(FlowError::Contended(format!("run {}", run.id))),
            Refusal::AlreadyFailed | Refusal::Late => {
                // In the ledger before anything is acknowledged, even if there was nothing to keep.
                let (result, put) = records::put(env, run, unit, attempt, ended, None).await?;
                if let Put::Excess(_) = put {
                    return Ok(excess(run, this));
                }
                let covered = late(env, run, this, &result.digest).await?;
                Ok(late_progress(run, this, covered))
            }
        },
    }
}

/// What follows from a unit's success that has just been written.
async fn fresh(env: &Env, run: &Run, this: Try, head: &RunHead) -> Result<Progress, FlowError> {
    let Try { unit, attempt, .. } = this;
    if head.head.sealed.contains(&Shard::of(unit).1) {
        // Its undo has begun although it could still succeed: it has to read again.
        reopen_undos(env, run, unit).await?;
    }
    // After a reopening, what follows may be done already.
    let cause = if attempt == Attempt::FIRST { Cause::Fresh(unit) } else { Cause::Again(unit) };
    next(env, run, head, cause, ResultTaker::First).await
}

/// True if the undo of a unit takes a late success into account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UndoCoverage {
    Yes,
    /// The head has no place for its mark, and the undo has read the records already.
    No,
}

/// Late successes of one unit, over all attempts, that the head names. 256 units of an item with so many marks of 20 bytes
/// have 80 KiB, of 400 that an item may have.
const LATE_MARKS: usize = limits::DISTINCT_RESULTS;

/// Notes a late success whose record is written, and reopens its undo if that has begun to read. Once: senders repeat.
///
/// The mark comes last: a crash before it repeats all this. A seal after the look reads the record.
async fn late(env: &Env, run: &Run, this: Try, digest: &str) -> Result<UndoCoverage, FlowError> {
    let view = run.look(env).await?;
    let mark = mark(digest);
    if view.is_late(this.unit, this.attempt, mark) {
        return Ok(UndoCoverage::Yes);
    }
    let sealed = view.is_sealed(this.unit);
    // Without a mark every repetition would reopen the undo, and with ever more marks the item would outgrow the table.
    if view.late_marks(this.unit) >= LATE_MARKS {
        // An undo that has not begun to read finds the record.
        return Ok(if sealed { UndoCoverage::No } else { UndoCoverage::Yes });
    }
    if sealed && switch::holds(Rule::ReopenOnLate) {
        reopen_undos(env, run, this.unit).await?;
    }
    if TEARDOWN.iter().all(|&moment| undos(run, moment, this.unit).is_empty()) {
        // No undo that needs its sensitive outputs ends later.
        release::note_again(env, run).await?;
    }
    let patch = accept(Event::Late { unit: this.unit, attempt: this.attempt, mark });
    env.store.patch_run(&run.id, &patch).await?;
    // A run that settles waits for this.
    env.queue.send(Message::Run(run.id.clone()), Duration::ZERO).await;
    Ok(UndoCoverage::Yes)
}

/// What tells different results of one try apart in the head: 32 bits of the digest.
fn mark(digest: &str) -> u32 {
    use sha2::Digest as _;
    let [a, b, c, d, ..] = <[u8; 32]>::from(sha2::Sha256::digest(digest.as_bytes()));
    u32::from_be_bytes([a, b, c, d])
}

const TEARDOWN: [Moment; 2] = [Moment::BeforeStop, Moment::AfterStop];

/// Returns the units of `moment` that undo a unit of this run.
fn undos(run: &Run, moment: Moment, unit: Unit) -> Vec<Unit> {
    undo::undoing(run, moment, UnitAt { moment: run.moment().into(), unit: unit.0 })
}

async fn reopen_undos(env: &Env, run: &Run, unit: Unit) -> Result<(), FlowError> {
    for moment in TEARDOWN {
        let undos = undos(run, moment, unit);
        if !undos.is_empty() {
            reopen(env, &run.id.sibling(moment), &undos, ReopenCause::LateSuccess).await?;
        }
    }
    Ok(())
}

/// Starts the next try of an undo that has dealt with one result and has more results to undo.
async fn again_for_more(env: &Env, run: &Run, this: Try, verdict: Verdict) -> Result<Progress, FlowError> {
    let Try { unit, attempt, epoch } = this;
    let to = next_block(attempt, run.unit(unit).map_or(1, |unit| unit.retry.attempts));
    match run.patch(env, &accept(Event::Retried { unit, attempt, epoch, to })).await? {
        Ok(_) => {
            if verdict == Verdict::Succeeded {
                observe::ended(run, this, End::Completed, env.now());
            }
            Ok(Progress { ready: vec![(unit, to)], ..Progress::default() })
        }
        // Written before, and its answer was lost, or its writer died before it sent the try.
        Err(Some(head)) if refusal(unit, to, epoch, Some(&head.head)) == Refusal::StillOpen => {
            let ready = claim::leave(env, run, vec![(unit, to)]).await?;
            Ok(Progress { ready, ..Progress::default() })
        }
        Err(_) => Ok(Progress::default()),
    }
}

async fn failed(
    env: &Env,
    run: &Run,
    this: Try,
    failure: &Failure,
    memory: &Memory,
) -> Result<Progress, FlowError> {
    let Some(unit) = run.unit(this.unit) else { return Ok(Progress::default()) };
    let next = failure.is_retried(unit, this.attempt).then(|| {
        let failures = used(this.attempt, unit.retry.attempts);
        let wait = unit.retry.backoff().wait(failures, env.random.next());
        let asked = ebb_engine::Millis(failure.retry_after.unwrap_or(0).saturating_mul(1000));
        env.now().plus(wait.max(asked))
    });
    let ended = Ended::Failed(failure.clone());
    let (result, put) = records::put(env, run, this.unit, this.attempt, &ended, next).await?;
    let decides = match put {
        Put::First => result,
        _ if !switch::holds(Rule::RecordDecides) => result,
        Put::Repeated(first) | Put::Second(first) | Put::Excess(first) => first,
    };
    resume(env, run, this, &decides, memory).await
}

/// Moves the run on by a result that is in the record: what is done after a crash between the two, too.
///
/// # Errors
/// The store's.
pub async fn resume(
    env: &Env,
    run: &Run,
    this: Try,
    result: &TryResult,
    memory: &Memory,
) -> Result<Progress, FlowError> {
    match result.verdict {
        Verdict::Cancelled => Ok(Progress::late(Late::Ignored)),
        verdict if result.has_more() => again_for_more(env, run, this, verdict).await,
        Verdict::Skipped => {
            memory.learn(run, this.unit, Produced::Skipped);
            done(env, run, this, &Ended::Skipped(String::new())).await
        }
        Verdict::Succeeded => {
            memory.learn(run, this.unit, records::produced(records::outputs(env, &result.outputs).await?));
            done_as_recorded(env, run, this).await
        }
        Verdict::Failed => match result.next {
            Some(next) => retry(env, run, this, Timestamp(next)).await,
            None => fail(env, run, this).await,
        },
    }
}

async fn done_as_recorded(env: &Env, run: &Run, this: Try) -> Result<Progress, FlowError> {
    let Try { unit, attempt, epoch } = this;
    match run.patch(env, &accept(Event::Succeeded { unit, attempt, epoch })).await? {
        Ok(head) => {
            observe::ended(run, this, End::Completed, env.now());
            fresh(env, run, this, &head).await
        }
        Err(Some(head)) if head.head.epoch == epoch => {
            match refusal(unit, attempt, epoch, Some(&head.head)) {
                Refusal::AlreadyDone => {
                    next(env, run, &head, Cause::Again(unit), ResultTaker::Repeated).await
                }
                _ => Ok(Progress::late(Late::Recorded)),
            }
        }
        Err(_) => Ok(Progress::late(Late::Recorded)),
    }
}

/// Moves the unit to its next try, which starts at `due`.
async fn retry(env: &Env, run: &Run, this: Try, due: Timestamp) -> Result<Progress, FlowError> {
    let Try { unit, attempt, epoch } = this;
    // A result that is taken up again may name a time that is over.
    let due = due.max(env.now());
    let event = Event::Retried { unit, attempt, epoch, to: attempt.next() };
    if !switch::holds(Rule::RetryIsDue) {
        run.patch(env, &accept(event)).await?.ok();
        dispatch::hint(env, &run.id, due).await;
        return Ok(Progress::default());
    }
    if let Some(patch) = accept_waking(event, due)
        && run.patch(env, &patch).await?.is_ok()
    {
        observe::ended(run, this, End::Retried, env.now());
        dispatch::hint(env, &run.id, due).await;
        return Ok(Progress::default());
    }
    // Refused for its wake-up alone, or for good, or in another item than the root: the wake-up first, because a
    // crash in between costs an idle look; then the plain write tells.
    dispatch::hasten(env, &run.id, due).await?;
    match run.patch(env, &accept(event)).await? {
        Ok(_) => {
            observe::ended(run, this, End::Retried, env.now());
            Ok(Progress::default())
        }
        Err(_) => Ok(Progress::late(Late::Ignored)),
    }
}

/// Moves the unit to failed for good, and follows.
async fn fail(env: &Env, run: &Run, this: Try) -> Result<Progress, FlowError> {
    let Try { unit, attempt, epoch } = this;
    match run.patch(env, &accept(Event::Failed { unit, attempt, epoch })).await? {
        Ok(head) => {
            observe::ended(run, this, End::Failed, env.now());
            next(env, run, &head, Cause::Fresh(unit), ResultTaker::First).await
        }
        Err(Some(head)) if refused_again(unit, attempt, epoch, &head) => {
            next(env, run, &head, Cause::Again(unit), ResultTaker::Repeated).await
        }
        Err(_) => {
            // A run that settles waits for this.
            env.queue.send(Message::Run(run.id.clone()), Duration::ZERO).await;
            Ok(Progress::late(Late::Ignored))
        }
    }
}

fn refused_again(unit: Unit, attempt: Attempt, epoch: Epoch, head: &RunHead) -> bool {
    head.head.epoch == epoch && refusal(unit, attempt, epoch, Some(&head.head)) == Refusal::AlreadyFailed
}

/// The taker of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultTaker {
    First,
    /// The head had the result already. The first taker may be sending what follows.
    Repeated,
}

/// What follows from the item after a write; reads the others only where it does not tell.
async fn next(
    env: &Env,
    run: &Run,
    head: &RunHead,
    cause: Cause,
    taker: ResultTaker,
) -> Result<Progress, FlowError> {
    // Whoever wrote what this run's one item says is the only one who acts on it.
    let mut alone = matches!(cause, Cause::Fresh(_));
    let known = match follow(run.graph(), &run.view_of(head), cause) {
        Next::Known(known) => known,
        Next::LookAtAll if !switch::holds(Rule::LookAtAllItems) => {
            Follow { dispatch: Vec::new(), over: None }
        }
        Next::LookAtAll => {
            alone = false;
            let view = run.look(env).await?;
            match follow(run.graph(), &view, cause) {
                Next::Known(known) => known,
                Next::LookAtAll => Follow { dispatch: Vec::new(), over: None },
            }
        }
    };
    let ready = match taker {
        ResultTaker::First if alone => known.dispatch,
        ResultTaker::First => claim::claim(env, run, known.dispatch).await?,
        ResultTaker::Repeated => claim::leave(env, run, known.dispatch).await?,
    };
    Ok(Progress { ready, over: known.over, late: None })
}

/// Whether a unit is over in a view.
pub fn is_over(view: &ebb_engine::View, unit: Unit) -> bool {
    matches!(view.status(unit), Status::Done | Status::Failed)
}
