//! Queued batches: `batch#CLUSTER` / `ID`.
//!
//! `at` is the time of queuing, `end` the expiry. The body is in `b`, or its bucket key in `o`; the response is in
//! `rb` or `ro`. A batch that is delivered once has `once`: 0, or the time of its delivery. The table expires batches
//! that were not deleted.

use ebb_protocol::engine::Timestamp;

use super::{BATCH_INLINE, BodyStorage, ItemReader, Store, item_at, key, number};
use crate::{AttributeChange, ItemQuery, QueuedBatch, StoreResult, TableSpec, WriteCondition, WriteExpression};

/// Batches per request, including those in progress and those with a response.
const PAGE: usize = 100;
/// The retention of a batch that was not deleted. It exceeds the longest transit time.
const BATCH_RETENTION_MS: u64 = 60 * 60 * 1000;
/// The time after its expiry from which a poll deletes a batch. Its sender has stopped waiting long before.
const ABANDONED_MS: u64 = 60 * 1000;
/// Maximum batches that one poll deletes.
const MAX_DELETED: usize = 25;

#[derive(Clone, Debug, PartialEq, Eq)]
struct BatchItem {
    id: String,
    posted: Timestamp,
    ends: Timestamp,
    body: BodyStorage,
    response: Option<BodyStorage>,
    /// For a batch that is delivered once: the time of its delivery, or 0.
    delivered: Option<Timestamp>,
}

fn read(reader: ItemReader<'_>) -> StoreResult<BatchItem> {
    Ok(BatchItem {
        id: reader.text("sk")?.to_owned(),
        posted: reader.time("at")?,
        ends: reader.time("end")?,
        body: BodyStorage::read(reader)?,
        response: BodyStorage::read_named(reader, "rb", "ro")?,
        delivered: reader.time_if_any("once")?,
    })
}

/// Batch queues of clusters (`PutItem`, `Query`, `UpdateItem`, `GetItem`, `DeleteItem`; large batches and responses in
/// the bucket). All reads are strongly consistent, so a deleted batch is not delivered.
impl Store {
    async fn get_batch_item(&self, cluster: &str, id: &str) -> StoreResult<Option<BatchItem>> {
        self.table.read(&key::batch_queue(cluster), id, read).await
    }

    /// Returns true for the first caller.
    async fn claim_delivery(&self, cluster: &str, id: &str, now: Timestamp) -> StoreResult<bool> {
        let expression = WriteExpression::when(WriteCondition::equal("once", number(0)));
        let expression = expression.with([("once", AttributeChange::Set(number(now.0)))]);
        self.table.update_if((&key::batch_queue(cluster), id), expression).await
    }

    /// Deletes abandoned batches. An error is logged: a later poll or the table deletes them.
    async fn delete_abandoned(&self, cluster: &str, batches: &[&BatchItem]) {
        let deletions = batches.iter().map(|batch| async move {
            if let Err(error) = self.take_batch(cluster, &batch.id).await {
                tracing::info!(%error, "cannot delete an abandoned batch");
            }
        });
        futures::future::join_all(deletions).await;
    }

    async fn remove_body(&self, body: &BodyStorage) {
        if let BodyStorage::Object(key) = body
            && let Err(error) = self.bucket.remove(key).await
        {
            tracing::warn!(key, %error, "cannot delete a batch from the bucket; its lifecycle rule will delete it");
        }
    }

    pub async fn enqueue_batch(&self, cluster: &str, batch: &QueuedBatch) -> StoreResult<()> {
        let body = self.store_body(format!("batches/{cluster}/{}", batch.id), &batch.body, BATCH_INLINE).await?;
        let (name, value) = body.attribute();
        let attributes = [
            ("at", Some(number(batch.posted.0))),
            ("end", Some(number(batch.expires.0))),
            (TableSpec::TTL, Some(number(batch.expires.0.saturating_add(BATCH_RETENTION_MS) / 1000))),
            (name, Some(value)),
            ("once", batch.once.then(|| number(0))),
        ];
        self.table.put(item_at((key::batch_queue(cluster), &batch.id), attributes)).await
    }

    /// Lists batches without a response that are valid at `now` and not `in_progress`, the oldest first. Returns at
    /// most `limit` batches and, except for the first one, at most `bytes`. Deletes some of the batches that expired
    /// long before `now`, because their responses are not awaited any more.
    pub async fn pending_batches(
        &self,
        cluster: &str,
        now: Timestamp,
        in_progress: &[String],
        limit: usize,
        bytes: usize,
    ) -> StoreResult<Vec<QueuedBatch>> {
        let mut batches: Vec<QueuedBatch> = Vec::new();
        let query = ItemQuery { limit: Some(PAGE), ..ItemQuery::partition(key::batch_queue(cluster)) };
        let (mut size, mut from, mut deleted) = (0, None, 0);
        while batches.len() < limit {
            let page = self.table.page(&query, from).await?;
            let items = page.items.iter().map(|item| read(ItemReader::new("Query", item)));
            let items = items.collect::<StoreResult<Vec<_>>>()?;
            let abandoned = items.iter().filter(|item| item.ends.0.saturating_add(ABANDONED_MS) < now.0);
            let abandoned: Vec<&BatchItem> = abandoned.take(MAX_DELETED - deleted).collect();
            deleted += abandoned.len();
            self.delete_abandoned(cluster, &abandoned).await;
            for BatchItem { id, posted, ends, body, response, delivered } in items {
                let is_delivered = delivered.is_some_and(|at| at > Timestamp(0));
                if response.is_some() || ends <= now || is_delivered || in_progress.contains(&id) {
                    continue;
                }
                // The batch was deleted since.
                let Some(body) = self.find_body(body).await? else { continue };
                size += body.len();
                if size > bytes && !batches.is_empty() {
                    return Ok(batches);
                }
                let once = delivered.is_some();
                if once && !self.claim_delivery(cluster, &id, now).await? {
                    continue;
                }
                batches.push(QueuedBatch { id, posted, expires: ends, body, once });
                if batches.len() >= limit {
                    return Ok(batches);
                }
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        Ok(batches)
    }

    /// Stores the response to a batch. Returns false if the batch does not exist or has a response.
    pub async fn put_reply(&self, cluster: &str, id: &str, response: &[u8]) -> StoreResult<bool> {
        if response.len() > BATCH_INLINE {
            // A response to an unknown batch is not stored.
            let pending = self.get_batch_item(cluster, id).await?;
            if pending.is_none_or(|item| item.response.is_some()) {
                return Ok(false);
            }
        }
        let body = self.store_body(format!("batches/{cluster}/{id}.response"), response, BATCH_INLINE).await?;
        let (name, value) = body.attribute_named("rb", "ro");
        let mut expression = WriteExpression::when(WriteCondition::present("pk"));
        expression.conditions.extend(["rb", "ro"].map(WriteCondition::absent));
        let expression = expression.with([(name, AttributeChange::Set(value))]);
        let is_first = self.table.update_if((&key::batch_queue(cluster), id), expression).await?;
        if !is_first && self.get_batch_item(cluster, id).await?.is_none() {
            self.remove_body(&body).await;
        }
        Ok(is_first)
    }

    pub async fn read_reply(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.get_batch_item(cluster, id).await?.and_then(|item| item.response) {
            None => Ok(None),
            Some(response) => self.find_body(response).await,
        }
    }

    /// Deletes a batch and returns its response.
    pub async fn take_batch(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>> {
        let Some(item) = self.table.take(&key::batch_queue(cluster), id).await? else { return Ok(None) };
        let item = read(ItemReader::new("DeleteItem", &item))?;
        self.remove_body(&item.body).await;
        let Some(response) = item.response else { return Ok(None) };
        let bytes = self.find_body(response.clone()).await?;
        self.remove_body(&response).await;
        Ok(bytes)
    }
}
