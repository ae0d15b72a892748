//! The pull transport: a batch waits in the table until the relay polls for it, and so does its response.
//!
//! To its caller it is a request over HTTP that takes as long. Without a response the relay may still have got the batch. At
//! the timeout the batch is taken back, so that a relay gets none later than a request could have arrived.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::pull::{MAX_BATCH_BYTES, ReplyOutcome, SealedBatch};
use ebb_protocol::relay::{Batch, RelayRequest as Verb};
use ebb_protocol::seal::{self, NONCE};
use ebb_store::{QueuedBatch, StoreError};

use super::batch_sender::{BatchSender, encode_error};
use super::registry::ClusterConfig;
use ebb_flow::ports::RelayError;

/// The pauses between two reads of a response: the first and the longest. Each is half as long again as the one before.
const PAUSE: (Duration, Duration) = (Duration::from_millis(150), Duration::from_secs(2));

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
        let mut pause = PAUSE.0;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 3 / 2).min(PAUSE.1);
            match self.queue.read_reply(&cluster.name, &id).await {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    if let Err(error) = self.queue.take_batch(&cluster.name, &id).await {
                        tracing::info!(%error, "a batch stays until the table removes it");
                    }
                    return parse_response(&answer);
                }
                Err(error) => tracing::info!(%error, "the response is read again"),
            }
        }
        match self.queue.take_batch(&cluster.name, &id).await.map_err(|error| queue_error(&error))? {
            Some(answer) => parse_response(&answer),
            None => {
                let why = format!("it polls, and has not answered within {} s", timeout.as_secs());
                Err(RelayError::Unreachable(why))
            }
        }
    }

    fn new_batch(&self, cluster: &ClusterConfig, batch: &Batch, timeout: Duration) -> Result<QueuedBatch, RelayError> {
        let body = serde_json::to_vec(batch).map_err(encode_error)?;
        if body.len() > MAX_BATCH_BYTES {
            let (bytes, name) = (body.len(), &cluster.name);
            let why = format!(
                "the batch has {bytes} bytes, and cluster {name}, which polls, takes {MAX_BATCH_BYTES} at once"
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
        let ends = posted.plus(Millis(lifetime_ms(batch, timeout)));
        Ok(QueuedBatch { id, posted, expires: ends, body })
    }
}

/// Returns the milliseconds for which a relay can get a batch: until its timeout, or until its first request is not valid
/// any more.
fn lifetime_ms(batch: &Batch, timeout: Duration) -> u64 {
    let starts = batch.requests.iter().filter_map(|verb| match verb {
        Verb::Ensure(request) => Some(request.valid_for_ms),
        _ => None,
    });
    let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    starts.min().map_or(timeout, |valid_for| valid_for.min(timeout))
}

fn parse_response(answer: &[u8]) -> Result<ReplyOutcome, RelayError> {
    serde_json::from_slice(answer)
        .map_err(|error| RelayError::Unreachable(format!("its response cannot be read: {error}")))
}

fn queue_error(error: &StoreError) -> RelayError {
    RelayError::Busy(format!("its batch queue does not respond: {error}"))
}

/// Returns a queued batch as a relay gets it.
pub(super) fn sealed_batch(batch: QueuedBatch, now: Timestamp) -> SealedBatch {
    SealedBatch {
        age_ms: now.since(batch.posted).0,
        expires_in_ms: batch.expires.since(now).0,
        ciphertext: STANDARD.encode(&batch.body),
        id: batch.id,
    }
}
