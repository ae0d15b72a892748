//! Which units are sent by somebody who is not the only one that may send them.
//!
//! Who writes a unit done in the only item of a run alone sees what became ready by it. Several may where a join's
//! units are in several items, or where a result is given again because its taker may have died. Sending twice is
//! harmless to a relay, which knows works by their names; a webhook would be posted twice.
//!
//! The only sender of a webhook writes nothing before it posts. All others go by what the record says.

use std::collections::BTreeMap;

use ebb_engine::{Attempt, Unit};
use ebb_spec::plan::Work;
use ebb_store::Note;
use ebb_wire::record::Record;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::dispatch::{self, Try};
use crate::env::Env;
use crate::error::FlowError;
use crate::run::Run;
use crate::switch::{self, Rule};

/// Claims that are written at a time.
const AT_ONCE: usize = 32;

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
    let mine = note_starts(env, run, unsent(env, run, units).await?).await?;
    Ok(mine.into_iter().map(|one| one.try_of).collect())
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
    let mine = note_starts(env, run, unsent(env, run, units).await?).await?;
    let (left, relayed): (Vec<_>, Vec<_>) = mine.into_iter().partition(|one| one.is_posted);
    if !left.is_empty() {
        dispatch::hasten(env, run, env.now().plus(env.settings.sending())).await?;
    }
    Ok(relayed.into_iter().map(|one| one.try_of).collect())
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

/// Notes the start of the webhooks among `units`. Returns those whose start was not noted before, and the units of
/// relays. What was put off is left to `sweep`.
async fn note_starts(env: &Env, run: &Run, units: Vec<UnsentTry>) -> Result<Vec<UnsentTry>, FlowError> {
    let starts = units.into_iter().filter(|one| !one.is_put_off).map(|one| async move {
        let (unit, attempt) = one.try_of;
        if !one.is_posted {
            return Ok(Some(one));
        }
        if one.is_started {
            return Ok(None);
        }
        let before = env.store.note_record(&run.id, unit, attempt, &Note::Started(env.now())).await?;
        let is_first = before.started.is_none() && before.accepted.is_none() && before.result.is_none();
        Ok::<_, FlowError>(is_first.then_some(one))
    });
    let first: Vec<_> = futures::stream::iter(starts).buffered(AT_ONCE).try_collect().await?;
    Ok(first.into_iter().flatten().collect())
}

/// A try that has neither a result nor the promise of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentTry {
    /// The unit and its try.
    pub try_of: (Unit, Attempt),
    /// True if it is a webhook.
    pub is_posted: bool,
    /// True if its start is recorded.
    pub is_started: bool,
    /// True if it was put off until now, or was to be asked again by now: a look of `sweep` sends it.
    pub is_put_off: bool,
}

/// Those of `units` that have neither a result nor the promise of one: what is accepted is never sent again, and what is
/// put off not before its time.
///
/// # Errors
/// The store's.
pub async fn unsent(env: &Env, run: &Run, units: Vec<(Unit, Attempt)>) -> Result<Vec<UnsentTry>, FlowError> {
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let positions: Vec<Unit> = units.iter().map(|(unit, _)| *unit).collect();
    let found = env.store.read_records(&run.id, &positions).await?;
    let records: BTreeMap<(Unit, Attempt), Record> =
        found.into_iter().map(|(unit, attempt, record)| ((unit, attempt), record)).collect();
    let now = env.now();
    let is_unsent = |record: &Record| {
        let put_off = record.again.is_some_and(|at| at > now.0);
        record.result.is_none() && record.accepted.is_none() && !put_off
    };
    let unsent = units.into_iter().filter_map(|try_of| {
        let record = records.get(&try_of);
        let is_posted = run.unit(try_of.0).is_some_and(|unit| matches!(unit.work, Work::Webhook(_)));
        let is_started = record.is_some_and(|record| record.started.is_some());
        let is_put_off = record.is_some_and(|record| record.again.is_some());
        record.is_none_or(is_unsent).then_some(UnsentTry { try_of, is_posted, is_started, is_put_off })
    });
    Ok(unsent.collect())
}
