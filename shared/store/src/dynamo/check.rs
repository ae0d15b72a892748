//! What is written to see whether that can be done: `check` / `h`, with the time `at`.

use async_trait::async_trait;
use ebb_wire::engine::Timestamp;

use super::attribute::{Item, Reader, number, text};
use super::{Dynamo, key};
use crate::ops::{CheckTable, Stored};
use crate::table::TableSpec;

const AT: &str = "at";

#[async_trait]
impl CheckTable for Dynamo {
    async fn check_table(&self, now: Timestamp) -> Stored<Option<Timestamp>> {
        self.put(Item::from([
            (TableSpec::PARTITION.to_owned(), text(key::CHECK)),
            (TableSpec::SORT.to_owned(), text(key::HEAD)),
            (AT.to_owned(), number(now.0)),
        ]))
        .await?;
        let item = self.get(key::CHECK, key::HEAD).await?;
        item.map(|item| Reader::new("GetItem", &item).time(AT)).transpose()
    }
}
