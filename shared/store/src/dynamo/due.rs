//! The two indexes: due items and lists.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use backon::BackoffBuilder as _;
use ebb_protocol::engine::Timestamp;
use futures::{StreamExt, TryStreamExt};

use super::attribute::{Item, ItemReader, number, text};
use super::failure::{failure, pauses};
use super::target::read_target;
use super::{DynamoTable, PARALLEL, key};
use crate::error::StoreError;
use crate::items::TargetList;
use crate::meter::CapacityKind;
use crate::ops::{DueItem, ListPage, ListTargets, QueryDue, StoreResult};
use crate::store::Store;
use crate::table::TableSpec;

/// The `BatchGetItem` limit of keys.
const BATCH: usize = 100;
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

#[async_trait]
impl QueryDue for Store {
    async fn query_due(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(Timestamp, DueItem)>> {
        let page = i32::try_from(limit.clamp(1, LARGEST_PAGE)).unwrap_or(i32::MAX);
        let shards = (0..key::DUE_SHARDS).map(|shard| {
            let query = self
                .dynamo
                .client
                .query()
                .index_name(TableSpec::DUE_INDEX)
                .key_condition_expression("#g = :g AND #d <= :now")
                .expression_attribute_names("#g", TableSpec::DUE_SHARD)
                .expression_attribute_names("#d", TableSpec::DUE)
                .expression_attribute_values(":g", number(shard))
                .expression_attribute_values(":now", number(now.0))
                .limit(page);
            async move { self.dynamo.due_pages(query, limit).await }
        });
        let found: Vec<Vec<_>> = futures::stream::iter(shards).buffer_unordered(PARALLEL).try_collect().await?;
        let mut found = found.concat();
        found.sort();
        found.truncate(limit);
        Ok(found)
    }
}

#[async_trait]
impl ListTargets for Store {
    async fn list_page(
        &self,
        list: TargetList,
        kind: Option<&str>,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> StoreResult<ListPage> {
        let (mut least, greatest) = key::targets(kind, after);
        let mut found = ListPage::default();
        let name = match list {
            TargetList::Active => TableSpec::LIST_TARGETS,
            TargetList::Gone => TableSpec::LIST_GONE,
        };
        // The index may be stale: an entry can name an item that has left the list or the table.
        let mut page = limit.min(LARGEST_PAGE);
        let mut read = 0;
        while found.targets.len() < limit {
            let query = self
                .dynamo
                .list_query(name)
                .key_condition_expression("#l = :l AND pk BETWEEN :a AND :b")
                .expression_attribute_values(":a", text(&least))
                .expression_attribute_values(":b", text(&greatest))
                .limit(i32::try_from(page).unwrap_or(i32::MAX));
            let (keys, next) = self.dynamo.page(query).await?;
            let Some(last) = keys.last() else { break };
            let last = ItemReader::new("Query", last).text("pk")?;
            least = format!("{last}!");
            let mut items = HashMap::new();
            for item in self.dynamo.batch_get(&keys, None).await? {
                items.insert(ItemReader::new("BatchGetItem", &item).text("pk")?.to_owned(), item);
            }
            for key in &keys {
                let key = ItemReader::new("Query", key).text("pk")?;
                let Some(item) = items.get(key) else { continue };
                match read_target("BatchGetItem", item) {
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
                found.next = target_of(last);
                break;
            }
            // A page for only the missing targets would need one query per stale entry.
            page = (2 * page).clamp(BATCH, LARGEST_PAGE);
        }
        if found.targets.len() >= limit {
            found.targets.truncate(limit);
            found.next = found.targets.last().map(|last| (last.kind.clone(), last.name.clone()));
        }
        Ok(found)
    }
}

/// Returns kind and name of a target by its partition key.
fn target_of(partition: &str) -> Option<(String, String)> {
    match key::due_of(partition)? {
        DueItem::Target(kind, name) => Some((kind, name)),
        DueItem::Run(_) | DueItem::Desired(..) => None,
    }
}

impl DynamoTable {
    /// Returns due items of an index shard, in pages until there are `enough`. An unreadable entry is counted, logged
    /// and skipped.
    async fn due_pages(&self, query: QueryFluentBuilder, enough: usize) -> StoreResult<Vec<(Timestamp, DueItem)>> {
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let (items, next) = self.page(query.clone().set_exclusive_start_key(from)).await?;
            for item in &items {
                match read_due(item) {
                    Ok(due) => found.push(due),
                    Err(error) => {
                        tracing::warn!(%error, "an unreadable entry of the due index is skipped");
                        if let Some(meter) = &self.meter {
                            meter.unreadable();
                        }
                    }
                }
            }
            from = next;
            if from.is_none() || found.len() >= enough {
                return Ok(found);
            }
        }
    }

    /// Returns a query of the list index. The caller sets a key condition with `#l` and `:l`.
    pub(super) fn list_query(&self, list: &str) -> QueryFluentBuilder {
        self.client
            .query()
            .index_name(TableSpec::LIST_INDEX)
            .expression_attribute_names("#l", TableSpec::LIST)
            .expression_attribute_values(":l", text(list))
    }

    /// Reads items in no order, strongly consistent. `projection` selects attributes.
    pub(super) async fn batch_get(&self, keys: &[Item], projection: Option<&[&str]>) -> StoreResult<Vec<Item>> {
        let mut items = Vec::new();
        for keys in keys.chunks(BATCH) {
            let key = |item: &Item| -> Item {
                let parts = ["pk", "sk"].into_iter();
                parts.filter_map(|part| Some((part.to_owned(), item.get(part)?.clone()))).collect()
            };
            let names = |list: &[&str]| list.iter().map(|name| (format!("#{name}"), (*name).to_owned())).collect();
            let wanted = KeysAndAttributes::builder()
                .set_keys(Some(keys.iter().map(key).collect()))
                .consistent_read(true)
                .set_projection_expression(projection.map(|list| format!("#{}", list.join(", #"))))
                .set_expression_attribute_names(projection.map(names))
                .build();
            let wanted =
                wanted.map_err(|error| StoreError::Broken { operation: "BatchGetItem", reason: error.to_string() })?;
            items.extend(self.batch_get_one(wanted).await?);
        }
        Ok(items)
    }

    async fn batch_get_one(&self, wanted: KeysAndAttributes) -> StoreResult<Vec<Item>> {
        let mut items: Vec<HashMap<String, AttributeValue>> = Vec::new();
        let mut unprocessed = Some(HashMap::from([(self.table.clone(), wanted)]));
        let mut pauses = pauses().build();
        while let Some(request) = unprocessed.filter(|request| !request.is_empty()) {
            let response = self
                .client
                .batch_get_item()
                .set_request_items(Some(request))
                .set_return_consumed_capacity(self.report())
                .send()
                .await
                .map_err(|error| failure("BatchGetItem", &error))?;
            self.count_response("BatchGetItem", CapacityKind::Read, response.consumed_capacity());
            let found = response.responses.and_then(|mut tables| tables.remove(&self.table)).unwrap_or_default();
            // A response holds at most 16 MB. Only an empty one means that the table is throttled.
            let idle = found.is_empty() && response.unprocessed_keys.as_ref().is_some_and(|keys| !keys.is_empty());
            if idle {
                let Some(pause) = pauses.next() else {
                    let reason = "keys stay unprocessed".to_owned();
                    return Err(StoreError::Retryable { operation: "BatchGetItem", reason });
                };
                tokio::time::sleep(pause).await;
            }
            items.extend(found);
            unprocessed = response.unprocessed_keys;
        }
        Ok(items)
    }
}
