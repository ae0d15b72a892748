//! Which units are sent by somebody who is not the only one that may send them.
//!
//! Who writes a unit done in the only item of a run alone sees what became ready by it. Several may where a join's
//! units are in several items, or where a result is given again because its taker may have died. Sending twice is
//! harmless to a relay, which knows works by their names; a webhook would be posted twice.

use std::collections::BTreeSet;

use ebb_engine::{Attempt, Unit};
use ebb_spec::plan::Work;
use ebb_store::Note;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::Run;

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
        let posts = run.unit(unit).is_some_and(|unit| matches!(unit.work, Work::Webhook(_)));
        if posts {
            let before = env.store.note_record(&run.id, unit, attempt, &Note::Started(env.now())).await?;
            if before.started.is_some() || before.accepted.is_some() || before.result.is_some() {
                continue;
            }
        }
        own.push((unit, attempt));
    }
    Ok(own)
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
