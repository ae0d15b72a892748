//! Asking a relay that nobody reaches: the batch waits in the table until the relay fetches it, and so does its answer.
//!
//! To whoever asks it is a request over HTTP that takes as long, and no answer is no answer: the relay may have got it. When
//! the time is over the letter is taken back, so nothing is handed out later than a request could have arrived.

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
use crate::ports::RelayError;

/// Between two looks for an answer: the first pause and the longest. Each is half as long again as the one before.
const PAUSE: (Duration, Duration) = (Duration::from_millis(150), Duration::from_secs(2));

impl BatchSender {
    /// Puts a batch into the mailbox of a cluster and waits for the answer.
    pub(super) async fn send_by_queue(
        &self,
        cluster: &ClusterConfig,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<ReplyOutcome, RelayError> {
        let letter = self.new_batch(cluster, batch, timeout)?;
        let id = letter.id.clone();
        self.queue.enqueue_batch(&cluster.name, &letter).await.map_err(|error| queue_error(&error))?;
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
                        tracing::info!(%error, "a letter stays until the table has outlived it");
                    }
                    return parse_response(&answer);
                }
                Err(error) => tracing::info!(%error, "the answer is looked for again"),
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

    fn new_batch(
        &self,
        cluster: &ClusterConfig,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<QueuedBatch, RelayError> {
        let body = serde_json::to_vec(batch).map_err(encode_error)?;
        if body.len() > MAX_BATCH_BYTES {
            let (bytes, name) = (body.len(), &cluster.name);
            let why = format!(
                "{bytes} bytes are asked for, and cluster {name}, which polls, takes {MAX_BATCH_BYTES} at once"
            );
            return Err(RelayError::Refused(why));
        }
        let posted = self.clock.now();
        let id = format!("{:012x}-{:016x}", posted.0, self.random.next());
        let mut nonce = [0; NONCE];
        for part in nonce.chunks_exact_mut(8) {
            part.copy_from_slice(&self.random.next().to_be_bytes());
        }
        let body =
            seal::seal(cluster.keys.first(), nonce, &SealedBatch::associated_data(&cluster.name, &id), &body);
        let ends = posted.plus(Millis(lifetime_ms(batch, timeout)));
        Ok(QueuedBatch { id, posted, expires: ends, body })
    }
}

/// Milliseconds for which a batch is handed out: no longer than it is waited for, and than it may be acted on.
fn lifetime_ms(batch: &Batch, timeout: Duration) -> u64 {
    let starts = batch.requests.iter().filter_map(|verb| match verb {
        Verb::Ensure(request) => Some(request.not_after_ms),
        _ => None,
    });
    let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    starts.min().map_or(timeout, |not_after| not_after.min(timeout))
}

fn parse_response(answer: &[u8]) -> Result<ReplyOutcome, RelayError> {
    serde_json::from_slice(answer)
        .map_err(|error| RelayError::Unreachable(format!("its answer cannot be read: {error}")))
}

fn queue_error(error: &StoreError) -> RelayError {
    RelayError::Busy(format!("its mailbox does not answer: {error}"))
}

/// A letter as it is handed out.
pub(super) fn sealed_batch(letter: QueuedBatch, now: Timestamp) -> SealedBatch {
    SealedBatch {
        age_ms: now.since(letter.posted).0,
        left_ms: letter.expires.since(now).0,
        sealed: STANDARD.encode(&letter.body),
        id: letter.id,
    }
}
