//! The pull transport. The batch queue stores a batch until the relay polls for it, and then stores its response. Both are
//! encrypted.
//!
//! 1. Encrypt the batch and store it in the queue.
//! 2. Read the queue until it has a response, or until the timeout.
//! 3. Delete the batch, so that the relay cannot receive it later.
//!
//! Without a response the outcome is unknown, as after a lost HTTP response: the relay may have received the batch.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::pull::{MAX_BATCH_BYTES, SealedBatch};
use ebb_protocol::seal::{self, NONCE};
use ebb_protocol::{Batch, Millis, RelayRequest, ReplyOutcome, Timestamp};
use ebb_store::{QueuedBatch, StoreError};

use super::batch_sender::{BatchSender, encode_error};
use super::registry::ClusterConfig;
use ebb_flow::ports::RelayError;

/// The first pause between two reads of the queue. Each pause is 1.5 times the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(150);
const MAX_PAUSE: Duration = Duration::from_secs(2);

impl BatchSender {
    /// Queues a batch for a cluster and waits for the response.
    pub(super) async fn send_by_queue(
        &self,
        cluster: &ClusterConfig,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<ReplyOutcome, RelayError> {
        let queued = self.new_batch(cluster, batch, timeout)?;
        let id = queued.id.clone();
        self.queue.enqueue_batch(&cluster.name, &queued).await.map_err(|error| queue_error(&error))?;
        let end = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            tokio::time::sleep(pause.min(remaining)).await;
            pause = (pause * 3 / 2).min(MAX_PAUSE);
            match self.queue.read_reply(&cluster.name, &id).await {
                Ok(None) => {}
                Ok(Some(response)) => {
                    if let Err(error) = self.queue.take_batch(&cluster.name, &id).await {
                        tracing::info!(%error, "cannot delete a batch; the table deletes it later");
                    }
                    return parse_response(cluster, &id, &response);
                }
                Err(error) => tracing::info!(%error, "cannot read the response; trying again"),
            }
        }
        match self.queue.take_batch(&cluster.name, &id).await.map_err(|error| queue_error(&error))? {
            Some(response) => parse_response(cluster, &id, &response),
            None => Err(RelayError::Unreachable(format!("no poll returned a response within {} s", timeout.as_secs()))),
        }
    }

    fn new_batch(&self, cluster: &ClusterConfig, batch: &Batch, timeout: Duration) -> Result<QueuedBatch, RelayError> {
        let body = serde_json::to_vec(batch).map_err(encode_error)?;
        if body.len() > MAX_BATCH_BYTES {
            let (bytes, name) = (body.len(), &cluster.name);
            let why = format!(
                "the batch has {bytes} bytes; cluster {name} has pull transport, which takes {MAX_BATCH_BYTES} at once"
            );
            return Err(RelayError::Refused(why));
        }
        let posted = self.clock.now();
        let id = format!("{:012x}-{:016x}", posted.0, self.random.next());
        let mut nonce = [0; NONCE];
        for part in nonce.chunks_exact_mut(8) {
            part.copy_from_slice(&self.random.next().to_be_bytes());
        }
        let body = seal::seal(cluster.keys.first(), nonce, &SealedBatch::associated_data(&cluster.name, &id), &body);
        let expires = posted.plus(Millis(lifetime_ms(batch, timeout)));
        let once = batch.requests.iter().any(|request| matches!(request, RelayRequest::Call(_)));
        Ok(QueuedBatch { id, posted, expires, body, once })
    }
}

/// Returns the milliseconds for which a relay can fetch a batch: until the timeout or the end of its first request.
fn lifetime_ms(batch: &Batch, timeout: Duration) -> u64 {
    let valid_for = batch.requests.iter().filter_map(|request| match request {
        RelayRequest::Ensure(ensure) => Some(ensure.valid_for_ms),
        RelayRequest::Call(call) => Some(call.valid_for_ms),
        _ => None,
    });
    let timeout = Millis::from(timeout).0;
    valid_for.min().map_or(timeout, |valid_for| valid_for.min(timeout))
}

fn parse_response(cluster: &ClusterConfig, id: &str, sealed: &[u8]) -> Result<ReplyOutcome, RelayError> {
    let text = std::str::from_utf8(sealed).ok();
    let response = text.and_then(|text| seal::open_value(&cluster.keys, &reply_place(cluster, id), text));
    let response = response.ok_or_else(|| {
        RelayError::Unreachable("its response cannot be decrypted; was the secret of the cluster replaced?".to_owned())
    })?;
    serde_json::from_slice(&response)
        .map_err(|error| RelayError::Unreachable(format!("its response cannot be parsed: {error}")))
}

pub(super) fn sealed_reply(cluster: &ClusterConfig, id: &str, response: &[u8]) -> Vec<u8> {
    seal::seal_value(&cluster.keys, &reply_place(cluster, id), response).into_bytes()
}

/// Returns the place for which a response is encrypted.
fn reply_place(cluster: &ClusterConfig, id: &str) -> String {
    format!("reply {}", SealedBatch::associated_data(&cluster.name, id))
}

fn queue_error(error: &StoreError) -> RelayError {
    RelayError::Busy(format!("its batch queue does not respond: {error}"))
}

pub(super) fn sealed_batch(batch: QueuedBatch, now: Timestamp) -> SealedBatch {
    SealedBatch {
        age_ms: now.since(batch.posted).0,
        expires_in_ms: batch.expires.since(now).0,
        ciphertext: STANDARD.encode(&batch.body),
        id: batch.id,
    }
}
