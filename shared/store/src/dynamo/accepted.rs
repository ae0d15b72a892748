//! Tries that were accepted together: `r#RUN` / `c#SHARD#TIME`, the tries as the string set `u` of `UNIT#ATTEMPT`.
//!
//! One invocation sends many units, and one write notes all acceptances of a head item. The time in the key is that of the
//! note. Invocations that note at the same time share an item. The table removes it by its time to live, which is longer than
//! any `timeout`.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_wire::engine::{Attempt, Shard, Timestamp, Unit};
use ebb_wire::id::RunId;
use futures::{StreamExt as _, TryStreamExt as _};

use super::attribute::{Item, Reader};
use super::expression::Expression;
use super::target::outlived;
use super::{Dynamo, PARALLEL, key};
use crate::error::StoreError;
use crate::ops::Stored;
use crate::table::TableSpec;

const TRIES: &str = "u";

fn read_tries(item: &Item) -> Stored<Vec<(Unit, Attempt, Timestamp)>> {
    let reader = Reader::new("Query", item);
    let at = key::accepted_at(reader.text("sk")?).ok_or_else(|| reader.broken("not accepted tries"))?;
    let parsed = |text: &String| {
        let (unit, attempt) = text.split_once('#')?;
        Some((Unit(unit.parse().ok()?), Attempt(attempt.parse().ok()?), at))
    };
    let tries = reader.texts(TRIES)?;
    if tries.is_empty() {
        return Err(reader.broken(format!("no attribute {TRIES}")));
    }
    tries
        .iter()
        .map(|text| parsed(text).ok_or_else(|| reader.broken(format!("{text:?} in {TRIES}"))))
        .collect()
}

impl Dynamo {
    pub(crate) async fn note_accepted_tries(
        &self,
        run: &RunId,
        shard: Shard,
        tries: &[(Unit, Attempt)],
        at: Timestamp,
    ) -> Stored<()> {
        let texts = tries.iter().map(|(unit, attempt)| format!("{}#{}", unit.0, attempt.0));
        let mut expression = Expression::default();
        expression.add(TRIES, AttributeValue::Ss(texts.collect()));
        expression.set(TableSpec::TTL, outlived(at));
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

    pub(crate) async fn read_accepted_tries(
        &self,
        run: &RunId,
        units: &[Unit],
    ) -> Stored<Vec<(Unit, Attempt, Timestamp)>> {
        let partition = key::run(run);
        let wanted: BTreeSet<Unit> = units.iter().copied().collect();
        let shards: BTreeSet<Shard> = units.iter().map(|&unit| Shard::of(unit).0).collect();
        let queries = shards.into_iter().map(|shard| {
            let (least, greatest) = key::all_accepted(shard);
            let query = self.range_query(&partition, &least, &greatest);
            async move {
                let items = self.pages(query, usize::MAX).await?;
                items.iter().map(read_tries).collect::<Stored<Vec<_>>>()
            }
        });
        let found: Vec<_> = futures::stream::iter(queries).buffer_unordered(PARALLEL).try_collect().await?;
        let tries = found.into_iter().flatten().flatten();
        Ok(tries.filter(|(unit, ..)| wanted.contains(unit)).collect())
    }
}
