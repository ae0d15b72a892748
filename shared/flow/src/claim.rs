//! Which units are sent by somebody who is not the only one that may send them.
//!
//! Who writes a unit done in the only item of a run alone sees what became ready by it. Several may where a join's
//! units are in several items, or where a result is given again because its taker may have died. Sending twice is
//! harmless to a relay, which knows works by their names; a webhook would be posted twice.
//!
//! The only sender of a webhook writes nothing before it posts. All others go by what the record says.

use std::collections::BTreeSet;

use ebb_engine::{Attempt, Unit};
use ebb_spec::plan::Work;
use ebb_store::Note;
use ebb_wire::record::Record;

use crate::dispatch::{self, Try};
use crate::env::Env;
use crate::error::FlowError;
use crate::run::Run;
use crate::switch::{self, Rule};

/// Those of `units` that are to be sent from here: one that has neither a result nor the promise of one, and of the
/// webhooks among them those whose start was noted by nobody before. A try that was claimed by who died before sending
/// it is found by `sweep`.
///
/// One write per webhook.
///
/// # Errors
/// The store's.
pub async fn claim(
    env: &Env,
    run: &Run,
    units: Vec<(Unit, Attempt)>,
) -> Result<Vec<(Unit, Attempt)>, FlowError> {
    let mut own = Vec::new();
    for (unit, attempt) in unsent(env, run, units).await? {
        if is_posted(run, unit) {
            let before = env.store.note_record(&run.id, unit, attempt, &Note::Started(env.now())).await?;
            if before.started.is_some() || before.accepted.is_some() || before.result.is_some() {
                continue;
            }
        }
        own.push((unit, attempt));
    }
    Ok(own)
}

/// Those of `units` that a repetition of a result sends: units of relays. Whoever took the result first may be posting
/// the webhooks right now, and has not claimed them where it was the only sender. So `sweep` posts them, once such a
/// request must have been answered.
///
/// One write per webhook, and one for the run.
///
/// # Errors
/// The store's.
pub async fn leave(
    env: &Env,
    run: &Run,
    units: Vec<(Unit, Attempt)>,
) -> Result<Vec<(Unit, Attempt)>, FlowError> {
    if !switch::holds(Rule::RepetitionsWait) {
        return claim(env, run, units).await;
    }
    let units = unsent(env, run, units).await?;
    let (posted, relayed): (Vec<_>, Vec<_>) = units.into_iter().partition(|(unit, _)| is_posted(run, *unit));
    let mut left = false;
    for (unit, attempt) in posted {
        let before = env.store.note_record(&run.id, unit, attempt, &Note::Started(env.now())).await?;
        left |= before.started.is_none() && before.accepted.is_none() && before.result.is_none();
    }
    if left {
        dispatch::hasten(env, run, env.settings.sending().0).await?;
    }
    Ok(relayed)
}

/// Takes the lease of a webhook's try that may have been posted before. Of those that saw the same record one gets it, and
/// has it until its request must have been answered.
///
/// One write.
///
/// # Errors
/// The store's.
pub async fn lease(env: &Env, run: &Run, this: Try, seen: &Record) -> Result<bool, FlowError> {
    if !switch::holds(Rule::LeaseBeforeRepeat) {
        return Ok(true);
    }
    let until = env.now().plus(env.settings.sending());
    let before = env.store.note_record(&run.id, this.unit, this.attempt, &Note::Leased(until)).await?;
    Ok(before.result.is_none() && before.leased == seen.leased && before.again == seen.again)
}

fn is_posted(run: &Run, unit: Unit) -> bool {
    run.unit(unit).is_some_and(|unit| matches!(unit.work, Work::Webhook(_)))
}

/// Those of `units` that have neither a result nor the promise of one: what is accepted is never sent again.
///
/// # Errors
/// The store's.
pub async fn unsent(
    env: &Env,
    run: &Run,
    units: Vec<(Unit, Attempt)>,
) -> Result<Vec<(Unit, Attempt)>, FlowError> {
    if units.is_empty() {
        return Ok(units);
    }
    let positions: Vec<Unit> = units.iter().map(|(unit, _)| *unit).collect();
    let sent: BTreeSet<(Unit, Attempt)> = env
        .store
        .read_records(&run.id, &positions)
        .await?
        .into_iter()
        .filter(|(_, _, record)| {
            record.result.is_some() || record.accepted.is_some() || record.again.is_some()
        })
        .map(|(unit, attempt, _)| (unit, attempt))
        .collect();
    Ok(units.into_iter().filter(|one| !sent.contains(one)).collect())
}
