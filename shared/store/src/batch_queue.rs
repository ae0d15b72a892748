//! Mailboxes over table and bucket together.

use async_trait::async_trait;
use ebb_protocol::engine::Timestamp;

use crate::dynamo::{BatchItem, BodyStorage};
use crate::ops::{BatchQueue, QueuedBatch, StoreResult};
use crate::store::Store;

/// Bytes of a letter, and of an answer, that stay in the table; larger ones go to the bucket. A letter is written three
/// times in its life and read more often, each time whole.
pub const BATCH_INLINE: usize = 1 << 10;

/// Letters that one request reads: some tens of read units, including the held and the answered ones.
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
            tracing::warn!(key, %error, "a letter stays in the bucket until it is outlived there");
        }
    }
}

#[async_trait]
impl BatchQueue for Store {
    async fn enqueue_batch(&self, cluster: &str, letter: &QueuedBatch) -> StoreResult<()> {
        let body = self.store_body(format!("mail/{cluster}/{}", letter.id), &letter.body).await?;
        let (id, posted, ends) = (letter.id.clone(), letter.posted, letter.expires);
        self.dynamo.put_batch_item(cluster, &BatchItem { id, posted, ends, body, answer: None }).await
    }

    async fn pending_batches(
        &self,
        cluster: &str,
        now: Timestamp,
        held: &[String],
        limit: usize,
        bytes: usize,
    ) -> StoreResult<Vec<QueuedBatch>> {
        let mut letters: Vec<QueuedBatch> = Vec::new();
        let (mut size, mut from) = (0, None);
        while letters.len() < limit {
            let (page, next) = self.dynamo.list_batch_items(cluster, PAGE, from).await?;
            for kept in page {
                let BatchItem { id, posted, ends, body, answer } = kept;
                if answer.is_some() || ends <= now || held.contains(&id) {
                    continue;
                }
                let body = match body {
                    BodyStorage::Inline(bytes) => Some(bytes),
                    // Taken back since.
                    BodyStorage::Object(key) => self.bucket.get_object(&key).await?,
                };
                let Some(body) = body else { continue };
                size += body.len();
                if size > bytes && !letters.is_empty() {
                    return Ok(letters);
                }
                letters.push(QueuedBatch { id, posted, expires: ends, body });
                if letters.len() >= limit {
                    return Ok(letters);
                }
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
        Ok(letters)
    }

    async fn put_reply(&self, cluster: &str, id: &str, answer: &[u8]) -> StoreResult<bool> {
        if answer.len() > BATCH_INLINE {
            // Nothing is kept for what nobody waits for.
            let waits = self.dynamo.get_batch_item(cluster, id).await?;
            if waits.is_none_or(|kept| kept.answer.is_some()) {
                return Ok(false);
            }
        }
        let body = self.store_body(format!("mail/{cluster}/{id}.answer"), answer).await?;
        let is_first = self.dynamo.put_reply_item(cluster, id, &body).await?;
        if !is_first && self.dynamo.get_batch_item(cluster, id).await?.is_none() {
            self.remove_body(&body).await;
        }
        Ok(is_first)
    }

    async fn read_reply(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.dynamo.get_batch_item(cluster, id).await?.and_then(|kept| kept.answer) {
            None => Ok(None),
            Some(BodyStorage::Inline(bytes)) => Ok(Some(bytes)),
            Some(BodyStorage::Object(key)) => self.bucket.get_object(&key).await,
        }
    }

    async fn take_batch(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>> {
        let Some(kept) = self.dynamo.delete_batch_item(cluster, id).await? else { return Ok(None) };
        self.remove_body(&kept.body).await;
        let Some(answer) = kept.answer else { return Ok(None) };
        let bytes = match &answer {
            BodyStorage::Inline(bytes) => Some(bytes.clone()),
            BodyStorage::Object(key) => self.bucket.get_object(key).await?,
        };
        self.remove_body(&answer).await;
        Ok(bytes)
    }
}
