//! Serves the polls of relays with pull transport.
//!
//! 1. Verify the signature, the version and the pinned cluster.
//! 2. Store the responses of the relay in the batch queue.
//! 3. Wait for batches and return them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_protocol::limits::message;
use ebb_protocol::pull::{
    self, LONGEST_WAIT_MS, MAX_BATCH_BYTES, MAX_CONCURRENT_BATCHES, PollRequest, PollResponse, QueuedReply, SealedBatch,
};
use ebb_protocol::{ErrorCode, Millis, ReplyOutcome, sign};
use ebb_store::{Store, StoreResult};
use futures::{StreamExt as _, TryStreamExt as _};
use http::HeaderMap;

use super::registry::{ClusterConfig, ClusterLookupError, ClusterRegistry, RelayTransport};
use ebb_flow::error::RequestError;
use ebb_flow::ports::Clock;

/// The pause between two reads of the batch queue, each one `Query`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Replies that are stored at the same time.
const MAX_CONCURRENT: usize = 8;

pub struct PollEndpoint {
    clusters: Arc<ClusterRegistry>,
    queue: Arc<Store>,
    clock: Arc<dyn Clock>,
    idle_ms: Option<u64>,
}

pub type PollResult<T> = Result<T, RequestError>;

impl PollEndpoint {
    /// Creates an endpoint that asks relays without work to poll once per `idle_ms` milliseconds only.
    pub fn new(clusters: Arc<ClusterRegistry>, queue: Arc<Store>, clock: Arc<dyn Clock>, idle_ms: Option<u64>) -> Self {
        Self { clusters, queue, clock, idle_ms }
    }

    /// Stores the replies in a body that [`Self::authenticate`] has checked. Waits for batches as long as requested.
    ///
    /// # Errors
    /// Returns a refusal of an invalid body, or an error of the batch queue. Some replies may have been stored.
    pub async fn poll(&self, cluster: &ClusterConfig, body: &[u8]) -> PollResult<PollResponse> {
        let name = cluster.name.as_str();
        let poll: PollRequest = serde_json::from_slice(body)
            .map_err(|error| RequestError::refused(ErrorCode::InvalidPoll, error.to_string()))?;
        let too_many = poll.in_progress.len() > MAX_CONCURRENT_BATCHES || poll.replies.len() > MAX_CONCURRENT_BATCHES;
        if poll.v != pull::VERSION || too_many {
            let why = format!(
                "expected version {} and at most {MAX_CONCURRENT_BATCHES} batches and replies, got version {} with {} \
                 batches and {} replies",
                pull::VERSION,
                poll.v,
                poll.in_progress.len(),
                poll.replies.len()
            );
            return Err(RequestError::refused(ErrorCode::InvalidPoll, why));
        }
        if cluster.uid != poll.cluster {
            let theirs = message(&poll.cluster);
            let why = format!("cluster {name} is pinned to another uid than {theirs}; was it restored or copied?");
            return Err(RequestError::refused(ErrorCode::WrongCluster, why));
        }
        let PollRequest { replies, in_progress, wait_ms, .. } = poll;
        let stored = replies.into_iter().map(|reply| self.store_response(cluster, reply));
        futures::stream::iter(stored).buffer_unordered(MAX_CONCURRENT).try_collect::<()>().await?;
        match wait_ms {
            None => Ok(self.response(Duration::ZERO, Vec::new())),
            Some(wait) => {
                self.wait_for_batches(name, &in_progress, Duration::from_millis(wait.min(LONGEST_WAIT_MS))).await
            }
        }
    }

    /// Verifies the signature of a poll and returns its cluster.
    ///
    /// # Errors
    /// Returns a refusal for a wrong signature, which is recorded for a connected cluster, and for a cluster with the push
    /// transport, or an error if the clusters cannot be read.
    pub async fn authenticate(&self, name: &str, headers: &HeaderMap, body: &[u8]) -> PollResult<Arc<ClusterConfig>> {
        let verify = |cluster: &ClusterConfig| sign::verify(&cluster.keys, headers, body, self.clock.now()).map(drop);
        let mut cluster = connected(name, self.clusters.find(Some(name)).await)?;
        let mut verified = verify(&cluster);
        if verified.is_err() {
            // The relay may have registered at another process since.
            cluster = connected(name, self.clusters.find_again(Some(name)).await)?;
            verified = verify(&cluster);
        }
        let registered = self.clusters.registered();
        if let Err(error) = verified {
            let reason = error.to_string();
            if let Some(registered) = registered {
                registered.note_denial(name, self.clock.now(), &reason).await;
            }
            return Err(RequestError::refused(ErrorCode::InvalidSignature, reason));
        }
        if let Some(registered) = registered {
            registered.end_noted_denial(name).await;
        }
        if cluster.transport == RelayTransport::Pull {
            return Ok(cluster);
        }
        let why = format!("cluster {name} has the transport push: remove its URL, or the pull URL of its relay");
        Err(RequestError::refused(ErrorCode::WrongTransport, why))
    }

    /// Returns the connected clusters, for registrations.
    pub fn clusters(&self) -> &ClusterRegistry {
        &self.clusters
    }

    async fn store_response(&self, cluster: &ClusterConfig, reply: QueuedReply) -> StoreResult<()> {
        let (name, QueuedReply { id, outcome }) = (cluster.name.as_str(), reply);
        let outcome = match outcome {
            ReplyOutcome::Status { status, message: text } => ReplyOutcome::Status { status, message: message(&text) },
            response => response,
        };
        // A value that was parsed from JSON can be encoded.
        let response = serde_json::to_vec(&outcome).unwrap_or_default();
        // The answer of a plugin can have secrets.
        let response = super::pull::sealed_reply(cluster, &id, &response);
        if !SealedBatch::is_id(&id) || !self.queue.put_reply(name, &id, &response).await? {
            tracing::info!(cluster = name, id = message(&id), "discarded a response without a waiting request");
        }
        Ok(())
    }

    async fn wait_for_batches(&self, name: &str, in_progress: &[String], wait: Duration) -> PollResult<PollResponse> {
        let begun = Instant::now();
        let limit = MAX_CONCURRENT_BATCHES.saturating_sub(in_progress.len());
        loop {
            let queued =
                self.queue.pending_batches(name, self.clock.now(), in_progress, limit, MAX_BATCH_BYTES).await?;
            let waited = begun.elapsed();
            if !queued.is_empty() || waited >= wait {
                let now = self.clock.now();
                let batches = queued.into_iter().map(|batch| super::pull::sealed_batch(batch, now)).collect();
                return Ok(self.response(waited, batches));
            }
            tokio::time::sleep(POLL_INTERVAL.min(wait - waited)).await;
        }
    }

    fn response(&self, waited: Duration, batches: Vec<SealedBatch>) -> PollResponse {
        PollResponse { v: pull::VERSION, waited_ms: Millis::from(waited).0, idle_every_ms: self.idle_ms, batches }
    }
}

fn connected(name: &str, found: Result<Arc<ClusterConfig>, ClusterLookupError>) -> PollResult<Arc<ClusterConfig>> {
    match found {
        Ok(cluster) if cluster.name == name => Ok(cluster),
        Err(ClusterLookupError::Store(error)) => Err(error.into()),
        Ok(_) | Err(ClusterLookupError::Unknown(_) | ClusterLookupError::Waiting(_)) => {
            Err(RequestError::refused(ErrorCode::InvalidSignature, "no cluster with this name and secret is connected"))
        }
    }
}
