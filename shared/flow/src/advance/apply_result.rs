//! Applies the result of an attempt to its run.
//!
//! 1. Write the attempt record. The first result of an attempt decides.
//! 2. Update the head with one conditional write.
//! 3. Return the attempts that became ready.
//!
//! Every step is idempotent: after a crash, the caller repeats all three. The record comes first, because teardown
//! reads records. A success is acknowledged only when it has advanced the run, or is recorded as late with its undo
//! reopened.

use std::time::Duration;

use ebb_documents::render::ProducerState;
use ebb_engine::accept::accept_with_wakeup;
use ebb_engine::{
    Attempt, AttemptRef, HeadState, Hook, LateMark, PatchRefusal, RunEvent, Timestamp, Unit, UnitProgress, accept,
    attempts_used, follow, lets_pass, next_block, refusal,
};
use ebb_protocol::{AttemptOutcome, AttemptResult, limits};
use ebb_store::{PatchResult, PutOutcome, RunHead};

use crate::advance::progress::{LateResult, RunEnd, RunProgress};
use crate::advance::reopen::{ReopenCause, reopen, reopen_seen};
use crate::instance::secrets;
use crate::run::removal::{evidence, visibility};
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure, lease, records, slots, undo, wakeup};
use crate::{Counter, FlowError, FlowResult, QueueMessage, Run, sealed_values, telemetry};

/// Records the result of an attempt and advances its run.
///
/// Returns the attempts to dispatch next. `remaining` counts the distinct results that an undo has yet to remove; while
/// it is not zero, a success starts the next attempt of the same undo.
///
/// # Errors
/// Returns an error if the result is not acknowledged. The call can be repeated with the same result.
pub async fn apply_result(context: AttemptContext<'_>, end: &AttemptEnd, remaining: u32) -> FlowResult<RunProgress> {
    slots::release(context).await?;
    let shortfall = evidence::shortfall(context, end).await?;
    let end = shortfall.as_ref().unwrap_or(end);
    let sealed = sealed_end(context, end)?;
    let end = sealed.as_ref().unwrap_or(end);
    let (needs_record, outcome) = match end {
        AttemptEnd::Succeeded(success) => {
            let has_log = success.log.as_ref().is_some_and(|log| !log.is_empty());
            let is_evidence = success.found_nothing || success.removal.is_some() || !success.made.is_empty();
            let has_reader = visibility::is_recorded(context.run, context.attempt.unit);
            let needs_record = !success.outputs.is_empty() || has_log || remaining > 0 || is_evidence || has_reader;
            (needs_record, AttemptOutcome::Succeeded)
        }
        AttemptEnd::Skipped(_) => (true, AttemptOutcome::Skipped),
        AttemptEnd::Failed(failure) => return apply_failure(context, failure).await,
        AttemptEnd::Cancelled(_) => {
            records::put(context, end, None).await?;
            return Ok(RunProgress::late(LateResult::Late));
        }
    };
    if needs_record {
        // `next` records that results remain, so that the information is kept after this invocation.
        let next = (remaining > 0).then(|| context.env.now());
        if let Some(progress) = record_success(context, end, next).await? {
            return Ok(progress);
        }
    }
    if remaining > 0 {
        // `when` of an undo is evaluated for each result.
        return start_next_undo(context, outcome).await;
    }
    let produced = match end {
        AttemptEnd::Succeeded(success) => {
            records::produced(&context.run.id, context.attempt.unit, success.outputs.clone())
        }
        _ => ProducerState::Skipped,
    };
    context.cache.put_produced(context.run, context.attempt.unit, produced);
    mark_done(context, Some(end)).await
}

/// Returns an end with encrypted outputs, if it has sensitive ones.
fn sealed_end(context: AttemptContext<'_>, end: &AttemptEnd) -> FlowResult<Option<AttemptEnd>> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    if !unit.outputs.values().any(|output| output.sensitive) {
        return Ok(None);
    }
    let mut end = end.clone();
    let outputs = match &mut end {
        AttemptEnd::Succeeded(success) => &mut success.outputs,
        AttemptEnd::Failed(failure) => &mut failure.outputs,
        AttemptEnd::Skipped(_) | AttemptEnd::Cancelled(_) => return Ok(None),
    };
    let (keys, all) = (&env.settings.unit_keys, std::mem::take(outputs));
    *outputs = sealed_values::seal_outputs(keys, (&run.id, attempt.unit), unit, all)?;
    Ok(Some(end))
}

/// Records a success. Returns the progress if another result arrived first and decides.
async fn record_success(
    context: AttemptContext<'_>,
    end: &AttemptEnd,
    next: Option<Timestamp>,
) -> FlowResult<Option<RunProgress>> {
    let (result, put) = records::put(context, end, next).await?;
    match put {
        // The recorded result decides, because its writer may have read more results than this caller.
        PutOutcome::Duplicate(first) if first.has_more() && next.is_none() => {
            Box::pin(resume(context, &first)).await.map(Some)
        }
        PutOutcome::Created | PutOutcome::Duplicate(_) => Ok(None),
        // Two distinct successes are both recorded. The first one is the result of the attempt.
        PutOutcome::Conflict(first) if matches!(first.outcome, AttemptOutcome::Succeeded | AttemptOutcome::Skipped) => {
            if record_late_success(context, &result.digest).await? == LateResult::Excess {
                return Ok(Some(RunProgress::late(LateResult::Excess)));
            }
            Box::pin(resume(context, &first)).await.map(Some)
        }
        // The attempt had already failed when its success arrived. The failure decides, and the success is late.
        PutOutcome::Conflict(first) => {
            let late = record_late_success(context, &result.digest).await?;
            if first.outcome == AttemptOutcome::Failed {
                Box::pin(resume(context, &first)).await?;
            }
            Ok(Some(RunProgress::late(late)))
        }
        PutOutcome::Excess(_) => Ok(Some(RunProgress::late(report_excess(context)))),
    }
}

/// Reports a success above a limit. No undo removes its resource.
fn report_excess(AttemptContext { run, attempt, unit, .. }: AttemptContext<'_>) -> LateResult {
    tracing::warn!(
        run = %run.id, unit = unit.key, attempt = attempt.number.0,
        "more than {} distinct results were reported; further ones are not undone",
        limits::DISTINCT_RESULTS
    );
    telemetry::count(Counter::ExcessResults, 1);
    LateResult::Excess
}

/// Marks the unit done in the head, and follows the graph. `end` is recorded if the unit takes no success any more.
/// Without it, the record has the success already.
async fn mark_done(context: AttemptContext<'_>, end: Option<&AttemptEnd>) -> FlowResult<RunProgress> {
    let AttemptContext { env, run, attempt, .. } = context;
    let patch = accept(RunEvent::Succeeded(attempt));
    let image = match env.store.patch_run(&run.id, &patch).await? {
        PatchResult::Written(head) => {
            if !matches!(end, Some(AttemptEnd::Skipped(_))) {
                telemetry::attempt_ended(run, attempt, Counter::Completed, env.now());
            }
            return after_success(context, &head).await;
        }
        PatchResult::ConditionFailed(image) => image,
    };
    let refused = image.as_ref().map_or(PatchRefusal::Superseded, |head| refusal(attempt, &head.head));
    match (refused, image, end) {
        (PatchRefusal::AlreadyDone, Some(head), _) if head.head.epoch == attempt.epoch => {
            next_progress(context, &head, ResultTaker::Repeated).await
        }
        (.., None) => Ok(RunProgress::late(LateResult::Late)),
        // The run was cancelled meanwhile.
        (PatchRefusal::AlreadyDone, ..) => Ok(RunProgress::default()),
        (PatchRefusal::StillOpen, ..) => Err(FlowError::Contended(format!("run {}", run.id))),
        (PatchRefusal::AlreadyFailed | PatchRefusal::Superseded, _, Some(end)) => {
            // The success is recorded before the acknowledgement, even without outputs.
            let (result, put) = records::put(context, end, None).await?;
            if let PutOutcome::Excess(_) = put {
                return Ok(RunProgress::late(report_excess(context)));
            }
            record_late_success(context, &result.digest).await.map(RunProgress::late)
        }
    }
}

/// Returns the progress after the success of a unit was written.
async fn after_success(context: AttemptContext<'_>, head: &RunHead) -> FlowResult<RunProgress> {
    if head.head.sealed.contains(&context.attempt.unit) {
        // An undo that may have begun has to read the records again (rule ReopenOnLateResult).
        reopen_undos(context).await?;
    }
    next_progress(context, head, ResultTaker::of_write(context)).await
}

/// Maximum late successes of a unit, over all attempts, in the head. With 1,000 units and the longest marks the item has 300
/// KiB, of 400 KiB.
const MAX_LATE_MARKS: usize = limits::DISTINCT_RESULTS;

/// Marks a late success whose record is written, and reopens its undo if that has read the records. Repetitions change
/// nothing. The success is in excess if the head has no space for a further mark, and an undo of the teardown may have
/// read the records already, and is reported here.
///
/// The mark comes last: after a crash before it, a repetition does all steps. A seal that comes later reads the record.
async fn record_late_success(context: AttemptContext<'_>, digest: &str) -> FlowResult<LateResult> {
    let AttemptContext { env, run, attempt, .. } = context;
    let head = run.read_head(env).await?;
    let mark = LateMark { unit: attempt.unit, attempt: attempt.number, mark: mark(digest) };
    let sealed = head.sealed.contains(&attempt.unit);
    if head.late.contains(&mark) {
        if sealed {
            repeat_skipped_undos(context).await?;
        }
        return Ok(LateResult::Late);
    }
    // Without a mark, every repetition would reopen the undo. Without a limit, the item would outgrow the table.
    if head.late_marks(attempt.unit) >= MAX_LATE_MARKS {
        let is_missed = sealed && teardown_may_have_read(context).await?;
        return Ok(if is_missed { report_excess(context) } else { LateResult::Late });
    }
    if sealed {
        reopen_undos(context).await?;
    }
    if Hook::TEARDOWN.iter().all(|&hook| undo::undo_units(run, hook, context.unit_ref()).is_empty()) {
        // No undo of this unit will end later and schedule the release.
        secrets::schedule_late_release(env, run).await?;
    }
    env.store.patch_run(&run.id, &accept(RunEvent::SucceededLate(mark))).await?;
    if sealed {
        repeat_skipped_undos(context).await?;
    }
    // A cancelled run waits for this result.
    env.queue.send(QueueMessage::Run(run.id.clone()), Duration::ZERO).await;
    Ok(LateResult::Late)
}

/// Returns 32 bits of the digest, which distinguish the results of an attempt in the head.
fn mark(digest: &str) -> u32 {
    use sha2::Digest as _;
    let [a, b, c, d, ..] = <[u8; 32]>::from(sha2::Sha256::digest(digest.as_bytes()));
    u32::from_be_bytes([a, b, c, d])
}

/// Reopens the undos of a unit in the runs of the teardown, and in an update that runs or has failed.
async fn reopen_undos(context: AttemptContext<'_>) -> FlowResult<()> {
    let AttemptContext { env, run, .. } = context;
    let target = env.store.read_target(run.facts.target_key()).await?;
    let last = target.filter(|target| target.uid == run.facts.uid).and_then(|target| target.hook);
    let update = last.filter(|hook| matches!(hook, Hook::Update(_)));
    for hook in Hook::TEARDOWN.into_iter().chain(update) {
        if let Some((later, head, undos)) = begun_undos(context, hook).await? {
            reopen_seen(env, &later, &head, &undos, ReopenCause::LateSuccess).await?;
        }
    }
    Ok(())
}

/// Returns true if an undo of the teardown may have read the records of a unit. The teardown has each undo that an update
/// has, and a unit with a late mark is undone again, so an undo that begins later reads all records.
async fn teardown_may_have_read(context: AttemptContext<'_>) -> FlowResult<bool> {
    for hook in Hook::TEARDOWN {
        if begun_undos(context, hook).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the undos of a unit in the run of `hook` that may have begun, if there are any, with that run and its head.
async fn begun_undos(context: AttemptContext<'_>, hook: Hook) -> FlowResult<Option<(Run, HeadState, Vec<Unit>)>> {
    // The plan of the run may be older than the updates of the instance.
    let Some(later) = Run::load(context.env, &context.run.id.sibling(hook)).await? else { return Ok(None) };
    let mut undos = undo::undo_units(&later, hook, context.unit_ref());
    if undos.is_empty() {
        return Ok(None);
    }
    let head = later.read_head(context.env).await?;
    undos.retain(|&undo| may_have_begun(&later, &head, undo));
    Ok((!undos.is_empty()).then_some((later, head, undos)))
}

/// Returns false if a unit has certainly not begun in a head that was read after a record was written. An undo that begins
/// later reads the record. A dependency that has let it pass before and is open again has a further attempt.
fn may_have_begun(run: &Run, head: &HeadState, unit: Unit) -> bool {
    let never_let_pass =
        |dependency: &Unit| !lets_pass(run.graph(), head, *dependency) && head.attempt(*dependency) == Attempt::FIRST;
    let is_first = head.status(unit) == UnitProgress::Open(Attempt::FIRST);
    !(is_first && run.graph().dependencies(unit).iter().any(never_let_pass))
}

/// Reopens undos that were skipped because an update has done the same. They can have missed the mark of a late success
/// that the undo of the update did not know. The second pass is not skipped, so a repetition changes nothing.
async fn repeat_skipped_undos(context: AttemptContext<'_>) -> FlowResult<()> {
    let AttemptContext { env, run, .. } = context;
    for hook in Hook::TEARDOWN {
        let Some(later) = Run::load(env, &run.id.sibling(hook)).await? else { continue };
        let mut undos = undo::undo_units(&later, hook, context.unit_ref());
        undos.retain(|&undo| later.unit(undo).is_some_and(|unit| !unit.unless.is_empty()));
        if undos.is_empty() {
            continue;
        }
        let records = env.store.read_records(&later.id, &undos).await?;
        let is_last_skipped = |undo: &Unit| {
            let last =
                records.iter().rev().filter(|(of, ..)| of == undo).find_map(|(.., record)| record.result.as_ref());
            last.is_some_and(|result| result.outcome == AttemptOutcome::Skipped)
        };
        undos.retain(is_last_skipped);
        if !undos.is_empty() {
            reopen(env, &later.id, &undos, ReopenCause::LateSuccess).await?;
        }
    }
    Ok(())
}

/// Starts the next attempt of an undo that has removed one result and has further ones.
async fn start_next_undo(context: AttemptContext<'_>, outcome: AttemptOutcome) -> FlowResult<RunProgress> {
    let AttemptContext { env, run, attempt, .. } = context;
    let to = next_block(attempt.number, context.unit.retry.attempts);
    let next = AttemptRef { number: to, ..attempt };
    let ready = vec![(attempt.unit, to)];
    let ready = match env.store.patch_run(&run.id, &accept(RunEvent::Retried { ended: attempt, to })).await? {
        PatchResult::Written(_) => {
            if outcome == AttemptOutcome::Succeeded {
                telemetry::attempt_ended(run, attempt, Counter::Completed, env.now());
            }
            ready
        }
        // The patch was already written: its response was lost, or the writer ended before it dispatched the attempt.
        PatchResult::ConditionFailed(Some(head)) if refusal(next, &head.head) == PatchRefusal::StillOpen => {
            lease::claim_for_repeat(env, run, ready).await?
        }
        PatchResult::ConditionFailed(_) => Vec::new(),
    };
    Ok(RunProgress { ready, ..RunProgress::default() })
}

async fn apply_failure(context: AttemptContext<'_>, failure: &AttemptFailure) -> FlowResult<RunProgress> {
    let AttemptContext { env, attempt, unit, .. } = context;
    let next = failure.is_retried(unit, attempt.number).then(|| {
        let failures = attempts_used(attempt.number, unit.retry.attempts);
        let wait = unit.retry.backoff().wait(failures, env.random.next());
        env.now().plus(wait.max(ebb_engine::Millis(failure.retry_after.unwrap_or(0).saturating_mul(1000))))
    });
    let (result, put) = records::put(context, &AttemptEnd::Failed(failure.clone()), next).await?;
    let decides = match put {
        PutOutcome::Created => result,
        PutOutcome::Duplicate(first) | PutOutcome::Conflict(first) | PutOutcome::Excess(first) => first,
    };
    resume(context, &decides).await
}

/// Advances the run by a recorded result. It also continues after a crash between record and head.
pub async fn resume(context: AttemptContext<'_>, result: &AttemptResult) -> FlowResult<RunProgress> {
    let AttemptContext { env, run, attempt: AttemptRef { unit, .. }, cache, .. } = context;
    match result.outcome {
        AttemptOutcome::Cancelled => Ok(RunProgress::late(LateResult::Late)),
        outcome if result.has_more() => start_next_undo(context, outcome).await,
        AttemptOutcome::Skipped => {
            cache.put_produced(run, unit, ProducerState::Skipped);
            mark_done(context, Some(&AttemptEnd::Skipped(String::new()))).await
        }
        AttemptOutcome::Succeeded => {
            let outputs = records::read_outputs(env, &result.outputs, |outputs| outputs).await?;
            cache.put_produced(run, unit, records::produced(&run.id, unit, outputs));
            mark_done(context, None).await
        }
        AttemptOutcome::Failed => match result.next {
            Some(next) => schedule_retry(context, next).await,
            None => mark_failed(context).await,
        },
    }
}

async fn schedule_retry(context: AttemptContext<'_>, due: Timestamp) -> FlowResult<RunProgress> {
    let AttemptContext { env, run, attempt, .. } = context;
    // A repeated result may name a past time.
    let due = due.max(env.now());
    let event = RunEvent::Retried { ended: attempt, to: attempt.number.next() };
    if env.store.patch_run(&run.id, &accept_with_wakeup(event, due)).await?.is_written() {
        wakeup::send_wakeup(env, &run.id, due).await;
    } else {
        // The combined write is rejected if the run is due sooner, or if the result is stale. The wake-up is written first: a
        // crash in between costs one idle sweep.
        wakeup::wake_by(env, &run.id, due).await?;
        if !env.store.patch_run(&run.id, &accept(event)).await?.is_written() {
            return Ok(RunProgress::late(LateResult::Late));
        }
    }
    telemetry::attempt_ended(run, attempt, Counter::Retried, env.now());
    Ok(RunProgress::default())
}

/// Marks the unit failed, without a further attempt, and follows the graph.
async fn mark_failed(context: AttemptContext<'_>) -> FlowResult<RunProgress> {
    let AttemptContext { env, run, attempt, .. } = context;
    match env.store.patch_run(&run.id, &accept(RunEvent::Failed(attempt))).await? {
        PatchResult::Written(head) => {
            telemetry::attempt_ended(run, attempt, Counter::Failed, env.now());
            next_progress(context, &head, ResultTaker::of_write(context)).await
        }
        PatchResult::ConditionFailed(Some(head))
            if head.head.epoch == attempt.epoch && refusal(attempt, &head.head) == PatchRefusal::AlreadyFailed =>
        {
            next_progress(context, &head, ResultTaker::Repeated).await
        }
        PatchResult::ConditionFailed(_) => {
            // A cancelled run waits for this result.
            env.queue.send(QueueMessage::Run(run.id.clone()), Duration::ZERO).await;
            Ok(RunProgress::late(LateResult::Late))
        }
    }
}

/// The invocation that takes the next steps after a result.
enum ResultTaker {
    /// Its write showed for the first time that the unit has ended, so no other invocation acts on it.
    Only,
    /// Its write showed it again. After a reopening, an invocation may be dispatching the units that follow.
    First,
    /// The head already had the result. The first taker may be dispatching the next attempts.
    Repeated,
}

impl ResultTaker {
    /// Returns the taker that has written the result of an attempt.
    fn of_write(context: AttemptContext<'_>) -> Self {
        if context.attempt.number == Attempt::FIRST { Self::Only } else { Self::First }
    }
}

/// Returns the progress after a write of the head, which has the result of the attempt.
async fn next_progress(context: AttemptContext<'_>, head: &RunHead, taker: ResultTaker) -> FlowResult<RunProgress> {
    let AttemptContext { env, run, attempt, .. } = context;
    run.check_plan(env, head)?;
    let steps = follow(run.graph(), &head.head, attempt.unit);
    let ready = match taker {
        ResultTaker::Only => steps.dispatch,
        ResultTaker::First => lease::claim(env, run, steps.dispatch).await?,
        ResultTaker::Repeated => lease::claim_for_repeat(env, run, steps.dispatch).await?,
    };
    let end = steps.run_outcome.map(|outcome| {
        let head = Some(Box::new(head.head.clone()));
        RunEnd { outcome: Some(outcome), head }
    });
    Ok(RunProgress { ready, end, late: None })
}
