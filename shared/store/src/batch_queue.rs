//! Batch queues of clusters, in table and bucket.

use async_trait::async_trait;
use ebb_protocol::engine::Timestamp;

use crate::dynamo::{BatchItem, BodyStorage};
use crate::ops::{BatchQueue, QueuedBatch, StoreResult};
use crate::store::Store;

/// Bytes up to which a batch or a response is stored in the table. Larger ones go to the bucket. An item is written
/// three times, and each write costs by its full size.
pub const BATCH_INLINE: usize = 1 << 10;

/// Batches per request, including those in progress and those with a response.
const PAGE: i32 = 100;

impl Store {
    async fn store_body(&self, key: String, bytes: &[u8]) -> StoreResult<BodyStorage> {
        if bytes.len() <= BATCH_INLINE {
            return Ok(BodyStorage::Inline(bytes.to_vec()));
        }
        self.bucket.put_object(&key, bytes.to_vec()).await?;
        Ok(BodyStorage::Object(key))
    }

    async fn remove_body(&self, body: &BodyStorage) {
        if let BodyStorage::Object(key) = body
            && let Err(error) = self.bucket.remove(key).await
        {
            tracing::warn!(key, %error, "cannot delete a batch from the bucket; its lifecycle rule will delete it");
        }
    }
}

#[async_trait]
impl BatchQueue for Store {
    async fn enqueue_batch(&self, cluster: &str, batch: &QueuedBatch) -> StoreResult<()> {
        let body = self.store_body(format!("batches/{cluster}/{}", batch.id), &batch.body).await?;
        let (id, posted, ends) = (batch.id.clone(), batch.posted, batch.expires);
        self.dynamo.put_batch_item(cluster, &BatchItem { id, posted, ends, body, response: None }).await
    }

    async fn pending_batches(
        &self,
        cluster: &str,
        now: Timestamp,
        in_progress: &[String],
        limit: usize,
        bytes: usize,
    ) -> StoreResult<Vec<QueuedBatch>> {
        let mut batches: Vec<QueuedBatch> = Vec::new();
        let (mut size, mut from) = (0, None);
        while batches.len() < limit {
            let (page, next) = self.dynamo.list_batch_items(cluster, PAGE, from).await?;
            for item in page {
                let BatchItem { id, posted, ends, body, response } = item;
                if response.is_some() || ends <= now || in_progress.contains(&id) {
                    continue;
                }
                let body = match body {
                    BodyStorage::Inline(bytes) => Some(bytes),
                    // The batch was deleted since.
                    BodyStorage::Object(key) => self.bucket.get_object(&key).await?,
                };
                let Some(body) = body else { continue };
                size += body.len();
                if size > bytes && !batches.is_empty() {
                    return Ok(batches);
                }
                batches.push(QueuedBatch { id, posted, expires: ends, body });
                if batches.len() >= limit {
                    return Ok(batches);
                }
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
        Ok(batches)
    }

    async fn put_reply(&self, cluster: &str, id: &str, response: &[u8]) -> StoreResult<bool> {
        if response.len() > BATCH_INLINE {
            // A response to an unknown batch is not stored.
            let pending = self.dynamo.get_batch_item(cluster, id).await?;
            if pending.is_none_or(|item| item.response.is_some()) {
                return Ok(false);
            }
        }
        let body = self.store_body(format!("batches/{cluster}/{id}.response"), response).await?;
        let is_first = self.dynamo.put_reply_item(cluster, id, &body).await?;
        if !is_first && self.dynamo.get_batch_item(cluster, id).await?.is_none() {
            self.remove_body(&body).await;
        }
        Ok(is_first)
    }

    async fn read_reply(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.dynamo.get_batch_item(cluster, id).await?.and_then(|item| item.response) {
            None => Ok(None),
            Some(BodyStorage::Inline(bytes)) => Ok(Some(bytes)),
            Some(BodyStorage::Object(key)) => self.bucket.get_object(&key).await,
        }
    }

    async fn take_batch(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>> {
        let Some(item) = self.dynamo.delete_batch_item(cluster, id).await? else { return Ok(None) };
        self.remove_body(&item.body).await;
        let Some(response) = item.response else { return Ok(None) };
        let bytes = match &response {
            BodyStorage::Inline(bytes) => Some(bytes.clone()),
            BodyStorage::Object(key) => self.bucket.get_object(key).await?,
        };
        self.remove_body(&response).await;
        Ok(bytes)
    }
}
