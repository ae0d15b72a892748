//! What the lists of a source have shown: `e#SOURCE` / `h`. The state is JSON in `b`, the findings are packed in `z`, or in the
//! bucket with their key in `o`. The version is in `tv`.

use ebb_protocol::short_digest;

use super::attribute::{ItemReader, item_at, number, sparse_json, text};
use super::desired::follows;
use super::document::BodyStorage;
use super::packed::{pack, unpack};
use super::{Store, has_version, key};
use crate::{ListFindings, SourceWatch, StoreResult, TableSpec};

/// Bytes of findings that fit into the item. Larger ones go to the bucket, because an item is written several times.
const FINDINGS_INLINE: usize = 2 << 10;

/// Returns the beginning of the keys of the objects with the findings of a source, whose name has no `/`.
fn findings(source: &str) -> String {
    format!("lists/{source}/")
}

pub(super) fn read_watch(reader: ItemReader<'_>) -> StoreResult<SourceWatch> {
    let watch: SourceWatch = reader.json("b")?;
    Ok(SourceWatch { due: reader.time("due")?, version: reader.number("tv")?, ..watch })
}

/// Reads, writes and removes what lists have shown (`GetItem`, `PutItem`, `DeleteItem`; large findings in the bucket). Lists
/// those of all sources (`Query` on the list index, `BatchGetItem`).
impl Store {
    pub async fn read_watch(&self, source: &str) -> StoreResult<Option<(SourceWatch, ListFindings)>> {
        let Some(item) = self.table.get(&key::watch(source), key::HEAD).await? else { return Ok(None) };
        let reader = ItemReader::new("GetItem", &item);
        let body = BodyStorage::read_named(reader, "z", "o")?;
        let packed = match body {
            Some(body) => self.read_body(body).await?,
            None => return Err(reader.broken("neither z nor o")),
        };
        let findings = unpack(&packed).and_then(|json| serde_json::from_slice(&json).ok());
        let findings = findings.ok_or_else(|| reader.broken("the findings are damaged"))?;
        Ok(Some((read_watch(reader)?, findings)))
    }

    /// Writes a state whose version is one more than the one that was read, or 1. Returns false, and writes nothing, if the item
    /// has another version. A repetition of the same write returns true.
    pub async fn put_watch(&self, watch: &SourceWatch, findings: &ListFindings) -> StoreResult<bool> {
        let partition = key::watch(&watch.source);
        let findings = serde_json::to_string(findings).unwrap_or_default();
        let objects = |version: u64| format!("{}{version}-", self::findings(&watch.source));
        // Another writer of this version, which the condition refuses, does not replace the object.
        let object = objects(watch.version) + &short_digest(&[&findings], 16);
        let body = self.store_body(object, &pack(findings.as_bytes()), FINDINGS_INLINE).await?;
        let is_large = matches!(body, BodyStorage::Object(_));
        let attributes = [
            (TableSpec::LIST, text(TableSpec::LIST_WATCHED)),
            (TableSpec::DUE, number(watch.due.0)),
            (TableSpec::DUE_SHARD, number(key::due_shard(&partition))),
            ("b", sparse_json(watch)?),
            ("tv", number(watch.version)),
            body.attribute_named("z", "o"),
        ];
        let is_written =
            self.table.put_once(item_at((partition, key::HEAD), attributes), follows(watch.version)).await?;
        if is_written && is_large {
            self.bucket.remove_all(&objects(watch.version - 1)).await?;
        }
        Ok(is_written)
    }

    /// Removes what lists of a source have shown, unless the state has another version.
    pub async fn delete_watch(&self, source: &str, version: u64) -> StoreResult<()> {
        let key = (key::watch(source), key::HEAD);
        let is_deleted = self.table.take_if((&key.0, key.1), has_version(Some(version))).await?.is_written();
        if is_deleted || self.table.get(&key.0, key.1).await?.is_none() {
            self.bucket.remove_all(&findings(source)).await?;
        }
        Ok(())
    }

    /// Returns the state of each source that lists what exists, without its findings.
    pub async fn list_watches(&self) -> StoreResult<Vec<SourceWatch>> {
        self.table.list(TableSpec::LIST_WATCHED, None, read_watch).await
    }
}
