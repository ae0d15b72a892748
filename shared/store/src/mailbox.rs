//! Mailboxes over table and bucket together.

use async_trait::async_trait;
use ebb_wire::engine::Timestamp;

use crate::dynamo::{Body, Kept};
use crate::ops::{Letter, Mailbox, Stored};
use crate::store::Store;

/// Bytes of a letter, and of an answer, that stay in the table; larger ones go to the bucket. A letter is written three
/// times in its life and read more often, each time whole.
pub const LETTER_INLINE: usize = 1 << 10;

/// Letters that one request reads: some tens of read units, including the held and the answered ones.
const PAGE: i32 = 100;

impl Store {
    async fn keep_letter(&self, key: String, bytes: &[u8]) -> Stored<Body> {
        if bytes.len() <= LETTER_INLINE {
            return Ok(Body::Inline(bytes.to_vec()));
        }
        self.bucket.put_object(&key, bytes.to_vec()).await?;
        Ok(Body::Object(key))
    }

    async fn remove_letter(&self, body: &Body) {
        if let Body::Object(key) = body
            && let Err(error) = self.bucket.remove(key).await
        {
            tracing::warn!(key, %error, "a letter stays in the bucket until it is outlived there");
        }
    }
}

#[async_trait]
impl Mailbox for Store {
    async fn post_letter(&self, cluster: &str, letter: &Letter) -> Stored<()> {
        let body = self.keep_letter(format!("mail/{cluster}/{}", letter.id), &letter.body).await?;
        let (id, posted, ends) = (letter.id.clone(), letter.posted, letter.ends);
        self.dynamo.put_letter_item(cluster, &Kept { id, posted, ends, body, answer: None }).await
    }

    async fn waiting_letters(
        &self,
        cluster: &str,
        now: Timestamp,
        held: &[String],
        limit: usize,
        bytes: usize,
    ) -> Stored<Vec<Letter>> {
        let mut letters: Vec<Letter> = Vec::new();
        let (mut size, mut from) = (0, None);
        while letters.len() < limit {
            let (page, next) = self.dynamo.list_letter_items(cluster, PAGE, from).await?;
            for kept in page {
                let Kept { id, posted, ends, body, answer } = kept;
                if answer.is_some() || ends <= now || held.contains(&id) {
                    continue;
                }
                let body = match body {
                    Body::Inline(bytes) => Some(bytes),
                    // Taken back since.
                    Body::Object(key) => self.bucket.get_object(&key).await?,
                };
                let Some(body) = body else { continue };
                size += body.len();
                if size > bytes && !letters.is_empty() {
                    return Ok(letters);
                }
                letters.push(Letter { id, posted, ends, body });
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

    async fn answer_letter(&self, cluster: &str, id: &str, answer: &[u8]) -> Stored<bool> {
        if answer.len() > LETTER_INLINE {
            // Nothing is kept for what nobody waits for.
            let waits = self.dynamo.get_letter_item(cluster, id).await?;
            if waits.is_none_or(|kept| kept.answer.is_some()) {
                return Ok(false);
            }
        }
        let body = self.keep_letter(format!("mail/{cluster}/{id}.answer"), answer).await?;
        let is_first = self.dynamo.answer_letter_item(cluster, id, &body).await?;
        if !is_first && self.dynamo.get_letter_item(cluster, id).await?.is_none() {
            self.remove_letter(&body).await;
        }
        Ok(is_first)
    }

    async fn read_answer(&self, cluster: &str, id: &str) -> Stored<Option<Vec<u8>>> {
        match self.dynamo.get_letter_item(cluster, id).await?.and_then(|kept| kept.answer) {
            None => Ok(None),
            Some(Body::Inline(bytes)) => Ok(Some(bytes)),
            Some(Body::Object(key)) => self.bucket.get_object(&key).await,
        }
    }

    async fn take_letter(&self, cluster: &str, id: &str) -> Stored<Option<Vec<u8>>> {
        let Some(kept) = self.dynamo.delete_letter_item(cluster, id).await? else { return Ok(None) };
        self.remove_letter(&kept.body).await;
        let Some(answer) = kept.answer else { return Ok(None) };
        let bytes = match &answer {
            Body::Inline(bytes) => Some(bytes.clone()),
            Body::Object(key) => self.bucket.get_object(key).await?,
        };
        self.remove_letter(&answer).await;
        Ok(bytes)
    }
}
