//! Desired states: `d#SOURCE#KIND#NAME` / `h` of a target, `d#SOURCE#KIND#NAME#UID` / `h` of an instance. The state is
//! JSON in `b`, and its version is in `tv`.
//! Rejected events of a source: `j#SOURCE` / `h`. The name of the source is in `n`, the events are JSON in `b`, and the
//! version is in `tv`.

use super::attribute::{ItemReader, item_at, json, number, sparse_json, text};
use super::{Store, has_version, key, ttl_attribute};
use crate::{DesiredKey, DesiredTarget, SourceRejections, StoreResult, TableSpec, WriteExpression};

/// Returns the condition that an item has the version before this one, or does not exist if this is the first one.
pub(super) fn follows(version: u64) -> WriteExpression {
    has_version(version.checked_sub(1).filter(|seen| *seen > 0))
}

pub(super) fn read_state(reader: ItemReader<'_>) -> StoreResult<DesiredTarget> {
    let state: DesiredTarget = reader.json("b")?;
    Ok(DesiredTarget { due: reader.time_if_any("due")?, version: reader.number("tv")?, ..state })
}

pub(super) fn read_rejections(reader: ItemReader<'_>) -> StoreResult<SourceRejections> {
    Ok(SourceRejections {
        source: reader.text("n")?.to_owned(),
        events: reader.json("b")?,
        version: reader.number("tv")?,
    })
}

/// Reads and writes the desired states of targets and the rejected events of sources (`GetItem`, `PutItem`). Lists the
/// rejected events of all sources (`Query` on the list index, `BatchGetItem`).
impl Store {
    pub async fn read_desired(&self, key: &DesiredKey) -> StoreResult<Option<DesiredTarget>> {
        self.table.read(&key::desired(key), key::HEAD, read_state).await
    }

    /// Writes a state whose version is one more than the one that was read, or 1. Returns false, and writes nothing, if
    /// the item has another version. A repetition of the same write returns true.
    pub async fn put_desired(&self, desired: &DesiredTarget) -> StoreResult<bool> {
        let partition = key::desired(&desired.key);
        // The time of an event can be long ago when it arrives.
        let last = desired.time.max(desired.result_time.unwrap_or_default());
        let attributes = [
            (TableSpec::DUE, desired.due.map(|due| number(due.0))),
            (TableSpec::DUE_SHARD, desired.due.map(|_| number(key::due_shard(&partition)))),
            (TableSpec::TTL, desired.due.is_none().then(|| ttl_attribute(last))),
            ("b", Some(sparse_json(desired)?)),
            ("tv", Some(number(desired.version))),
        ];
        self.table.put_once(item_at((partition, key::HEAD), attributes), follows(desired.version)).await
    }

    pub async fn read_rejections(&self, source: &str) -> StoreResult<Option<SourceRejections>> {
        self.table.read(&key::rejections(source), key::HEAD, read_rejections).await
    }

    /// Writes events whose version is one more than the one that was read, or 1. Returns false, and writes nothing, if
    /// the item has another version. A repetition of the same write returns true. The table removes the item 30 days after
    /// its newest event.
    pub async fn put_rejections(&self, rejections: &SourceRejections) -> StoreResult<bool> {
        let newest = rejections.events.first().map(|event| event.time).unwrap_or_default();
        let attributes = [
            (TableSpec::LIST, text(TableSpec::LIST_REJECTED)),
            ("n", text(&rejections.source)),
            ("b", json(&rejections.events)?),
            ("tv", number(rejections.version)),
            (TableSpec::TTL, ttl_attribute(newest)),
        ];
        let item = item_at((key::rejections(&rejections.source), key::HEAD), attributes);
        self.table.put_once(item, follows(rejections.version)).await
    }

    /// Returns the events of each source that has any, in no order. A source can be deleted.
    pub async fn list_rejections(&self) -> StoreResult<Vec<SourceRejections>> {
        self.table.list(TableSpec::LIST_REJECTED, None, read_rejections).await
    }
}
