//! Attempt records: `r#RUN` / `u#UNIT#ATTEMPT`, and `…#late#DIGEST` for a further result of the same attempt.
//!
//! Names of attributes are short, because every unit with outputs has a record:
//!
//! - `s` started, `c` accepted, `n` next request or postponed until, `nr` number of repetitions, `pw` wait for a slot, `q` posted, `qb`
//!   posted by, `le` leased until, `b` heartbeat, `p` progress, `w` wait for a state as JSON, `sb` seen by, `im`, `il`, `ix` IDs of made,
//!   listed and destroyed instances;
//! - result: `re` the result as JSON without the following, `o` outputs as JSON or `ob` their bucket key, `ev` evidence
//!   as JSON, `lg` log exists, `dg` digest;
//! - `ds` digests of further successes, `dx` number of excess successes, `rc` number of rejected callbacks, `rr`
//!   reason of the last one, `ro` its outputs as JSON.
//!
//! A record has a result exactly if it has `dg`. The mark `r#RUN` / `b` is written before the first output in the
//! bucket, so that a removal lists objects only where some may exist.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{Attempt, Unit};
use ebb_protocol::{
    AttemptOutcome, AttemptRecord, AttemptResult, CallbackRefusals, Evidence, InstanceIds, OutputStorage, RunId, limits,
};
use futures::{StreamExt, TryStreamExt};

use super::attribute::{Item, ItemReader, digest, item, item_at, json, number, sparse_json, text};
use super::key::RecordPart;
use super::{PARALLEL, Store, TableClient, key};
use crate::ops::{AttemptUpdate, PutOutcome, StoreResult, UnitRecord};
use crate::{AttributeChange, ItemKey, ItemQuery, UpdateImage, WriteCondition, WriteExpression, WriteOutcome};

/// Units between two requested ones that a query reads rather than being split.
const GAP: u32 = 16;

fn result_attributes(result: &AttemptResult) -> StoreResult<Item> {
    let outputs = match &result.outputs {
        OutputStorage::Nothing => None,
        OutputStorage::Inline(outputs) => Some(("o", Some(json(outputs)?))),
        OutputStorage::Bucket(key) => Some(("ob", Some(text(key)))),
    };
    let attributes = [
        ("re", Some(sparse_json(result)?)),
        ("dg", Some(digest(&result.digest))),
        ("ev", result.evidence.as_ref().map(json).transpose()?),
        ("lg", result.log.then_some(AttributeValue::Bool(true))),
    ];
    Ok(item(attributes.into_iter().chain(outputs)))
}

pub(super) fn read_result(reader: ItemReader<'_>) -> StoreResult<Option<AttemptResult>> {
    let Some(digest) = reader.digest_if_any("dg")? else { return Ok(None) };
    let outputs = match (reader.json_if_any("o")?, reader.text_if_any("ob")?) {
        (Some(outputs), _) => OutputStorage::Inline(outputs),
        (None, Some(key)) => OutputStorage::Bucket(key.to_owned()),
        (None, None) => OutputStorage::Nothing,
    };
    // Evidence is only displayed to people, so damaged evidence does not make the record unreadable.
    let evidence = reader.json_if_any("ev").unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the evidence of a failure");
        Some(Box::new(Evidence::damaged(&error.to_string())))
    });
    let result: AttemptResult = reader.json("re")?;
    Ok(Some(AttemptResult { outputs, evidence, log: reader.item.contains_key("lg"), digest, ..result }))
}

pub(super) fn read_record(reader: ItemReader<'_>) -> StoreResult<AttemptRecord> {
    let ids = |name| -> StoreResult<BTreeSet<String>> { Ok(reader.texts(name)?.iter().cloned().collect()) };
    Ok(AttemptRecord {
        started: reader.time_if_any("s")?,
        accepted: reader.time_if_any("c")?,
        next_dispatch: reader.time_if_any("n")?,
        slot_wait: reader.text_if_any("pw")?.map(str::to_owned),
        repeats: reader.number_if_any("nr")?.unwrap_or(0),
        posted: reader.time_if_any("q")?,
        posted_by: reader.text_if_any("qb")?.map(str::to_owned),
        leased_until: reader.time_if_any("le")?,
        heartbeat: reader.time_if_any("b")?,
        progress: reader.text_if_any("p")?.map(str::to_owned),
        wait: reader.json_if_any("w")?,
        seen_by: reader.text_if_any("sb")?.map(str::to_owned),
        instances: InstanceIds { made: ids("im")?, listed: ids("il")?, destroyed: ids("ix")? },
        result: read_result(reader)?,
        further_results: vec![],
        excess: reader.number_if_any("dx")?.unwrap_or(0),
        refused: match reader.number_if_any("rc")? {
            Some(count) => Some(CallbackRefusals { count, reason: reader.text("rr")?.to_owned() }),
            None => None,
        },
        reported: reader.json_if_any("ro")?.map_or(OutputStorage::Nothing, OutputStorage::Inline),
    })
}

fn update_changes(update: &AttemptUpdate) -> StoreResult<Vec<(&'static str, AttributeChange)>> {
    use AttributeChange::{Add, Remove, Set, SetIfAbsent};
    Ok(match update {
        AttemptUpdate::Started(at) => vec![("s", SetIfAbsent(number(at.0)))],
        // An accepted request is not sent again.
        AttemptUpdate::Accepted(at) => vec![("c", SetIfAbsent(number(at.0))), ("n", Remove), ("le", Remove)],
        AttemptUpdate::DispatchAgain(at) => vec![("n", Set(number(at.0))), ("nr", Add(number(1))), ("le", Remove)],
        AttemptUpdate::DispatchEarlier(at) => vec![("n", Set(number(at.0))), ("le", Remove)],
        AttemptUpdate::Posted(at, by) => {
            let by = by.as_ref().map(|by| ("qb", SetIfAbsent(text(by))));
            [("q", SetIfAbsent(number(at.0)))].into_iter().chain(by).collect()
        }
        AttemptUpdate::Leased(until) => vec![("le", Set(number(until.0)))],
        // A lease stays, because it shows that an earlier request may have been sent.
        AttemptUpdate::Postponed(at, why) => {
            let why = why.as_ref().map_or(Remove, |why| Set(text(why)));
            vec![("n", Set(number(at.0))), ("s", Remove), ("pw", why)]
        }
        AttemptUpdate::Heartbeat(at, progress) => {
            let progress = progress.as_ref().map(|progress| ("p", Set(text(progress))));
            [("b", Set(number(at.0)))].into_iter().chain(progress).collect()
        }
        AttemptUpdate::Refused(reason) => vec![("rc", Add(number(1))), ("rr", Set(text(reason)))],
        AttemptUpdate::Reported(outputs) => vec![("ro", Set(json(outputs)?))],
        AttemptUpdate::Waiting { wait, begun, next, seen_by } => {
            let (wait, begun) = (SetIfAbsent(json(wait)?), SetIfAbsent(number(begun.0)));
            let seen_by = seen_by.as_ref().map(|by| ("sb", Set(text(by))));
            let changes = [("w", wait), ("s", begun), ("n", Set(number(next.0))), ("le", Remove)];
            changes.into_iter().chain(seen_by).collect()
        }
        AttemptUpdate::Seen(by) => vec![("sb", Set(text(by)))],
        AttemptUpdate::Instances(InstanceIds { made, listed, destroyed }) => {
            // The table has no empty set.
            let sets = [("im", made), ("il", listed), ("ix", destroyed)].into_iter().filter(|(_, ids)| !ids.is_empty());
            sets.map(|(name, ids)| (name, Add(AttributeValue::Ss(ids.iter().cloned().collect())))).collect()
        }
    })
}

fn add_item(records: &mut BTreeMap<(Unit, Attempt), AttemptRecord>, reader: ItemReader<'_>) -> StoreResult<()> {
    let (unit, attempt, part) =
        key::record_of(reader.text("sk")?).ok_or_else(|| reader.broken("the sort key is not that of a record"))?;
    let record = records.entry((unit, attempt)).or_default();
    match part {
        // The main item sorts before the items of further results.
        RecordPart::Main => *record = read_record(reader)?,
        RecordPart::Second => record.further_results.extend(read_result(reader)?),
    }
    Ok(())
}

/// Groups units into ranges with one query each.
fn ranges(units: &[Unit]) -> Vec<(Unit, Unit)> {
    let mut sorted = units.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(Unit, Unit)> = Vec::new();
    for unit in sorted {
        match ranges.last_mut() {
            Some((_, last)) if unit.0 - last.0 <= GAP => *last = unit,
            _ => ranges.push((unit, unit)),
        }
    }
    ranges
}

/// Attributes of a record without outputs and evidence.
const OUTLINE: [&str; 23] = [
    "pk", "sk", "s", "c", "n", "pw", "nr", "q", "qb", "le", "b", "p", "w", "sb", "im", "il", "ix", "re", "lg", "dg",
    "dx", "rc", "rr",
];

/// Reads attempt records (`Query`).
impl Store {
    /// Returns the records of all attempts of `units`, ordered by unit and attempt.
    pub async fn read_records(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<UnitRecord>> {
        let partition = key::run(run);
        let queries = ranges(units).into_iter().map(|(first, last)| {
            let (least, greatest) = key::records(first, last);
            self.table.assembled(ItemQuery::range(partition.clone(), least, greatest))
        });
        let parts: Vec<Vec<_>> = futures::stream::iter(queries).buffer_unordered(PARALLEL).try_collect().await?;
        let wanted: BTreeSet<Unit> = units.iter().copied().collect();
        let mut records: Vec<_> = parts.into_iter().flatten().collect();
        records.retain(|(unit, ..)| wanted.contains(unit));
        records.sort_by_key(|(unit, attempt, _)| (*unit, *attempt));
        Ok(records)
    }

    /// Returns all records with [`OutputStorage::Nothing`] and without evidence.
    ///
    /// [`OutputStorage::Nothing`]: ebb_protocol::record::OutputStorage::Nothing
    pub async fn read_outlines(&self, run: &RunId) -> StoreResult<Vec<UnitRecord>> {
        let query = ItemQuery { attributes: Some(&OUTLINE), ..ItemQuery::range(key::run(run), "u#", "u$") };
        self.table.assembled(query).await
    }

    pub async fn read_all_records(&self, run: &RunId) -> StoreResult<Vec<UnitRecord>> {
        self.table.assembled(ItemQuery::range(key::run(run), "u#", "u$")).await
    }
}

impl TableClient {
    /// Reads records, and merges them with their further results. They are ordered by unit and attempt.
    async fn assembled(&self, query: ItemQuery) -> StoreResult<Vec<UnitRecord>> {
        let mut records = BTreeMap::new();
        let mut next = None;
        loop {
            // The items of a run can fill the memory of a function, so each page is read before the next.
            let page = self.page(&query, next).await?;
            page.items.iter().try_for_each(|item| add_item(&mut records, ItemReader::new("Query", item)))?;
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        Ok(records.into_iter().map(|((unit, attempt), record)| (unit, attempt, record)).collect())
    }

    /// Reserves one of `capacity` places for a further success. Returns false and counts the success if all are in use.
    async fn reserve(
        &self,
        run: &RunId,
        (unit, attempt): (Unit, Attempt),
        digest: &str,
        capacity: usize,
    ) -> StoreResult<bool> {
        let is_free = WriteExpression::when(WriteCondition::Any(vec![
            WriteCondition::absent("ds"),
            WriteCondition::Contains("ds".to_owned(), text(digest)),
            WriteCondition::SizeBelow("ds".to_owned(), capacity as u64),
        ]));
        let expression = is_free.with([("ds", AttributeChange::Add(AttributeValue::Ss(vec![digest.to_owned()])))]);
        let (partition, sort) = (key::run(run), key::record(unit, attempt));
        if self.update_if((&partition, &sort), expression).await? {
            return Ok(true);
        }
        let expression = WriteExpression::default().with([("dx", AttributeChange::Add(number(1)))]);
        self.update_if((&partition, &sort), expression).await?;
        Ok(false)
    }
}

/// Updates the record of an attempt before its result (`UpdateItem`). A record with a result stays unchanged.
///
/// - The first `Started`, `Posted`, `Accepted` and `Waiting` count. A `Waiting` sets the start, if there is none.
/// - The last `DispatchAgain`, `DispatchEarlier`, `Leased`, `Postponed`, `Heartbeat`, `Reported` and `Seen` count. The
///   IDs of all `Instances` count.
/// - `Accepted` clears `DispatchAgain`. `Postponed` clears `Started`.
/// - `Accepted`, `DispatchAgain`, `DispatchEarlier` and `Waiting` end a lease.
///
/// Writes the result of an attempt (`UpdateItem`; for a further one another `UpdateItem` and `PutItem`), and changes the start of the
/// attempt after it (`UpdateItem`).
impl Store {
    /// Returns the record before the update, or the unchanged record if it has a result. Of two concurrent starts, one
    /// sees no start. If its response was lost, both see a start.
    pub async fn update_attempt(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        update: &AttemptUpdate,
    ) -> StoreResult<AttemptRecord> {
        let expression = WriteExpression::when(WriteCondition::absent("dg")).with(update_changes(update)?);
        let (partition, sort) = (key::run(run), key::record(unit, attempt));
        match self.table.update((&partition, &sort), expression, UpdateImage::Before).await? {
            WriteOutcome::Written(item) | WriteOutcome::Refused(item) => {
                read_record(ItemReader::new("UpdateItem", &item))
            }
        }
    }

    /// Stores a result. The first result of an attempt decides (RecordDecides).
    pub async fn put_result(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        result: &AttemptResult,
    ) -> StoreResult<PutOutcome> {
        let changes = result_attributes(result)?.into_iter().map(|(name, value)| (name, AttributeChange::Set(value)));
        let expression = WriteExpression::when(WriteCondition::absent("dg")).with(changes);
        let (partition, sort) = (key::run(run), key::record(unit, attempt));
        let item = match self.table.update((&partition, &sort), expression, UpdateImage::After).await? {
            WriteOutcome::Written(_) => return Ok(PutOutcome::Created),
            WriteOutcome::Refused(item) => item,
        };
        let reader = ItemReader::new("UpdateItem", &item);
        let first = read_result(reader)?.ok_or_else(|| reader.broken("refused without a result"))?;
        if first.digest == result.digest {
            return Ok(PutOutcome::Duplicate(first));
        }
        // Each other outcome has a single digest, so there are few of them.
        if result.outcome == AttemptOutcome::Succeeded {
            let capacity = limits::DISTINCT_RESULTS - usize::from(first.outcome == AttemptOutcome::Succeeded);
            let name = key::second_digest(&result.digest);
            let is_stored = reader.texts("ds")?.contains(&name);
            if !is_stored && !self.table.reserve(run, (unit, attempt), &name, capacity).await? {
                return Ok(PutOutcome::Excess(first));
            }
        }
        let sort = key::second_result(unit, attempt, &result.digest);
        let item = item_at((partition, &sort), result_attributes(result)?);
        // A repetition does not change the time of the result, because an undo removes results in order of arrival.
        self.table.put_if(item, WriteExpression::when(WriteCondition::absent("pk"))).await?;
        Ok(PutOutcome::Conflict(first))
    }

    /// Sets the start of the attempt that follows `attempt`, whose result is this failure, except for its `next`.
    pub async fn set_next_start(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        failure: &AttemptResult,
    ) -> StoreResult<()> {
        let is_same = WriteExpression::when(WriteCondition::equal("dg", digest(&failure.digest)));
        let expression = is_same.with([("re", AttributeChange::Set(sparse_json(failure)?))]);
        self.table.update_if((&key::run(run), &key::record(unit, attempt)), expression).await.map(drop)
    }

    /// Marks that the bucket may contain outputs of a run (`PutItem`). The mark is written before the first output, so
    /// that a removal finds outputs that are in no record.
    pub async fn mark_outputs(&self, run: &RunId) -> StoreResult<()> {
        self.table.put(ItemKey::new(key::run(run), key::OUTPUTS).into_item()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_units_share_a_query() {
        let units = |list: &[u32]| list.iter().copied().map(Unit).collect::<Vec<_>>();
        assert_eq!(ranges(&units(&[])), []);
        assert_eq!(ranges(&units(&[3, 1, 2, 2])), [(Unit(1), Unit(3))]);
        for first in [0, 100] {
            let [second, third] = [first + 16, first + 33];
            let expected = [(Unit(first), Unit(second)), (Unit(third), Unit(third))];
            assert_eq!(ranges(&units(&[first, second, third])), expected);
        }
    }
}
