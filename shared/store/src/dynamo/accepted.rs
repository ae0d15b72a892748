//! Acceptances of several attempts: `r#RUN` / `c#TIME`, with the string set `u` of `UNIT#ATTEMPT`.
//!
//! One write records all acceptances of a run in one invocation. Invocations that write in the same millisecond
//! share an item. The item expires later than any `timeout`.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::{Attempt, Timestamp, Unit};
use ebb_protocol::id::RunId;

use super::{ItemReader, Store, key, ttl_attribute};
use crate::item_table::AttributeChange::{Add, Set};
use crate::{StoreResult, TableSpec, WriteExpression};

const ATTEMPTS: &str = "u";

pub(super) fn read_acceptances(reader: ItemReader<'_>) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
    let at =
        key::accepted_at(reader.text("sk")?).ok_or_else(|| reader.broken("the sort key is not that of acceptances"))?;
    let parsed = |text: &String| {
        let (unit, attempt) = text.split_once('#')?;
        Some((Unit(unit.parse().ok()?), Attempt(attempt.parse().ok()?), at))
    };
    let attempts = reader.required(ATTEMPTS, Some(reader.texts(ATTEMPTS)?).filter(|texts| !texts.is_empty()))?;
    attempts.iter().map(|text| parsed(text).ok_or_else(|| reader.broken(format!("{text:?} in {ATTEMPTS}")))).collect()
}

/// Acceptances of attempts, whose records stay unchanged (`UpdateItem`, `Query`).
impl Store {
    /// Records acceptances in one write.
    pub async fn record_accepted(&self, run: &RunId, attempts: &[(Unit, Attempt)], at: Timestamp) -> StoreResult<()> {
        let texts = attempts.iter().map(|(unit, attempt)| format!("{}#{}", unit.0, attempt.0));
        let changes = [(ATTEMPTS, Add(AttributeValue::Ss(texts.collect()))), (TableSpec::TTL, Set(ttl_attribute(at)))];
        let expression = WriteExpression::default().with(changes);
        self.table.update_if((&key::run(run), &key::accepted(at)), expression).await.map(drop)
    }

    /// Returns the acceptances of `units`, in no order.
    pub async fn read_accepted(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
        if units.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: BTreeSet<Unit> = units.iter().copied().collect();
        let (least, greatest) = key::ACCEPTED;
        let items = self.table.range(&key::run(run), least, greatest).await?;
        let found = items.iter().map(|item| read_acceptances(ItemReader::new("Query", item)));
        let found = found.collect::<StoreResult<Vec<_>>>()?;
        Ok(found.into_iter().flatten().filter(|(unit, ..)| wanted.contains(unit)).collect())
    }
}
