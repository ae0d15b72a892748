//! Limits the dispatch of a webhook attempt to one invocation at a time (rule LeaseBeforeRepeat).
//!
//! Only the writer that marks a unit done determines which units became ready. There can be several dispatchers if a result
//! is repeated, or if the queue delivers a message twice. A relay identifies tasks by name, so a repetition is harmless. A
//! webhook would be posted twice.
//!
//! The only dispatcher of a webhook writes nothing before it posts. All others record a start or a lease in the attempt
//! record.

use ebb_engine::{Attempt, AttemptRef, Millis, Timestamp, Unit};
use ebb_protocol::record::AttemptRecord;
use ebb_store::AttemptUpdate;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::run::{records, wakeup};
use crate::{Env, FlowError, FlowResult, Run};

/// Starts that are recorded at the same time.
const MAX_WRITES: usize = 32;

/// Returns the attempts that the caller dispatches: tasks of relays, and webhooks without a recorded start. Attempts
/// with a result or an acceptance are left out. If the caller ends before it dispatches, `sweep` finds the attempt.
/// Costs one write per webhook.
pub async fn claim(env: &Env, run: &Run, units: Vec<(Unit, Attempt)>) -> FlowResult<Vec<(Unit, Attempt)>> {
    Ok(record_starts(env, run, unsent(env, run, units).await?).await?.into_iter().map(|one| one.unit_attempt).collect())
}

/// Returns the attempts that a repeated result dispatches, which are tasks of relays. The first receiver of the result
/// may be posting the webhooks now, without a recorded start. `sweep` posts them when the response of that request is
/// due. Costs one write per webhook, and one for the run.
pub async fn claim_for_repeat(env: &Env, run: &Run, units: Vec<(Unit, Attempt)>) -> FlowResult<Vec<(Unit, Attempt)>> {
    let open = unsent(env, run, units).await?;
    // The first receiver may have ended early, even after it recorded the start.
    let has_open_webhook = open.iter().any(|one| one.is_webhook && !one.is_postponed);
    let own = record_starts(env, run, open).await?;
    if has_open_webhook {
        wakeup::wake_by(env, &run.id, env.now().plus(env.settings.response_window())).await?;
    }
    Ok(own.into_iter().filter(|one| !one.is_webhook).map(|one| one.unit_attempt).collect())
}

/// Takes the lease of a webhook attempt that may have been posted before. Of several callers that read the same record,
/// one gets it. The lease lasts until the response of a request that is sent now is due. Costs one write.
pub async fn lease(env: &Env, run: &Run, attempt: AttemptRef, seen: &AttemptRecord) -> FlowResult<bool> {
    let until = env.now().plus(env.settings.response_window());
    let before = env.store.update_attempt(&run.id, attempt.unit, attempt.number, &AttemptUpdate::Leased(until)).await?;
    Ok(before.result.is_none()
        && before.leased_until == seen.leased_until
        && before.next_dispatch == seen.next_dispatch)
}

/// Returns true if this delivery of a message posts the webhooks among `units`, which were forwarded at `forwarded_at`.
/// The lease of the first webhook applies to all of them. A sweep takes its leases before it forwards attempts, so the
/// lease of a delivery is later. Costs one write if there is a webhook.
pub(crate) async fn lease_delivery(
    env: &Env,
    run: &Run,
    units: &[(Unit, Attempt)],
    forwarded_at: Timestamp,
) -> FlowResult<bool> {
    let first = units.iter().find(|(unit, _)| !run.is_relayed(*unit));
    let Some(&(unit, attempt)) = first else { return Ok(true) };
    let now = env.now();
    let until = now.max(forwarded_at.plus(Millis(1))).plus(env.settings.response_window());
    let before = env.store.update_attempt(&run.id, unit, attempt, &AttemptUpdate::Leased(until)).await?;
    // The response to its request may have ended the lease.
    let is_answered = before.result.is_some()
        || before.accepted.is_some()
        || before.next_dispatch.is_some_and(|next| next > forwarded_at);
    let sweep_lease = forwarded_at.plus(env.settings.response_window());
    let delivered = before.leased_until.filter(|&until| until > sweep_lease);
    let is_own = !is_answered && delivered.is_none_or(|until| until <= now);
    if is_own && delivered.is_some() {
        // The interrupted delivery may have sent each request.
        for &(unit, attempt) in units.iter().filter(|(unit, _)| !run.is_relayed(*unit)) {
            for update in [AttemptUpdate::Leased(until), AttemptUpdate::Started(forwarded_at)] {
                env.store.update_attempt(&run.id, unit, attempt, &update).await?;
            }
        }
    }
    Ok(is_own)
}

/// Records the start of the webhooks among `units`. Returns those without an earlier start, and the tasks of relays.
/// Leaves postponed attempts to `sweep`.
async fn record_starts(env: &Env, run: &Run, units: Vec<UnsentAttempt>) -> FlowResult<Vec<UnsentAttempt>> {
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
    let first: Vec<_> = futures::stream::iter(starts).buffered(MAX_WRITES).try_collect().await?;
    Ok(first.into_iter().flatten().collect())
}

/// An attempt without a result and without an acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentAttempt {
    pub unit_attempt: (Unit, Attempt),
    pub is_webhook: bool,
    pub is_started: bool,
    /// True if it was postponed until now. `sweep` dispatches it.
    pub is_postponed: bool,
}

/// Returns the attempts without a result and without an acceptance, except those that are postponed to a later time.
pub async fn unsent(env: &Env, run: &Run, units: Vec<(Unit, Attempt)>) -> FlowResult<Vec<UnsentAttempt>> {
    let records = records::read_open(env, run, &units).await?;
    let now = env.now();
    let unsent = units.into_iter().filter_map(|unit_attempt| {
        let record = records.get(&unit_attempt).cloned().unwrap_or_default();
        let (is_webhook, is_started) = (!run.is_relayed(unit_attempt.0), record.started.is_some());
        let is_later = record.next_dispatch.is_some_and(|at| at > now);
        let is_postponed = record.next_dispatch.is_some();
        let is_unsent = record.result.is_none() && record.accepted.is_none() && !is_later;
        is_unsent.then_some(UnsentAttempt { unit_attempt, is_webhook, is_started, is_postponed })
    });
    Ok(unsent.collect())
}
