//! Entries of the history of targets: `y#KIND#NAME` / `TIME-SUBJECT`. The entry is JSON in `b`, and its document is
//! compressed in `z`.
//!
//! TIME counts down, so the newest entry is the first one of its partition. SUBJECT is the id of the run, or the digest of
//! a change without a run.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::id::TargetKey;

use super::{Item, ItemReader, PACKED, Store, item_at, key, number, pack, sparse_json, unpack};
use crate::{HistoryItem, HistoryItems, ItemQuery, StoreResult, TableSpec, WriteCondition, WriteExpression};

/// Sort keys begin with a digit.
const GREATEST: &str = ":";

/// The largest compressed document that is stored. An item may have 400 KB.
const MAX_PACKED: usize = 100 << 10;

pub(super) fn history_item(target: TargetKey<'_>, entry: &HistoryItem) -> StoreResult<Item> {
    let packed = entry.document.as_ref().map(|document| pack(document.as_bytes()));
    let packed = packed.filter(|packed| packed.len() <= MAX_PACKED);
    let attributes = [
        ("b", Some(sparse_json(entry)?)),
        (PACKED, packed.map(|packed| AttributeValue::B(Blob::new(packed)))),
        (TableSpec::TTL, entry.expires.map(|at| number(at.0.div_ceil(1000)))),
    ];
    Ok(item_at((key::history(target), &entry.id()), attributes))
}

pub(super) fn read_entry(reader: ItemReader<'_>) -> StoreResult<HistoryItem> {
    let unpacked = |packed: &[u8]| {
        let document = unpack(packed).and_then(|text| String::from_utf8(text).ok());
        document.ok_or_else(|| reader.broken(format!("{PACKED} is damaged")))
    };
    let document = reader.bytes_if_any(PACKED)?.map(unpacked).transpose()?;
    Ok(HistoryItem { document, ..reader.json("b")? })
}

/// Writes entries of the history of a target (`PutItem`). [`Store::move_target`] writes those of changes without a run. Reads
/// the history, also of earlier instances (`Query`, `GetItem`).
impl Store {
    /// Writes an entry. A repetition changes nothing. Returns false, and writes nothing, if another entry has its id.
    pub async fn note_history(&self, target: TargetKey<'_>, entry: &HistoryItem) -> StoreResult<bool> {
        let is_new = WriteExpression::when(WriteCondition::absent("pk"));
        self.table.put_once(history_item(target, entry)?, is_new).await
    }

    /// Returns at most `limit` entries after the id `after`.
    pub async fn list_history(
        &self,
        target: TargetKey<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> StoreResult<HistoryItems> {
        let partition = key::history(target);
        // `!` sorts before every character of an id.
        let least = after.map_or_else(|| "0".to_owned(), |after| format!("{after}!"));
        if !key::can_be(&partition, &least) || least.as_str() > GREATEST {
            return Ok(HistoryItems::default());
        }
        // One more shows whether another page follows.
        let query = ItemQuery { limit: Some(limit + 1), ..ItemQuery::range(partition, least, GREATEST) };
        let items = self.table.pages(&query, limit + 1).await?;
        let entries = items.iter().take(limit).map(|item| read_entry(ItemReader::new("Query", item)));
        let entries = entries.collect::<StoreResult<Vec<_>>>()?;
        let next = entries.last().filter(|_| items.len() > limit).map(HistoryItem::id);
        Ok(HistoryItems { entries, next })
    }

    pub async fn read_history(&self, target: TargetKey<'_>, id: &str) -> StoreResult<Option<HistoryItem>> {
        if id.is_empty() {
            return Ok(None);
        }
        self.table.read(&key::history(target), id, read_entry).await
    }
}
