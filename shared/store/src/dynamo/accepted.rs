//! Tries that were accepted together: `r#RUN` / `c#SHARD#TIME`, the tries as the string set `u` of `UNIT#ATTEMPT`.
//!
//! One invocation sends many units, and one write notes all acceptances of a head item. The time in the key is that of the
//! note. Invocations that note at the same time share an item. The table removes it by its time to live, which is longer than
//! any `timeout`.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{Attempt, Shard, Timestamp, Unit};
use ebb_protocol::id::RunId;
use futures::{StreamExt as _, TryStreamExt as _};

use super::attribute::{Item, ItemReader};
use super::expression::UpdateExpression;
use super::target::ttl_attribute;
use super::{DynamoTable, PARALLEL, key};
use crate::error::StoreError;
use crate::ops::StoreResult;
use crate::table::TableSpec;

const TRIES: &str = "u";

fn read_tries(item: &Item) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
    let reader = ItemReader::new("Query", item);
    let at = key::accepted_at(reader.text("sk")?).ok_or_else(|| reader.broken("not accepted tries"))?;
    let parsed = |text: &String| {
        let (unit, attempt) = text.split_once('#')?;
        Some((Unit(unit.parse().ok()?), Attempt(attempt.parse().ok()?), at))
    };
    let tries = reader.texts(TRIES)?;
    if tries.is_empty() {
        return Err(reader.broken(format!("no attribute {TRIES}")));
    }
    tries.iter().map(|text| parsed(text).ok_or_else(|| reader.broken(format!("{text:?} in {TRIES}")))).collect()
}

impl DynamoTable {
    pub(crate) async fn record_accepted_attempts(
        &self,
        run: &RunId,
        shard: Shard,
        tries: &[(Unit, Attempt)],
        at: Timestamp,
    ) -> StoreResult<()> {
        let texts = tries.iter().map(|(unit, attempt)| format!("{}#{}", unit.0, attempt.0));
        let mut expression = UpdateExpression::default();
        expression.add(TRIES, AttributeValue::Ss(texts.collect()));
        expression.set(TableSpec::TTL, ttl_attribute(at));
        let request = self
            .client
            .update_item()
            .set_update_expression(expression.update())
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values());
        match self.update_if((&key::run(run), &key::accepted(shard, at)), request).await? {
            true => Ok(()),
            false => Err(StoreError::Broken {
                operation: "UpdateItem",
                reason: format!("accepted tries of {run}: refused without a condition"),
            }),
        }
    }

    pub(crate) async fn read_accepted_attempts(
        &self,
        run: &RunId,
        units: &[Unit],
    ) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
        let partition = key::run(run);
        let wanted: BTreeSet<Unit> = units.iter().copied().collect();
        let shards: BTreeSet<Shard> = units.iter().map(|&unit| Shard::of(unit).0).collect();
        let queries = shards.into_iter().map(|shard| {
            let (least, greatest) = key::all_accepted(shard);
            let query = self.range_query(&partition, &least, &greatest);
            async move {
                let items = self.pages(query, usize::MAX).await?;
                items.iter().map(read_tries).collect::<StoreResult<Vec<_>>>()
            }
        });
        let found: Vec<_> = futures::stream::iter(queries).buffer_unordered(PARALLEL).try_collect().await?;
        let tries = found.into_iter().flatten().flatten();
        Ok(tries.filter(|(unit, ..)| wanted.contains(unit)).collect())
    }
}
