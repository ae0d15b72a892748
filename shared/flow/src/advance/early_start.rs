//! Ends the waits of units early, for an operator: for the time of an attempt after a failure, of a repeated request, of a
//! question, or of a postponed request.
//!
//! A wait that keeps a request apart from one that may still arrive, or whose receiver may still act, is not shortened.

use ebb_documents::plan::Action;
use ebb_engine::{Attempt, AttemptRef, RunPhase, TargetPhase, Timestamp, Unit, in_flight};
use ebb_protocol::{AttemptResult, ErrorCode, RetryResponse, TargetKey, rfc3339};
use ebb_store::AttemptUpdate;

use crate::advance::retry::{RetryOutcome, retry};
use crate::instance::history::{self, Decision};
use crate::run::records::{self, OpenRecords};
use crate::run::removal::visibility::SHOWN_LATER;
use crate::run::{lease, undo, wakeup};
use crate::{Env, FlowResult, Rejection, Run};

const IN_FLIGHT: &str = "its request may be in flight until then";
const SENT_ONCE: &str = "its request is sent once, and its receiver may act on it until then";
const SLOT: &str = "it has no slot, and asks for one then";
const EARLIER: &str = "the receiver may act on an earlier request until then";

/// The time for which an open attempt waits.
enum AttemptWait {
    /// Its start, after this failure of the attempt before it.
    Start(Box<AttemptResult>),
    /// Its next request, after an answer to the last one, or its next question about an unknown outcome.
    Next,
    /// Its next question about a state.
    Question,
    /// The end of a wait that is not shortened, for this reason.
    Kept(Timestamp, &'static str),
}

/// Starts the units of a target that wait for a time, and otherwise does the same as [`retry`].
pub async fn retry_now(
    env: &Env,
    (key, uid): (TargetKey<'_>, Option<&str>),
    decision: Decision<'_>,
) -> FlowResult<RetryOutcome> {
    match Box::pin(start_early(env, (key, uid), Some(decision))).await? {
        Some(outcome) => Ok(outcome),
        None => retry(env, (key, uid), Some(decision)).await,
    }
}

/// Ends the waits of the units in the last run of a target: of any instance, or only of that with the identity `uid`. The history
/// gets the `decision`. `None` changes nothing, and returns the same. Returns `None` if no unit waits for a time.
pub async fn start_early(
    env: &Env,
    (key, uid): (TargetKey<'_>, Option<&str>),
    decision: Option<Decision<'_>>,
) -> FlowResult<Option<RetryOutcome>> {
    let Some(target) = env.instance((key, uid)).await? else { return Ok(None) };
    let has_failed = matches!(target.phase, TargetPhase::Failed | TargetPhase::Stuck);
    let Some(hook) = target.hook.filter(|_| !has_failed) else { return Ok(None) };
    let running = Run::load_with_head(env, &target.run(hook)).await?;
    let Some((run, head)) = running.filter(|(_, head)| head.phase == RunPhase::Running) else { return Ok(None) };
    // An attempt that starts after the records are read starts later than this.
    let now = env.now();
    let open = in_flight(run.graph(), &head);
    let records = records::read_open(env, &run, &open).await?;
    let (mut waits, mut units, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for (unit, number) in open {
        let (Some(plan), Some(wait)) = (run.unit(unit), wait_of(env, &run, (unit, number), &records)) else { continue };
        if let AttemptWait::Kept(until, why) = wait {
            kept.push(format!("{} waits until {}: {why}", plan.key, rfc3339(until)));
        } else {
            units.push(plan.key.clone());
            waits.push((AttemptRef { unit, number, epoch: head.epoch }, wait));
        }
    }
    if waits.is_empty() {
        let text = format!("no wait of {key} can be shortened: {}", kept.join("; "));
        return Ok((!kept.is_empty()).then_some(Err(Rejection::Refused(ErrorCode::NothingFailed, text))));
    }
    if let Some(decision) = decision {
        Box::pin(history::note_decision(env, &target, decision, units.iter().cloned())).await?;
        for (attempt, wait) in waits {
            end_wait(env, &run, attempt, (wait, &records), now).await?;
        }
        wakeup::wake_by(env, &run.id, env.now()).await?;
    }
    let (uid, run) = (Some(target.uid), run.id.to_string());
    Ok(Some(Ok(RetryResponse { uid, run, units, changes: Vec::new(), ignored: Vec::new(), kept })))
}

/// Returns the wait of an open attempt, or `None` if it is being dispatched, or its executor reports its end.
fn wait_of(env: &Env, run: &Run, attempt: (Unit, Attempt), records: &OpenRecords) -> Option<AttemptWait> {
    let (now, plan) = (env.now(), run.unit(attempt.0)?);
    let record = records.get(&attempt).cloned().unwrap_or_default();
    let (next, is_relayed) = (record.next_dispatch, plan.action.is_relayed());
    if record.result.is_some() {
        return None;
    }
    let Some(begun) = records::started_at(&record) else {
        return match next {
            None => {
                records::awaited(attempt, records).map(|(failure, _)| AttemptWait::Start(Box::new(failure.clone())))
            }
            Some(next) if record.awaited_slot() == Some(SHOWN_LATER) => Some(AttemptWait::Kept(next, SHOWN_LATER)),
            Some(next) if record.awaited_slot().is_some() => Some(AttemptWait::Kept(next, SLOT)),
            // The task is in a queue.
            Some(_) if is_relayed => None,
            Some(next) if next > now && !plan.undoes.is_empty() => Some(AttemptWait::Kept(next, EARLIER)),
            // Its first request is about to start.
            Some(_) => None,
        };
    };
    if record.wait.is_some() {
        return Some(AttemptWait::Question);
    }
    if let Some(until) = record.leased_until.filter(|&until| until > now) {
        return Some(AttemptWait::Kept(until, IN_FLIGHT));
    }
    match next.filter(|&next| next > begun) {
        Some(next) => {
            let (limit, processing) = (env.settings.max_in_flight, undo::processing_time(plan).unwrap_or_default());
            // A question about the outcome is harmless.
            let asks = matches!(&plan.action, Action::Webhook(webhook) if webhook.describe.is_some());
            let is_open = !asks && record.posted.is_some_and(|posted| posted.plus(limit).plus(processing) > now);
            Some(if is_open && next > now { AttemptWait::Kept(next, SENT_ONCE) } else { AttemptWait::Next })
        }
        None if is_relayed || record.accepted.is_some() => None,
        None => {
            let answered = begun.plus(env.settings.response_window());
            (answered > now).then_some(AttemptWait::Kept(answered, IN_FLIGHT))
        }
    }
}

/// Ends the wait of an attempt whose records were read after `read`. The next sweep dispatches the attempt.
async fn end_wait(
    env: &Env,
    run: &Run,
    attempt: AttemptRef,
    (wait, records): (AttemptWait, &OpenRecords),
    read: Timestamp,
) -> FlowResult<()> {
    let AttemptRef { unit, number, .. } = attempt;
    let seen = records.get(&(unit, number)).cloned().unwrap_or_default();
    let at = match wait {
        AttemptWait::Kept(..) => return Ok(()),
        AttemptWait::Start(mut failure) => {
            failure.next = Some(read);
            return Ok(env.store.set_next_start(&run.id, unit, Attempt(number.0.saturating_sub(1)), &failure).await?);
        }
        AttemptWait::Next => {
            if !lease::lease(env, run, attempt, &seen).await? {
                // Another sender sends the request now.
                return Ok(());
            }
            env.now()
        }
        AttemptWait::Question => env.now(),
    };
    env.store.update_attempt(&run.id, unit, number, &AttemptUpdate::DispatchEarlier(at)).await?;
    Ok(())
}
