//! Rejected events of a source: `j#SOURCE` / `h`. The name of the source is in `n`, the events are JSON in `b`, and the
//! version is in `tv`.

use async_trait::async_trait;
use ebb_protocol::engine::Timestamp;

use super::attribute::{Item, ItemReader, item, json, number, text};
use super::key;
use super::target::{has_version, ttl_attribute};
use crate::items::SourceRejections;
use crate::ops::{ListRejections, NoteRejections, StoreResult};
use crate::store::Store;
use crate::table::TableSpec;

fn read_rejections(operation: &'static str, item: &Item) -> StoreResult<SourceRejections> {
    let reader = ItemReader::new(operation, item);
    Ok(SourceRejections {
        source: reader.text("n")?.to_owned(),
        events: reader.json("b")?,
        version: reader.number("tv")?,
    })
}

#[async_trait]
impl NoteRejections for Store {
    async fn read_rejections(&self, source: &str) -> StoreResult<Option<SourceRejections>> {
        self.table.read(&key::rejections(source), key::HEAD, read_rejections).await
    }

    async fn put_rejections(&self, rejections: &SourceRejections) -> StoreResult<bool> {
        let newest = Timestamp(rejections.events.first().map_or(0, |event| event.time));
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
        self.table.put_once(attributes, has_version(seen), u64::from(seen.is_none())).await
    }
}

#[async_trait]
impl ListRejections for Store {
    async fn list_rejections(&self) -> StoreResult<Vec<SourceRejections>> {
        self.table.list(TableSpec::LIST_REJECTED, None, read_rejections).await
    }
}
