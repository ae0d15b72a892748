//! Acceptances of several attempts: `r#RUN` / `c#SHARD#TIME`, with the string set `u` of `UNIT#ATTEMPT`.
//!
//! One write records all acceptances of a head item in one invocation. Invocations that write in the same millisecond
//! share an item. The item expires later than any `timeout`.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{Attempt, Shard, Timestamp, Unit};
use ebb_protocol::id::RunId;
use futures::{StreamExt as _, TryStreamExt as _};

use super::attribute::{Item, ItemReader};
use super::target::ttl_attribute;
use super::{MeteredTable, PARALLEL, key};
use crate::item_table::WriteExpression;
use crate::ops::StoreResult;
use crate::table::TableSpec;

const ATTEMPTS: &str = "u";

pub(super) fn read_acceptances(item: &Item) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
    let reader = ItemReader::new("Query", item);
    let at =
        key::accepted_at(reader.text("sk")?).ok_or_else(|| reader.broken("the sort key is not that of acceptances"))?;
    let parsed = |text: &String| {
        let (unit, attempt) = text.split_once('#')?;
        Some((Unit(unit.parse().ok()?), Attempt(attempt.parse().ok()?), at))
    };
    let attempts = reader.texts(ATTEMPTS)?;
    if attempts.is_empty() {
        return Err(reader.broken(format!("attribute {ATTEMPTS} is missing")));
    }
    attempts.iter().map(|text| parsed(text).ok_or_else(|| reader.broken(format!("{text:?} in {ATTEMPTS}")))).collect()
}

pub(super) async fn record(
    table: &MeteredTable,
    run: &RunId,
    shard: Shard,
    attempts: &[(Unit, Attempt)],
    at: Timestamp,
) -> StoreResult<()> {
    let texts = attempts.iter().map(|(unit, attempt)| format!("{}#{}", unit.0, attempt.0));
    let mut expression = WriteExpression::default();
    expression.add(ATTEMPTS, AttributeValue::Ss(texts.collect()));
    expression.set(TableSpec::TTL, ttl_attribute(at));
    table.update_if((&key::run(run), &key::accepted(shard, at)), expression).await.map(drop)
}

pub(super) async fn read(
    table: &MeteredTable,
    run: &RunId,
    units: &[Unit],
) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
    let partition = key::run(run);
    let wanted: BTreeSet<Unit> = units.iter().copied().collect();
    let shards: BTreeSet<Shard> = units.iter().map(|&unit| Shard::of(unit).0).collect();
    let queries = shards.into_iter().map(|shard| {
        let (least, greatest) = key::all_accepted(shard);
        let partition = &partition;
        async move {
            let items = table.range(partition, &least, &greatest).await?;
            items.iter().map(read_acceptances).collect::<StoreResult<Vec<_>>>()
        }
    });
    let found: Vec<_> = futures::stream::iter(queries).buffer_unordered(PARALLEL).try_collect().await?;
    let attempts = found.into_iter().flatten().flatten();
    Ok(attempts.filter(|(unit, ..)| wanted.contains(unit)).collect())
}
