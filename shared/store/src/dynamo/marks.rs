//! Marks of what works: `check` / what it is of, with the time `at`.

use async_trait::async_trait;
use ebb_wire::engine::Timestamp;

use super::attribute::{Item, Reader, number, text};
use super::{Dynamo, key};
use crate::ops::{Mark, Marks, Stored};
use crate::table::TableSpec;

const AT: &str = "at";

fn sort(what: Mark) -> &'static str {
    match what {
        Mark::Table => key::HEAD,
        Mark::Queue => "queue",
        Mark::Schedule => "schedule",
    }
}

#[async_trait]
impl Marks for Dynamo {
    async fn mark(&self, what: Mark, now: Timestamp) -> Stored<()> {
        self.put(Item::from([
            (TableSpec::PARTITION.to_owned(), text(key::CHECK)),
            (TableSpec::SORT.to_owned(), text(sort(what))),
            (AT.to_owned(), number(now.0)),
        ]))
        .await
    }

    async fn marked(&self, what: Mark) -> Stored<Option<Timestamp>> {
        let item = self.get(key::CHECK, sort(what)).await?;
        item.map(|item| Reader::new("GetItem", &item).time(AT)).transpose()
    }
}
