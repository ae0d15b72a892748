//! How a try ended: recorded, accepted by the run, and followed.
//!
//! Flow: the record first (what exists is known before anything else), then the head, then what follows. Each step
//! may be repeated: the record's first result stays and decides, the head refuses what it has.
//!
//! Guarantees: a success is never acknowledged before it is either progress or in the ledger as late, with its undo
//! reopened if that has begun to read.

use std::time::Duration;

use ebb_documents::plan::UnitRef;
use ebb_documents::render::ProducerState;
use ebb_engine::accept::accept_with_wakeup;
use ebb_engine::retry::{attempts_used, next_block};
use ebb_engine::{
    Attempt, Epoch, FollowCause, FollowResult, Hook, NextSteps, PatchRefusal, RunEvent, Shard, Timestamp, Unit,
    UnitProgress, accept, follow, refusal,
};
use ebb_protocol::limits;
use ebb_protocol::record::{AttemptOutcome, AttemptResult};
use ebb_store::{PatchResult, PutOutcome, RunHead};

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::QueueMessage;
use crate::run::attempt::AttemptRef;
use crate::run::attempt_end::AttemptEnd;
use crate::run::attempt_end::AttemptFailure;
use crate::run::head::Run;
use crate::run::inputs::InvocationCache;
use crate::run::lease;
use crate::run::progress::LateResult;
use crate::run::progress::RunProgress;
use crate::run::records;
use crate::run::reopen::ReopenCause;
use crate::run::reopen::reopen;
use crate::run::undo;
use crate::run::wakeup;
use crate::target::secrets;
use crate::telemetry;
use crate::telemetry::AttemptDisposition;

/// Records how a try ended, moves the run on, and says what follows. `more` is set for an undo that has further
/// things to take away: its success starts the next try instead.
///
/// # Errors
/// The store's; nothing is acknowledged then, and the same result may be given again.
pub async fn apply_result(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    ended: &AttemptEnd,
    more: u32,
    memory: &InvocationCache,
) -> Result<RunProgress, FlowError> {
    match ended {
        AttemptEnd::Succeeded(success) => {
            let printed = success.log.as_ref().is_some_and(|log| !log.is_empty());
            let kept = !success.outputs.is_empty() || printed || more > 0;
            if kept {
                // That there is more to take away has to outlive this invocation.
                let next = (more > 0).then(|| env.now());
                if let Some(progress) = record_success(env, run, this, ended, next, memory).await? {
                    return Ok(progress);
                }
            }
            if more > 0 {
                return start_next_undo(env, run, this, AttemptOutcome::Succeeded).await;
            }
            memory.put_produced(run, this.unit, records::produced(success.outputs.clone()));
            mark_done(env, run, this, ended).await
        }
        AttemptEnd::Skipped(_) => {
            // The condition of an undo counts for each of the results.
            let next = (more > 0).then(|| env.now());
            if let Some(progress) = record_success(env, run, this, ended, next, memory).await? {
                return Ok(progress);
            }
            if more > 0 {
                return start_next_undo(env, run, this, AttemptOutcome::Skipped).await;
            }
            memory.put_produced(run, this.unit, ProducerState::Skipped);
            mark_done(env, run, this, ended).await
        }
        AttemptEnd::Failed(failure) => apply_failure(env, run, this, failure, memory).await,
        AttemptEnd::Cancelled(_) => {
            records::put(env, run, this.unit, this.attempt, ended, None).await?;
            Ok(RunProgress::late(LateResult::Ignored))
        }
    }
}

/// Puts a success into the record. `Some` when another result was there first and decides what follows.
async fn record_success(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    ended: &AttemptEnd,
    next: Option<Timestamp>,
    memory: &InvocationCache,
) -> Result<Option<RunProgress>, FlowError> {
    let (result, put) = records::put(env, run, this.unit, this.attempt, ended, next).await?;
    match put {
        // An undo goes on by what is recorded: its sender may know of fewer things.
        PutOutcome::Duplicate(first) if first.has_more() && next.is_none() => {
            Box::pin(resume(env, run, this, &first, memory)).await.map(Some)
        }
        PutOutcome::Created | PutOutcome::Duplicate(_) => Ok(None),
        // Two different successes: both are in the ledger, the first is the try's result.
        PutOutcome::Conflict(first) if matches!(first.outcome, AttemptOutcome::Succeeded | AttemptOutcome::Skipped) => {
            if record_late_success(env, run, this, &result.digest).await? == UndoCoverage::No {
                return Ok(Some(report_excess(run, this)));
            }
            Box::pin(resume(env, run, this, &first, memory)).await.map(Some)
        }
        // The try was given up before its success arrived. The failure decides; the success is late.
        PutOutcome::Conflict(first) => {
            let covered = record_late_success(env, run, this, &result.digest).await?;
            if first.outcome == AttemptOutcome::Failed {
                Box::pin(resume(env, run, this, &first, memory)).await?;
            }
            Ok(Some(late_progress(run, this, covered)))
        }
        PutOutcome::Excess(_) => Ok(Some(report_excess(run, this))),
    }
}

fn late_progress(run: &Run, this: AttemptRef, covered: UndoCoverage) -> RunProgress {
    match covered {
        UndoCoverage::Yes => RunProgress::late(LateResult::Recorded),
        UndoCoverage::No => report_excess(run, this),
    }
}

/// Reports a success for which the record or the head has no place. Its sender may have made something that no undo knows.
fn report_excess(run: &Run, this: AttemptRef) -> RunProgress {
    let unit = run.unit(this.unit).map_or("", |unit| unit.key.as_str());
    tracing::warn!(
        run = %run.id, unit, attempt = this.attempt.0,
        "more than {} distinct results were reported; the teardown does not undo the further ones",
        limits::DISTINCT_RESULTS
    );
    telemetry::result_in_excess();
    RunProgress::late(LateResult::Excess)
}

/// Moves the head to done and follows.
async fn mark_done(env: &Env, run: &Run, this: AttemptRef, ended: &AttemptEnd) -> Result<RunProgress, FlowError> {
    let AttemptRef { unit, attempt, epoch } = this;
    let patch = accept(RunEvent::Succeeded { unit, attempt, epoch });
    match env.store.patch_run(&run.id, &patch).await? {
        PatchResult::Written(head) => {
            if !matches!(ended, AttemptEnd::Skipped(_)) {
                telemetry::attempt_ended(run, this, AttemptDisposition::Completed, env.now());
            }
            after_success(env, run, this, &head).await
        }
        PatchResult::ConditionFailed(image) => {
            match refusal(unit, attempt, epoch, image.as_ref().map(|head| &head.head)) {
                PatchRefusal::AlreadyDone => match image {
                    // A run that was cancelled meanwhile goes nowhere from here.
                    Some(head) if head.head.epoch != epoch => Ok(RunProgress::default()),
                    Some(head) => {
                        next_progress(env, run, &head, FollowCause::Repeated(unit), ResultTaker::Repeated).await
                    }
                    None => Ok(RunProgress::default()),
                },
                PatchRefusal::StillOpen => Err(FlowError::Contended(format!("run {}", run.id))),
                PatchRefusal::AlreadyFailed | PatchRefusal::Superseded => {
                    // In the ledger before anything is acknowledged, even if there was nothing to keep.
                    let (result, put) = records::put(env, run, unit, attempt, ended, None).await?;
                    if let PutOutcome::Excess(_) = put {
                        return Ok(report_excess(run, this));
                    }
                    let covered = record_late_success(env, run, this, &result.digest).await?;
                    Ok(late_progress(run, this, covered))
                }
            }
        }
    }
}

/// What follows from a unit's success that has just been written.
async fn after_success(env: &Env, run: &Run, this: AttemptRef, head: &RunHead) -> Result<RunProgress, FlowError> {
    let AttemptRef { unit, attempt, .. } = this;
    if head.head.sealed.contains(&Shard::of(unit).1) {
        // Its undo has begun although it could still succeed: it has to read again.
        reopen_undos(env, run, unit).await?;
    }
    // After a reopening, what follows may be done already.
    let cause = if attempt == Attempt::FIRST { FollowCause::Fresh(unit) } else { FollowCause::Repeated(unit) };
    next_progress(env, run, head, cause, ResultTaker::First).await
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
const MAX_LATE_MARKS: usize = limits::DISTINCT_RESULTS;

/// Notes a late success whose record is written, and reopens its undo if that has begun to read. Once: senders repeat.
///
/// The mark comes last: a crash before it repeats all this. A seal after the look reads the record.
async fn record_late_success(env: &Env, run: &Run, this: AttemptRef, digest: &str) -> Result<UndoCoverage, FlowError> {
    let view = run.read_view(env).await?;
    let mark = mark(digest);
    if view.is_late(this.unit, this.attempt, mark) {
        return Ok(UndoCoverage::Yes);
    }
    let sealed = view.is_sealed(this.unit);
    // Without a mark every repetition would reopen the undo, and with ever more marks the item would outgrow the table.
    if view.late_marks(this.unit) >= MAX_LATE_MARKS {
        // An undo that has not begun to read finds the record.
        return Ok(if sealed { UndoCoverage::No } else { UndoCoverage::Yes });
    }
    if sealed {
        reopen_undos(env, run, this.unit).await?;
    }
    if TEARDOWN.iter().all(|&hook| undos(run, hook, this.unit).is_empty()) {
        // No undo that needs its sensitive outputs ends later.
        secrets::schedule_late_release(env, run).await?;
    }
    let patch = accept(RunEvent::SucceededLate { unit: this.unit, attempt: this.attempt, mark });
    env.store.patch_run(&run.id, &patch).await?;
    // A run that settles waits for this.
    env.queue.send(QueueMessage::Run(run.id.clone()), Duration::ZERO).await;
    Ok(UndoCoverage::Yes)
}

/// What tells different results of one try apart in the head: 32 bits of the digest.
fn mark(digest: &str) -> u32 {
    use sha2::Digest as _;
    let [a, b, c, d, ..] = <[u8; 32]>::from(sha2::Sha256::digest(digest.as_bytes()));
    u32::from_be_bytes([a, b, c, d])
}

const TEARDOWN: [Hook; 2] = [Hook::PreStop, Hook::PostStop];

/// Returns the units of `hook` that undo a unit of this run.
fn undos(run: &Run, hook: Hook, unit: Unit) -> Vec<Unit> {
    undo::undo_units(run, hook, UnitRef { hook: run.hook().into(), unit: unit.0 })
}

async fn reopen_undos(env: &Env, run: &Run, unit: Unit) -> Result<(), FlowError> {
    for hook in TEARDOWN {
        let undos = undos(run, hook, unit);
        if !undos.is_empty() {
            reopen(env, &run.id.sibling(hook), &undos, ReopenCause::LateSuccess).await?;
        }
    }
    Ok(())
}

/// Starts the next try of an undo that has dealt with one result and has more results to undo.
async fn start_next_undo(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    verdict: AttemptOutcome,
) -> Result<RunProgress, FlowError> {
    let AttemptRef { unit, attempt, epoch } = this;
    let to = next_block(attempt, run.unit(unit).map_or(1, |unit| unit.retry.attempts));
    match env.store.patch_run(&run.id, &accept(RunEvent::Retried { unit, attempt, epoch, to })).await? {
        PatchResult::Written(_) => {
            if verdict == AttemptOutcome::Succeeded {
                telemetry::attempt_ended(run, this, AttemptDisposition::Completed, env.now());
            }
            Ok(RunProgress { ready: vec![(unit, to)], ..RunProgress::default() })
        }
        // Written before, and its answer was lost, or its writer died before it sent the try.
        PatchResult::ConditionFailed(Some(head))
            if refusal(unit, to, epoch, Some(&head.head)) == PatchRefusal::StillOpen =>
        {
            let ready = lease::claim_for_repeat(env, run, vec![(unit, to)]).await?;
            Ok(RunProgress { ready, ..RunProgress::default() })
        }
        PatchResult::ConditionFailed(_) => Ok(RunProgress::default()),
    }
}

async fn apply_failure(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    failure: &AttemptFailure,
    memory: &InvocationCache,
) -> Result<RunProgress, FlowError> {
    let Some(unit) = run.unit(this.unit) else { return Ok(RunProgress::default()) };
    let next = failure.is_retried(unit, this.attempt).then(|| {
        let failures = attempts_used(this.attempt, unit.retry.attempts);
        let wait = unit.retry.backoff().wait(failures, env.random.next());
        let asked = ebb_engine::Millis(failure.retry_after.unwrap_or(0).saturating_mul(1000));
        env.now().plus(wait.max(asked))
    });
    let ended = AttemptEnd::Failed(failure.clone());
    let (result, put) = records::put(env, run, this.unit, this.attempt, &ended, next).await?;
    let decides = match put {
        PutOutcome::Created => result,
        PutOutcome::Duplicate(first) | PutOutcome::Conflict(first) | PutOutcome::Excess(first) => first,
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
    this: AttemptRef,
    result: &AttemptResult,
    memory: &InvocationCache,
) -> Result<RunProgress, FlowError> {
    match result.outcome {
        AttemptOutcome::Cancelled => Ok(RunProgress::late(LateResult::Ignored)),
        verdict if result.has_more() => start_next_undo(env, run, this, verdict).await,
        AttemptOutcome::Skipped => {
            memory.put_produced(run, this.unit, ProducerState::Skipped);
            mark_done(env, run, this, &AttemptEnd::Skipped(String::new())).await
        }
        AttemptOutcome::Succeeded => {
            memory.put_produced(run, this.unit, records::produced(records::read_outputs(env, &result.outputs).await?));
            mark_done_from_record(env, run, this).await
        }
        AttemptOutcome::Failed => match result.next {
            Some(next) => schedule_retry(env, run, this, Timestamp(next)).await,
            None => mark_failed(env, run, this).await,
        },
    }
}

async fn mark_done_from_record(env: &Env, run: &Run, this: AttemptRef) -> Result<RunProgress, FlowError> {
    let AttemptRef { unit, attempt, epoch } = this;
    match env.store.patch_run(&run.id, &accept(RunEvent::Succeeded { unit, attempt, epoch })).await? {
        PatchResult::Written(head) => {
            telemetry::attempt_ended(run, this, AttemptDisposition::Completed, env.now());
            after_success(env, run, this, &head).await
        }
        PatchResult::ConditionFailed(Some(head)) if head.head.epoch == epoch => {
            match refusal(unit, attempt, epoch, Some(&head.head)) {
                PatchRefusal::AlreadyDone => {
                    next_progress(env, run, &head, FollowCause::Repeated(unit), ResultTaker::Repeated).await
                }
                _ => Ok(RunProgress::late(LateResult::Recorded)),
            }
        }
        PatchResult::ConditionFailed(_) => Ok(RunProgress::late(LateResult::Recorded)),
    }
}

/// Moves the unit to its next try, which starts at `due`.
async fn schedule_retry(env: &Env, run: &Run, this: AttemptRef, due: Timestamp) -> Result<RunProgress, FlowError> {
    let AttemptRef { unit, attempt, epoch } = this;
    // A result that is taken up again may name a time that is over.
    let due = due.max(env.now());
    let event = RunEvent::Retried { unit, attempt, epoch, to: attempt.next() };
    if let Some(patch) = accept_with_wakeup(event, due)
        && env.store.patch_run(&run.id, &patch).await?.is_written()
    {
        telemetry::attempt_ended(run, this, AttemptDisposition::Retried, env.now());
        wakeup::send_wakeup(env, &run.id, due).await;
        return Ok(RunProgress::default());
    }
    // Refused for its wake-up alone, or for good, or in another item than the root: the wake-up first, because a
    // crash in between costs an idle look; then the plain write tells.
    wakeup::wake_by(env, &run.id, due).await?;
    match env.store.patch_run(&run.id, &accept(event)).await? {
        PatchResult::Written(_) => {
            telemetry::attempt_ended(run, this, AttemptDisposition::Retried, env.now());
            Ok(RunProgress::default())
        }
        PatchResult::ConditionFailed(_) => Ok(RunProgress::late(LateResult::Ignored)),
    }
}

/// Moves the unit to failed for good, and follows.
async fn mark_failed(env: &Env, run: &Run, this: AttemptRef) -> Result<RunProgress, FlowError> {
    let AttemptRef { unit, attempt, epoch } = this;
    match env.store.patch_run(&run.id, &accept(RunEvent::Failed { unit, attempt, epoch })).await? {
        PatchResult::Written(head) => {
            telemetry::attempt_ended(run, this, AttemptDisposition::Failed, env.now());
            next_progress(env, run, &head, FollowCause::Fresh(unit), ResultTaker::First).await
        }
        PatchResult::ConditionFailed(Some(head)) if refused_again(unit, attempt, epoch, &head) => {
            next_progress(env, run, &head, FollowCause::Repeated(unit), ResultTaker::Repeated).await
        }
        PatchResult::ConditionFailed(_) => {
            // A run that settles waits for this.
            env.queue.send(QueueMessage::Run(run.id.clone()), Duration::ZERO).await;
            Ok(RunProgress::late(LateResult::Ignored))
        }
    }
}

fn refused_again(unit: Unit, attempt: Attempt, epoch: Epoch, head: &RunHead) -> bool {
    head.head.epoch == epoch && refusal(unit, attempt, epoch, Some(&head.head)) == PatchRefusal::AlreadyFailed
}

/// The taker of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultTaker {
    First,
    /// The head had the result already. The first taker may be sending what follows.
    Repeated,
}

/// What follows from the item after a write; reads the others only where it does not tell.
async fn next_progress(
    env: &Env,
    run: &Run,
    head: &RunHead,
    cause: FollowCause,
    taker: ResultTaker,
) -> Result<RunProgress, FlowError> {
    // Whoever wrote what this run's one item says is the only one who acts on it.
    let mut alone = matches!(cause, FollowCause::Fresh(_));
    let known = match follow(run.graph(), &run.view_of(head), cause) {
        FollowResult::Known(known) => known,
        FollowResult::ReadAll => {
            alone = false;
            let view = run.read_view(env).await?;
            match follow(run.graph(), &view, cause) {
                FollowResult::Known(known) => known,
                FollowResult::ReadAll => NextSteps { dispatch: Vec::new(), run_outcome: None },
            }
        }
    };
    let ready = match taker {
        ResultTaker::First if alone => known.dispatch,
        ResultTaker::First => lease::claim(env, run, known.dispatch).await?,
        ResultTaker::Repeated => lease::claim_for_repeat(env, run, known.dispatch).await?,
    };
    Ok(RunProgress { ready, outcome: known.run_outcome, late: None })
}

/// Returns true if a unit is over in a view.
pub fn is_over(view: &ebb_engine::RunView, unit: Unit) -> bool {
    matches!(view.status(unit), UnitProgress::Done | UnitProgress::Failed)
}
