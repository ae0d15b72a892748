//! Heartbeats of the health check: `check` / mark, with the time `at`.

use async_trait::async_trait;
use ebb_protocol::engine::Timestamp;

use super::attribute::{Item, ItemReader, number, text};
use super::{DynamoTable, key};
use crate::ops::{HealthMark, HealthMarks, StoreResult};
use crate::table::TableSpec;

const AT: &str = "at";

fn sort(what: HealthMark) -> &'static str {
    match what {
        HealthMark::Table => key::HEAD,
        HealthMark::Queue => "queue",
        HealthMark::Schedule => "schedule",
    }
}

#[async_trait]
impl HealthMarks for DynamoTable {
    async fn put_mark(&self, what: HealthMark, now: Timestamp) -> StoreResult<()> {
        self.put(Item::from([
            (TableSpec::PARTITION.to_owned(), text(key::CHECK)),
            (TableSpec::SORT.to_owned(), text(sort(what))),
            (AT.to_owned(), number(now.0)),
        ]))
        .await
    }

    async fn read_mark(&self, what: HealthMark) -> StoreResult<Option<Timestamp>> {
        let item = self.get(key::CHECK, sort(what)).await?;
        item.map(|item| ItemReader::new("GetItem", &item).time(AT)).transpose()
    }
}
