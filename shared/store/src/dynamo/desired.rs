//! Desired states: `d#SOURCE#KIND#NAME` / `h` of a target, `d#SOURCE#KIND#NAME#UID` / `h` of an instance. The state is
//! JSON in `b`, and its version is in `tv`.

use super::attribute::{Item, ItemReader, item, number, optional, sparse_json, text};
use super::key;
use super::store::Store;
use super::target::{has_version, ttl_attribute};
use crate::items::{DesiredKey, DesiredTarget};
use crate::ops::StoreResult;
use crate::table::TableSpec;

pub(super) fn read_state(operation: &'static str, item: &Item) -> StoreResult<DesiredTarget> {
    let reader = ItemReader::new(operation, item);
    let state: DesiredTarget = reader.json("b")?;
    Ok(DesiredTarget { due: reader.time_if_any("due")?, version: reader.number("tv")?, ..state })
}

/// Reads and writes the desired states of targets (`GetItem`, `PutItem`).
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
        let mut attributes =
            item([("sk", text(key::HEAD)), ("b", sparse_json(desired)?), ("tv", number(desired.version))]);
        attributes.extend(optional([
            (TableSpec::DUE, desired.due.map(|due| number(due.0))),
            (TableSpec::DUE_SHARD, desired.due.map(|_| number(key::due_shard(&partition)))),
            (TableSpec::TTL, desired.due.is_none().then(|| ttl_attribute(last))),
            ("pk", Some(text(partition))),
        ]));
        let seen = desired.version.checked_sub(1).filter(|seen| *seen > 0);
        self.table.put_once(attributes, has_version(seen)).await
    }
}
