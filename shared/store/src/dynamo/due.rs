//! The two indexes: due items and lists.

use std::collections::HashMap;

use ebb_protocol::{TargetKey, Timestamp};
use futures::{StreamExt, TryStreamExt};

use super::{Item, ItemReader, PARALLEL, Store, key, read_target};
use crate::{DueItem, ItemPage, ItemQuery, ListPage, MAX_GET_BATCH, QueryRange, StoreResult, TableSpec, TargetList};

/// The largest page of keys in an index query. It stays below the limit of 1 MB.
const LARGEST_PAGE: usize = 1_000;

/// Index entries that one page of a list reads at most.
const MAX_ENTRIES: usize = 5_000;

fn read_due(entry: &Item) -> StoreResult<(Timestamp, DueItem)> {
    let reader = ItemReader::new("Query", entry);
    let due =
        key::due_of(reader.text("pk")?).ok_or_else(|| reader.broken("the partition key is not that of a due item"))?;
    Ok((reader.time("due")?, due))
}

/// Queries the due index (`Query` per index shard), and lists targets (`Query` on the list index, then `BatchGetItem`).
impl Store {
    /// Returns at most `limit` items that are due at `now`, the earliest first. Unreadable entries are skipped.
    pub async fn query_due(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(Timestamp, DueItem)>> {
        let page = limit.clamp(1, LARGEST_PAGE);
        let read = |entry: Item| {
            let due = read_due(&entry);
            due.inspect_err(|error| tracing::warn!(%error, "an unreadable entry of the due index is skipped")).ok()
        };
        let shards = (0..key::DUE_SHARDS).map(|shard| {
            let range = QueryRange::Due { shard, until: now.0 };
            let query = ItemQuery { limit: Some(page), ..ItemQuery::new(range) };
            async move { self.table.read_pages(&query, limit, read).await }
        });
        let found: Vec<Vec<_>> = futures::stream::iter(shards).buffer_unordered(PARALLEL).try_collect().await?;
        let mut found = found.concat();
        found.sort();
        found.truncate(limit);
        Ok(found)
    }

    /// Returns the names of the living targets of a kind, as the index has them: keys only, and possibly stale.
    pub async fn living_names(&self, kind: &str) -> StoreResult<Vec<String>> {
        let (least, greatest) = key::targets(Some(kind), None);
        let range = QueryRange::List { list: TableSpec::LIST_TARGETS.to_owned(), partitions: Some((least, greatest)) };
        let name = |entry: Item| match DueItem::of(&entry) {
            Some(DueItem::Target(_, name)) => Some(name),
            _ => None,
        };
        self.table.read_pages(&ItemQuery::new(range), usize::MAX, name).await
    }

    /// Returns targets of a kind, or of all kinds, after the target `after`.
    pub async fn list_page(
        &self,
        list: TargetList,
        kind: Option<&str>,
        after: Option<TargetKey<'_>>,
        limit: usize,
    ) -> StoreResult<ListPage> {
        let (mut least, greatest) = key::targets(kind, after);
        let mut found = ListPage::default();
        // The index may be stale: an entry can name an item that has left the list or the table.
        let mut page = limit.min(LARGEST_PAGE);
        let mut read = 0;
        while found.targets.len() < limit {
            let partitions = Some((least, greatest.clone()));
            let range = QueryRange::List { list: list.partition().to_owned(), partitions };
            let query = ItemQuery { limit: Some(page), ..ItemQuery::new(range) };
            let ItemPage { items: keys, next } = self.table.page(&query, None).await?;
            let Some(last) = keys.last() else { break };
            let last = ItemReader::new("Query", last).text("pk")?;
            least = format!("{last}!");
            let mut items = HashMap::new();
            for item in self.table.batch_get(&keys, None).await? {
                items.insert(ItemReader::new("BatchGetItem", &item).text("pk")?.to_owned(), item);
            }
            for key in &keys {
                let key = ItemReader::new("Query", key).text("pk")?;
                let Some(item) = items.get(key) else { continue };
                match read_target(ItemReader::new("BatchGetItem", item)) {
                    Ok(target) if target.list() == list => found.targets.push(target),
                    Ok(_) => {}
                    Err(error) => found.damaged.push(format!("{key}: {error}")),
                }
            }
            read += keys.len();
            if next.is_none() {
                break;
            }
            if read >= MAX_ENTRIES {
                if let Some(DueItem::Target(kind, name)) = key::due_of(last) {
                    found.next = Some((kind, name));
                }
                break;
            }
            // A page for only the missing targets would need one query per stale entry.
            page = (2 * page).clamp(MAX_GET_BATCH, LARGEST_PAGE);
        }
        if found.targets.len() >= limit {
            found.targets.truncate(limit);
            found.next = found.targets.last().map(|last| (last.kind.clone(), last.name.clone()));
        }
        Ok(found)
    }
}
