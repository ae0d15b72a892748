//! The operations of the store, and the form of its items.
//!
//! `TableClient` sends and repeats requests. The other modules implement the operations of [`Store`] and
//! describe their items: heads of runs in `run`, records in `record` and `accepted`, targets and tombstones in
//! `target`, plans in `plan`, plugins in `document`, sources and connections in `source`, desired states and
//! rejected events of sources in `desired`, removal times in `expiry`, queued batches in `batch_queue`, registered clusters and
//! the state of clusters in `clusters`, named tokens and sessions of the console in `token`, slots in `slots`, the feed of
//! changed targets in `changed_targets`, their history in `history_items`, and marks of the health check in `health`. Reads of
//! the table are strongly consistent, except those of `changed_targets`.
//!
//! Invariant: a write that is sent twice because its response was lost changes the item once. Otherwise it is refused
//! with an image that shows the first write.

mod accepted;
pub(crate) mod attribute;
mod batch_queue;
mod changed_targets;
mod clusters;
mod desired;
mod document;
mod due;
mod expiry;
mod health;
mod history_items;
mod key;
mod packed;
mod plan;
mod record;
mod run;
mod slots;
mod source;
mod source_watch;
mod store;
#[cfg(feature = "suite")]
mod stored;
mod target;
mod token;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::{StreamExt as _, TryStreamExt as _};

use crate::{
    ItemKey, ItemPage, ItemQuery, ItemTable, ItemWrite, MAX_DELETE_BATCH, MAX_GET_BATCH, Projection, StoreError,
    StoreResult, UpdateImage, WriteAction, WriteExpression, WriteOutcome,
};

pub use attribute::item_size;
pub(crate) use attribute::{Item, ItemReader, digest, item_at, json, number, sparse_json, text};
pub(crate) use document::{BodyStorage, PACKED};
pub(crate) use packed::{pack, unpack};
pub use store::{BATCH_INLINE, DOCUMENT_INLINE, PLAN_INLINE, Store};
#[cfg(feature = "suite")]
pub use stored::StoredItem;
pub(crate) use target::{has_version, read_target, ttl_attribute};

/// Queries in progress at the same time in one operation.
const PARALLEL: usize = 16;
/// Deletions of batches in progress at the same time.
const DELETIONS: usize = 8;
/// The retention of tombstones and of gone targets. Platforms repeat webhooks for a shorter time.
const TOMBSTONE_RETENTION_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// Returns five growing pauses with jitter. Without jitter their sum is 775 ms.
pub(crate) fn pauses() -> ExponentialBuilder {
    let first = Duration::from_millis(25);
    ExponentialBuilder::default().with_min_delay(first).with_max_times(5).with_jitter()
}

/// Waits before a repetition, or fails with `reason` after the last pause.
async fn wait(pause: Option<Duration>, operation: &'static str, reason: &str) -> StoreResult<()> {
    let pause = pause.ok_or_else(|| StoreError::Retryable { operation, reason: reason.to_owned() })?;
    tokio::time::sleep(pause).await;
    Ok(())
}

/// Parses items with `parse`. One that cannot be read is skipped and logged, so that it does not hide the others.
fn readable<T>(operation: &'static str, items: &[Item], parse: ItemParser<T>) -> Vec<T> {
    let read = |item: &Item| {
        parse(ItemReader::new(operation, item))
            .inspect_err(|error| tracing::error!(key = ?ItemKey::of(item), %error, "an item is skipped"))
            .ok()
    };
    items.iter().filter_map(read).collect()
}

/// A function that parses the item of a response to an operation.
type ItemParser<T> = fn(ItemReader<'_>) -> StoreResult<T>;

/// A table whose requests are repeated where the table asks for it.
#[derive(Clone, Debug)]
pub(crate) struct TableClient {
    pub(crate) table: Arc<dyn ItemTable>,
}

impl TableClient {
    /// Reads an item, strongly consistent.
    async fn get(&self, partition: &str, sort: &str) -> StoreResult<Option<Item>> {
        if !key::can_be(partition, sort) {
            return Ok(None);
        }
        let key = ItemKey::new(partition, sort);
        Ok(self.table.get(key).await?.value)
    }

    async fn read<T>(&self, partition: &str, sort: &str, parse: ItemParser<T>) -> StoreResult<Option<T>> {
        self.get(partition, sort).await?.map(|item| parse(ItemReader::new("GetItem", &item))).transpose()
    }

    /// Reads the items of a list and parses them with `parse`. `attributes` are as for [`Self::batch_get`]. The index may be
    /// stale.
    async fn list<T>(&self, list: &str, attributes: Projection, parse: ItemParser<T>) -> StoreResult<Vec<T>> {
        let keys = self.pages(&ItemQuery::list(list), usize::MAX).await?;
        let items = self.batch_get(&keys, attributes).await?;
        items.iter().map(|item| parse(ItemReader::new("BatchGetItem", item))).collect()
    }

    async fn put(&self, item: Item) -> StoreResult<()> {
        self.put_if(item, WriteExpression::default()).await.map(drop)
    }

    async fn put_if(&self, item: Item, expression: WriteExpression) -> StoreResult<WriteOutcome> {
        let reason = || "the item has no key".to_owned();
        let key = ItemKey::of(&item);
        let key = key.ok_or_else(|| StoreError::Broken { operation: "PutItem", reason: reason() })?;
        self.write(ItemWrite { key, expression, action: WriteAction::Put(item) }).await
    }

    /// Replaces an item under the conditions of `expression`. Returns false if they do not hold, unless the item is the
    /// present one: then this write is repeated, because its first response was lost.
    async fn put_once(&self, item: Item, expression: WriteExpression) -> StoreResult<bool> {
        Ok(match self.put_if(item.clone(), expression).await? {
            WriteOutcome::Written(_) => true,
            WriteOutcome::Refused(image) => image == item,
        })
    }

    /// Updates an item and returns it as it was before or after.
    async fn update(
        &self,
        (pk, sk): (&str, &str),
        expression: WriteExpression,
        image: UpdateImage,
    ) -> StoreResult<WriteOutcome> {
        let action = WriteAction::Update(image);
        self.write(ItemWrite { key: ItemKey::new(pk, sk), expression, action }).await
    }

    /// Updates an item. Returns false if a condition does not hold.
    async fn update_if(&self, key: (&str, &str), expression: WriteExpression) -> StoreResult<bool> {
        Ok(self.update(key, expression, UpdateImage::After).await?.is_written())
    }

    /// Deletes an item. A missing item is not an error.
    async fn delete(&self, partition: &str, sort: &str) -> StoreResult<()> {
        self.take(partition, sort).await.map(drop)
    }

    async fn take(&self, partition: &str, sort: &str) -> StoreResult<Option<Item>> {
        match self.take_if((partition, sort), WriteExpression::default()).await? {
            WriteOutcome::Written(item) => Ok(Some(item).filter(|item| !item.is_empty())),
            WriteOutcome::Refused(_) => Ok(None),
        }
    }

    /// Deletes an item if all conditions hold, and returns it.
    async fn take_if(&self, (pk, sk): (&str, &str), expression: WriteExpression) -> StoreResult<WriteOutcome> {
        self.write(ItemWrite { key: ItemKey::new(pk, sk), expression, action: WriteAction::Delete }).await
    }

    async fn write(&self, write: ItemWrite) -> StoreResult<WriteOutcome> {
        Ok(self.table.write(&write).await?.value)
    }

    /// Reads all items of a range, strongly consistent.
    async fn range(&self, partition: &str, least: &str, greatest: &str) -> StoreResult<Vec<Item>> {
        self.pages(&ItemQuery::range(partition.to_owned(), least, greatest), usize::MAX).await
    }

    /// Reads an item as it was a short time ago, at half the price, and parses it with `parse`.
    async fn peek<T>(&self, partition: &str, sort: &str, parse: ItemParser<T>) -> StoreResult<Option<T>> {
        if !key::can_be(partition, sort) {
            return Ok(None);
        }
        let query = ItemQuery::range(partition.to_owned(), sort, sort);
        let items = self.pages(&ItemQuery { is_consistent: false, ..query }, 1).await?;
        items.first().map(|item| parse(ItemReader::new("Query", item))).transpose()
    }

    async fn pages(&self, query: &ItemQuery, enough: usize) -> StoreResult<Vec<Item>> {
        self.read_pages(query, enough, Some).await
    }

    /// Reads pages of a query until there are `enough` items that `read` accepts.
    async fn read_pages<T: Send>(
        &self,
        query: &ItemQuery,
        enough: usize,
        read: impl Fn(Item) -> Option<T> + Send,
    ) -> StoreResult<Vec<T>> {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = self.page(query, from).await?;
            found.extend(page.items.into_iter().filter_map(&read));
            from = page.next;
            if from.is_none() || found.len() >= enough {
                return Ok(found);
            }
        }
    }

    async fn page(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<ItemPage> {
        Ok(self.table.query(query, from).await?.value)
    }

    /// Reads items in no order, strongly consistent. `attributes` are returned, or all. An item that cannot be decoded
    /// has its key only, so these items need a further attribute.
    async fn batch_get(&self, keys: &[Item], attributes: Projection) -> StoreResult<Vec<Item>> {
        let mut items = Vec::new();
        for keys in keys.chunks(MAX_GET_BATCH) {
            let mut unprocessed: Vec<ItemKey> = keys.iter().filter_map(ItemKey::of).collect();
            let mut pauses = pauses().build();
            while !unprocessed.is_empty() {
                let found = self.table.get_batch(unprocessed, attributes).await?.value;
                // A response holds at most 16 MB. Only an empty one means that the table is throttled.
                if found.items.is_empty() && !found.unprocessed.is_empty() {
                    wait(pauses.next(), "BatchGetItem", "keys stay unprocessed").await?;
                }
                items.extend(found.items);
                unprocessed = found.unprocessed;
            }
        }
        Ok(items)
    }

    async fn delete_batches(&self, keys: Vec<ItemKey>) -> StoreResult<()> {
        let batches: Vec<Vec<ItemKey>> = keys.chunks(MAX_DELETE_BATCH).map(<[ItemKey]>::to_vec).collect();
        let deletions = futures::stream::iter(batches).map(|batch| self.delete_batch(batch));
        deletions.buffer_unordered(DELETIONS).try_collect().await
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<()> {
        let mut unprocessed = keys;
        let mut pauses = pauses().build();
        while !unprocessed.is_empty() {
            unprocessed = self.table.delete_batch(unprocessed).await?.value;
            if !unprocessed.is_empty() {
                wait(pauses.next(), "BatchWriteItem", "items stay unprocessed").await?;
            }
        }
        Ok(())
    }
}
