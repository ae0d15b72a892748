//! Claims of units that more than one invocation may send.
//!
//! In a run of one item, only the writer that marks a unit done sees which units became ready. There may be several senders
//! if the units of a join are in several items, if a result is repeated, or if the queue delivers a message twice. A relay
//! knows works by their names, so it may be asked twice. A webhook would be posted twice.
//!
//! The only sender of a webhook writes nothing before it posts. All others claim the try in its record.

use ebb_documents::plan::Action;
use ebb_engine::{Attempt, Millis, Timestamp, Unit};
use ebb_protocol::record::AttemptRecord;
use ebb_store::AttemptUpdate;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::AttemptRef;
use crate::run::head::Run;
use crate::run::records;
use crate::run::wakeup;

/// Claims that are written at a time.
const AT_ONCE: usize = 32;

/// Returns the units that the caller sends: units of relays, and webhooks whose start was not noted before. Units with a
/// result, and accepted ones, are left out. `sweep` finds a try whose claimer died before it sent it.
///
/// One write per webhook.
///
/// # Errors
/// The store's.
pub async fn claim(env: &Env, run: &Run, units: Vec<(Unit, Attempt)>) -> Result<Vec<(Unit, Attempt)>, FlowError> {
    let mine = record_starts(env, run, unsent(env, run, units).await?).await?;
    Ok(mine.into_iter().map(|one| one.unit_attempt).collect())
}

/// Returns the units that a repetition of a result sends: units of relays. The first sender of the result may be posting the
/// webhooks now, and has not claimed them if it was the only sender. `sweep` posts them once that request must have been
/// answered.
///
/// One write per webhook, and one for the run.
///
/// # Errors
/// The store's.
pub async fn claim_for_repeat(
    env: &Env,
    run: &Run,
    units: Vec<(Unit, Attempt)>,
) -> Result<Vec<(Unit, Attempt)>, FlowError> {
    let open = unsent(env, run, units).await?;
    // The first sender may have died, also one that had claimed them.
    let is_left = open.iter().any(|one| one.is_webhook && !one.is_postponed);
    let mine = record_starts(env, run, open).await?;
    if is_left {
        wakeup::wake_by(env, &run.id, env.now().plus(env.settings.response_window())).await?;
    }
    Ok(mine.into_iter().filter(|one| !one.is_webhook).map(|one| one.unit_attempt).collect())
}

/// Takes the lease of a webhook's try that may have been posted before. One of the callers that saw the same record gets it.
/// The lease lasts until a request that is sent now must have been answered.
///
/// One write.
///
/// # Errors
/// The store's.
pub async fn lease(env: &Env, run: &Run, this: AttemptRef, seen: &AttemptRecord) -> Result<bool, FlowError> {
    let until = env.now().plus(env.settings.response_window());
    let before = env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::Leased(until)).await?;
    Ok(before.result.is_none()
        && before.leased_until == seen.leased_until
        && before.next_dispatch == seen.next_dispatch)
}

/// Returns true if one delivery of a message posts the webhooks among `units`, which the message passed on at `passed`. The
/// queue may deliver the message again. The lease of the first webhook stands for all of them. A look takes its leases
/// before it passes units on, so the lease of a delivery is later.
///
/// One write, if there is a webhook.
///
/// # Errors
/// The store's.
pub(crate) async fn lease_delivery(
    env: &Env,
    run: &Run,
    units: &[(Unit, Attempt)],
    passed: Timestamp,
) -> Result<bool, FlowError> {
    let first = units.iter().find(|(unit, _)| is_webhook(run, *unit));
    let Some(&(unit, attempt)) = first else {
        return Ok(true);
    };
    let now = env.now();
    let until = now.max(passed.plus(Millis(1))).plus(env.settings.response_window());
    let before = env.store.update_attempt(&run.id, unit, attempt, &AttemptUpdate::Leased(until)).await?;
    // The answer to its request may have ended the lease.
    let is_answered = before.result.is_some()
        || before.accepted.is_some()
        || before.next_dispatch.is_some_and(|again| again > passed.0);
    let of_a_look = passed.plus(env.settings.response_window());
    let is_leased = before.leased_until.map(Timestamp).is_some_and(|until| until > of_a_look && until > now);
    Ok(!is_answered && !is_leased)
}

fn is_webhook(run: &Run, unit: Unit) -> bool {
    run.unit(unit).is_some_and(|unit| matches!(unit.action, Action::Webhook(_)))
}

/// Notes the start of the webhooks among `units`. Returns those whose start was not noted before, and the units of
/// relays. What was put off is left to `sweep`.
async fn record_starts(env: &Env, run: &Run, units: Vec<UnsentAttempt>) -> Result<Vec<UnsentAttempt>, FlowError> {
    let starts = units.into_iter().filter(|one| !one.is_postponed).map(|one| async move {
        let (unit, attempt) = one.unit_attempt;
        if !one.is_webhook {
            return Ok(Some(one));
        }
        if one.is_started {
            return Ok(None);
        }
        let before = env.store.update_attempt(&run.id, unit, attempt, &AttemptUpdate::Started(env.now())).await?;
        let is_first = before.started.is_none() && before.accepted.is_none() && before.result.is_none();
        Ok::<_, FlowError>(is_first.then_some(one))
    });
    let first: Vec<_> = futures::stream::iter(starts).buffered(AT_ONCE).try_collect().await?;
    Ok(first.into_iter().flatten().collect())
}

/// A try that has neither a result nor the promise of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentAttempt {
    pub unit_attempt: (Unit, Attempt),
    /// True if it is a webhook.
    pub is_webhook: bool,
    /// True if its start is recorded.
    pub is_started: bool,
    /// True if it was put off until now, or was to be asked again by now: a look of `sweep` sends it.
    pub is_postponed: bool,
}

/// Returns the units that have neither a result nor the promise of one. Accepted units are never sent again, and units that
/// are put off not before their time.
///
/// # Errors
/// The store's.
pub async fn unsent(env: &Env, run: &Run, units: Vec<(Unit, Attempt)>) -> Result<Vec<UnsentAttempt>, FlowError> {
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let positions: Vec<Unit> = units.iter().map(|(unit, _)| *unit).collect();
    let records = records::read_open(env, run, &positions).await?;
    let now = env.now();
    let is_unsent = |record: &AttemptRecord| {
        let put_off = record.next_dispatch.is_some_and(|at| at > now.0);
        record.result.is_none() && record.accepted.is_none() && !put_off
    };
    let unsent = units.into_iter().filter_map(|try_of| {
        let record = records.get(&try_of);
        let is_posted = is_webhook(run, try_of.0);
        let is_started = record.is_some_and(|record| record.started.is_some());
        let is_put_off = record.is_some_and(|record| record.next_dispatch.is_some());
        record.is_none_or(is_unsent).then_some(UnsentAttempt {
            unit_attempt: try_of,
            is_webhook: is_posted,
            is_started,
            is_postponed: is_put_off,
        })
    });
    Ok(unsent.collect())
}
