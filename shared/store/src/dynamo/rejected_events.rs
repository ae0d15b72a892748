//! Rejected events of a source: `j#SOURCE` / `h`. The name of the source is in `n`, the events are JSON in `b`, and the
//! version is in `tv`.

use super::attribute::{Item, ItemReader, item, json, number, text};
use super::key;
use super::store::Store;
use super::target::{has_version, ttl_attribute};
use crate::items::SourceRejections;
use crate::ops::StoreResult;
use crate::table::TableSpec;

pub(super) fn read_rejections(operation: &'static str, item: &Item) -> StoreResult<SourceRejections> {
    let reader = ItemReader::new(operation, item);
    Ok(SourceRejections {
        source: reader.text("n")?.to_owned(),
        events: reader.json("b")?,
        version: reader.number("tv")?,
    })
}

/// Reads and writes the rejected events of a source (`GetItem`, `PutItem`).
impl Store {
    pub async fn read_rejections(&self, source: &str) -> StoreResult<Option<SourceRejections>> {
        self.table.read(&key::rejections(source), key::HEAD, read_rejections).await
    }

    /// Writes events whose version is one more than the one that was read, or 1. Returns false, and writes nothing, if
    /// the item has another version. A repetition of the same write returns true. The table removes the item 30 days after
    /// its newest event.
    pub async fn put_rejections(&self, rejections: &SourceRejections) -> StoreResult<bool> {
        let newest = rejections.events.first().map(|event| event.time).unwrap_or_default();
        let attributes = item([
            ("pk", text(key::rejections(&rejections.source))),
            ("sk", text(key::HEAD)),
            (TableSpec::LIST, text(TableSpec::LIST_REJECTED)),
            ("n", text(&rejections.source)),
            ("b", json(&rejections.events)?),
            ("tv", number(rejections.version)),
            (TableSpec::TTL, ttl_attribute(newest)),
        ]);
        let seen = rejections.version.checked_sub(1).filter(|seen| *seen > 0);
        self.table.put_once(attributes, has_version(seen)).await
    }
}

/// Lists the rejected events of all sources (`Query` on the list index, `BatchGetItem`).
impl Store {
    /// Returns the events of each source that has any, in no order. A source can be deleted.
    pub async fn list_rejections(&self) -> StoreResult<Vec<SourceRejections>> {
        self.table.list(TableSpec::LIST_REJECTED, None, read_rejections).await
    }
}
