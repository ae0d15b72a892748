//! Records: `r#RUN` / `u#IIIII#AAA`, and `…#late#DIGEST` for a second result of the same try.
//!
//! Attributes have names of one or two letters, since a record is written for every unit that has outputs: `s`
//! started, `c` accepted, `n` asked again or put off until, `q` posted, `le` leased until, `b` last beat, `p` its line; of the result `v` verdict, `t` time, `k`
//! milliseconds, `o` outputs as JSON or `ob` their key in the bucket, `e` reason as JSON, `x` next try, `lg` whether
//! there is a log, `un` whether no backend answered, `dg` digest. `dg` is there exactly when there is a result. `ds` names
//! the further successes that are kept, `dx` counts those that are not. `ev` is the evidence of a failure as JSON; `rc`
//! counts callbacks that were refused, `rr` is the reason of the last one.
//!
//! `r#RUN` / `b` is written before outputs of the run go to the bucket, so that a removal lists objects only where some may
//! exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use ebb_protocol::engine::{Attempt, Shard, Timestamp, Unit};
use ebb_protocol::evidence::Evidence;
use ebb_protocol::id::RunId;
use ebb_protocol::limits;
use ebb_protocol::record::{AttemptOutcome, AttemptRecord, AttemptResult, CallbackRefusals, OutputStorage};
use futures::{StreamExt, TryStreamExt};

use super::attribute::{Item, ItemReader, digest, item_size, json, number, text};
use super::expression::UpdateExpression;
use super::failure::{failure, past_conflicts};
use super::key::RecordPart;
use super::{DynamoTable, PARALLEL, key};
use crate::meter::CapacityKind;
use crate::ops::{AttemptUpdate, PutAttemptResult, PutOutcome, ReadRecords, StoreResult, UpdateAttemptRecord};

/// Units without interest that a query may pass over rather than becoming two.
const GAP: u32 = 16;

const OUTCOMES: [(AttemptOutcome, u8); 4] = [
    (AttemptOutcome::Succeeded, 0),
    (AttemptOutcome::Skipped, 1),
    (AttemptOutcome::Failed, 2),
    (AttemptOutcome::Cancelled, 3),
];

fn result_attributes(result: &AttemptResult) -> StoreResult<Vec<(&'static str, AttributeValue)>> {
    let verdict = OUTCOMES.iter().find(|row| row.0 == result.outcome).map_or(0, |row| row.1);
    let mut attributes = vec![("v", number(verdict)), ("t", number(result.at)), ("dg", digest(&result.digest))];
    match &result.outputs {
        OutputStorage::Nothing => {}
        OutputStorage::Inline(outputs) => attributes.push(("o", json(outputs)?)),
        OutputStorage::Bucket(key) => attributes.push(("ob", text(key))),
    }
    if let Some(took) = result.duration_ms {
        attributes.push(("k", number(took)));
    }
    if let Some(reason) = &result.reason {
        attributes.push(("e", json(reason)?));
    }
    if let Some(evidence) = &result.evidence {
        attributes.push(("ev", json(evidence)?));
    }
    if let Some(next) = result.next {
        attributes.push(("x", number(next)));
    }
    if result.log {
        attributes.push(("lg", AttributeValue::Bool(true)));
    }
    if result.unanswered {
        attributes.push(("un", AttributeValue::Bool(true)));
    }
    Ok(attributes)
}

fn read_result(reader: &ItemReader<'_>, item: &Item) -> StoreResult<Option<AttemptResult>> {
    let Some(digest) = reader.digest_if_any("dg")? else { return Ok(None) };
    let code: u8 = reader.number("v")?;
    let verdict = OUTCOMES.iter().find(|row| row.1 == code);
    let outputs = match (reader.json_if_any("o")?, reader.text_if_any("ob")?) {
        (Some(outputs), _) => OutputStorage::Inline(outputs),
        (None, Some(key)) => OutputStorage::Bucket(key.to_owned()),
        (None, None) => OutputStorage::Nothing,
    };
    Ok(Some(AttemptResult {
        outcome: verdict.ok_or_else(|| reader.broken(format!("unknown verdict {code}")))?.0,
        at: reader.number("t")?,
        duration_ms: reader.number_if_any("k")?,
        outputs,
        reason: reader.json_if_any("e")?,
        // Evidence decides nothing: the rest of the record is of use without it.
        evidence: reader.json_if_any("ev").unwrap_or_else(|error| {
            tracing::warn!(%error, "the evidence of a failure cannot be read");
            Some(Box::new(Evidence::damaged(&error.to_string())))
        }),
        next: reader.number_if_any("x")?,
        log: item.contains_key("lg"),
        unanswered: item.contains_key("un"),
        digest,
    }))
}

fn read_record(operation: &'static str, item: &Item) -> StoreResult<AttemptRecord> {
    let reader = ItemReader::new(operation, item);
    Ok(AttemptRecord {
        started: reader.number_if_any("s")?,
        accepted: reader.number_if_any("c")?,
        next_dispatch: reader.number_if_any("n")?,
        posted: reader.number_if_any("q")?,
        leased_until: reader.number_if_any("le")?,
        heartbeat: reader.number_if_any("b")?,
        progress: reader.text_if_any("p")?.map(str::to_owned),
        result: read_result(&reader, item)?,
        further_results: vec![],
        excess: reader.number_if_any("dx")?.unwrap_or(0),
        refused: match reader.number_if_any("rc")? {
            Some(count) => Some(CallbackRefusals { count, reason: reader.text("rr")?.to_owned() }),
            None => None,
        },
    })
}

/// Records and second results put together.
#[derive(Default)]
struct RecordAssembly(BTreeMap<(Unit, Attempt), AttemptRecord>);

impl RecordAssembly {
    /// Adds an item of a query's page.
    fn add(&mut self, item: &Item) -> StoreResult<()> {
        let reader = ItemReader::new("Query", item);
        let place = key::record_of(reader.text("sk")?).ok_or_else(|| reader.broken("no record"))?;
        let record = self.0.entry((place.0, place.1)).or_default();
        match place.2 {
            // Its key is the beginning of the others' keys, so it comes first.
            RecordPart::Main => *record = read_record("Query", item)?,
            RecordPart::Second => record.further_results.extend(read_result(&reader, item)?),
        }
        Ok(())
    }

    /// The records in the order of units and tries.
    fn into_records(self) -> impl Iterator<Item = (Unit, Attempt, AttemptRecord)> {
        self.0.into_iter().map(|((unit, attempt), record)| (unit, attempt, record))
    }
}

/// Ranges of units that one query each reads: neighbours share one.
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

/// Attributes of a record without its outputs and its evidence.
const OUTLINE: [&str; 20] =
    ["pk", "sk", "s", "c", "n", "q", "le", "b", "p", "v", "t", "k", "e", "x", "lg", "un", "dg", "dx", "rc", "rr"];

#[async_trait]
impl ReadRecords for DynamoTable {
    async fn read_records(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        let partition = key::run(run);
        let queries = ranges(units).into_iter().map(|(first, last)| {
            let (least, greatest) = key::records(first, last);
            self.assembled(self.range_query(&partition, &least, &greatest))
        });
        let parts: Vec<RecordAssembly> =
            futures::stream::iter(queries).buffer_unordered(PARALLEL).try_collect().await?;
        let wanted: BTreeSet<Unit> = units.iter().copied().collect();
        let mut records: Vec<_> = parts.into_iter().flat_map(RecordAssembly::into_records).collect();
        records.retain(|(unit, ..)| wanted.contains(unit));
        records.sort_by_key(|(unit, attempt, _)| (*unit, *attempt));
        Ok(records)
    }

    async fn read_outlines(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        let names: HashMap<_, _> = OUTLINE.into_iter().map(|name| (format!("#{name}"), name.to_owned())).collect();
        let projection = names.keys().cloned().collect::<Vec<_>>().join(", ");
        let query = self.range_query(&key::run(run), "u#", "u$").projection_expression(projection);
        let records = self.assembled(query.set_expression_attribute_names(Some(names))).await?;
        Ok(records.into_records().collect())
    }

    async fn read_accepted(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
        self.read_accepted_attempts(run, units).await
    }

    async fn read_all_records(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        Ok(self.assembled(self.range_query(&key::run(run), "u#", "u$")).await?.into_records().collect())
    }
}

/// The outcome of a conditional write to a record.
enum RecordWrite {
    Updated(Item),
    ConditionFailed(Item),
}

impl DynamoTable {
    /// The records that `query` finds. Each page becomes records before the next one is read.
    async fn assembled(&self, query: QueryFluentBuilder) -> StoreResult<RecordAssembly> {
        let mut records = RecordAssembly::default();
        let mut from = None;
        loop {
            let (items, next) = self.page(query.clone().set_exclusive_start_key(from)).await?;
            items.iter().try_for_each(|item| records.add(item))?;
            from = next;
            if from.is_none() {
                return Ok(records);
            }
        }
    }

    async fn update_record(
        &self,
        run: &RunId,
        (unit, attempt): (Unit, Attempt),
        expression: UpdateExpression,
        image: ReturnValue,
    ) -> StoreResult<RecordWrite> {
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("pk", text(key::run(run)))
            .key("sk", text(key::record(unit, attempt)))
            .set_condition_expression(expression.condition())
            .set_update_expression(expression.update())
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values(image)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_return_consumed_capacity(self.report());
        match past_conflicts(|| request.clone().send()).await {
            Ok(answer) => {
                self.answered("UpdateItem", CapacityKind::Write, answer.consumed_capacity.as_slice());
                let item = answer.attributes.unwrap_or_default();
                self.written(item_size(&item), 0);
                Ok(RecordWrite::Updated(item))
            }
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                self.answered("UpdateItem", CapacityKind::Write, &[]);
                let item = match error.into_err() {
                    UpdateItemError::ConditionalCheckFailedException(refused) => refused.item,
                    _ => None,
                };
                let item = item.unwrap_or_default();
                self.refused(item_size(&item));
                Ok(RecordWrite::ConditionFailed(item))
            }
            Err(error) => Err(failure("UpdateItem", &error)),
        }
    }

    /// Reserves a place for a further success, before it is kept; false: `room` distinct ones have a place already, and
    /// this one is counted.
    async fn reserve(
        &self,
        run: &RunId,
        (unit, attempt): (Unit, Attempt),
        digest: &str,
        room: usize,
    ) -> StoreResult<bool> {
        let mut expression = UpdateExpression::default();
        let (places, own) = (expression.name("ds"), expression.value(text(digest)));
        let room = expression.value(number(room));
        expression.require(format!(
            "(attribute_not_exists({places}) OR contains({places}, {own}) OR size({places}) < {room})"
        ));
        expression.add("ds", AttributeValue::Ss(vec![digest.to_owned()]));
        if let RecordWrite::Updated(_) =
            self.update_record(run, (unit, attempt), expression, ReturnValue::AllNew).await?
        {
            return Ok(true);
        }
        let mut expression = UpdateExpression::default();
        expression.add("dx", number(1));
        self.update_record(run, (unit, attempt), expression, ReturnValue::AllNew).await?;
        Ok(false)
    }

    /// Keeps a second result as it first came: a repetition must not make it younger, for undos take what tries made in
    /// the order in which it came to light.
    async fn put_second(&self, run: &RunId, unit: Unit, attempt: Attempt, result: &AttemptResult) -> StoreResult<()> {
        let mut item: Item =
            result_attributes(result)?.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        item.insert("pk".to_owned(), text(key::run(run)));
        item.insert("sk".to_owned(), text(key::second_result(unit, attempt, &result.digest)));
        let bytes = item_size(&item);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(pk)")
            .set_return_consumed_capacity(self.report());
        match past_conflicts(|| request.clone().send()).await {
            Ok(answer) => {
                self.answered("PutItem", CapacityKind::Write, answer.consumed_capacity.as_slice());
                self.written(bytes, 0);
                Ok(())
            }
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                self.answered("PutItem", CapacityKind::Write, &[]);
                self.refused(0);
                Ok(())
            }
            Err(error) => Err(failure("PutItem", &error)),
        }
    }
}

#[async_trait]
impl UpdateAttemptRecord for DynamoTable {
    async fn update_attempt(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        note: &AttemptUpdate,
    ) -> StoreResult<AttemptRecord> {
        let mut expression = UpdateExpression::default();
        expression.require_absent("dg");
        match note {
            AttemptUpdate::Started(at) => expression.set_if_absent("s", number(at.0)),
            // Whoever will call back is not asked again.
            AttemptUpdate::Accepted(at) => {
                expression.set_if_absent("c", number(at.0));
                expression.remove("n");
                expression.remove("le");
            }
            AttemptUpdate::DispatchAgain(at) => {
                expression.set("n", number(at.0));
                expression.remove("le");
            }
            AttemptUpdate::Posted(at) => expression.set_if_absent("q", number(at.0)),
            AttemptUpdate::Leased(until) => expression.set("le", number(until.0)),
            AttemptUpdate::Postponed(at) => {
                expression.set("n", number(at.0));
                expression.remove("s");
                expression.remove("le");
            }
            AttemptUpdate::Heartbeat(at, progress) => {
                expression.set("b", number(at.0));
                if let Some(progress) = progress {
                    expression.set("p", text(progress));
                }
            }
            AttemptUpdate::Refused(reason) => {
                expression.add("rc", number(1));
                expression.set("rr", text(reason));
            }
        }
        match self.update_record(run, (unit, attempt), expression, ReturnValue::AllOld).await? {
            RecordWrite::Updated(item) | RecordWrite::ConditionFailed(item) => read_record("UpdateItem", &item),
        }
    }

    async fn record_accepted(
        &self,
        run: &RunId,
        shard: Shard,
        tries: &[(Unit, Attempt)],
        at: Timestamp,
    ) -> StoreResult<()> {
        self.record_accepted_attempts(run, shard, tries, at).await
    }
}

#[async_trait]
impl PutAttemptResult for DynamoTable {
    async fn put_result(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        result: &AttemptResult,
    ) -> StoreResult<PutOutcome> {
        let mut expression = UpdateExpression::default();
        expression.require_absent("dg");
        for (name, value) in result_attributes(result)? {
            expression.set(name, value);
        }
        let item = match self.update_record(run, (unit, attempt), expression, ReturnValue::AllNew).await? {
            RecordWrite::Updated(_) => return Ok(PutOutcome::Created),
            RecordWrite::ConditionFailed(item) => item,
        };
        let reader = ItemReader::new("UpdateItem", &item);
        let first = read_result(&reader, &item)?.ok_or_else(|| reader.broken("refused without a result"))?;
        if first.digest == result.digest {
            return Ok(PutOutcome::Duplicate(first));
        }
        // Other verdicts have one digest each, so there are few of them.
        if result.outcome == AttemptOutcome::Succeeded {
            let room = limits::DISTINCT_RESULTS - usize::from(first.outcome == AttemptOutcome::Succeeded);
            let name = key::second_digest(&result.digest);
            let kept = reader.texts("ds")?.contains(&name);
            if !kept && !self.reserve(run, (unit, attempt), &name, room).await? {
                return Ok(PutOutcome::Excess(first));
            }
        }
        self.put_second(run, unit, attempt, result).await?;
        Ok(PutOutcome::Conflict(first))
    }

    async fn mark_outputs(&self, run: &RunId) -> StoreResult<()> {
        let key = [("pk", text(key::run(run))), ("sk", text(key::OUTPUTS))];
        self.put(key.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_query() {
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
