//! The endpoint of relays that poll: they get their batches and deliver the responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_protocol::limits::message;
use ebb_protocol::pull::{
    self, LONGEST_WAIT_MS, MAX_BATCH_BYTES, MAX_CONCURRENT_BATCHES, PollRequest, PollResponse, QueuedReply,
    ReplyOutcome,
};
use ebb_protocol::sign;
use ebb_store::{BatchQueue, StoreError};
use futures::StreamExt as _;
use http::HeaderMap;

use super::registry::{ClusterConfig, ClusterRegistry, RelayTransport};
use ebb_flow::ports::Clock;

/// The pause between two reads of the batch queue, each one `Query`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Replies that are stored at one time.
const MAX_CONCURRENT: usize = 8;

/// Serves the relays of clusters that poll.
pub struct PollEndpoint {
    clusters: Arc<ClusterRegistry>,
    queue: Arc<dyn BatchQueue>,
    clock: Arc<dyn Clock>,
}

/// The reason why a poll is rejected.
#[derive(Debug)]
pub enum PollRejection {
    /// It is not signed by the relay of this cluster.
    Unauthenticated(String),
    /// It is signed, and its body is no poll.
    Malformed(String),
    /// It comes from another cluster than the pinned one, or from a cluster with the push transport.
    Conflict(&'static str, String),
    /// The batch queue does not respond.
    Store(StoreError),
}

impl From<StoreError> for PollRejection {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl PollEndpoint {
    /// Serves `clusters` from `queue`.
    pub fn new(clusters: Arc<ClusterRegistry>, queue: Arc<dyn BatchQueue>, clock: Arc<dyn Clock>) -> Self {
        Self { clusters, queue, clock }
    }

    /// Stores the replies of the relay of `cluster` from a body that [`Self::authenticate`] has checked. Then waits for
    /// batches, if the relay wants any, for as long as it says.
    ///
    /// # Errors
    /// [`PollRejection`]; replies may have been stored.
    pub async fn poll(&self, cluster: &ClusterConfig, body: &[u8]) -> Result<PollResponse, PollRejection> {
        let name = cluster.name.as_str();
        let poll: PollRequest =
            serde_json::from_slice(body).map_err(|error| PollRejection::Malformed(error.to_string()))?;
        let too_many = poll.in_progress.len() > MAX_CONCURRENT_BATCHES || poll.replies.len() > MAX_CONCURRENT_BATCHES;
        if poll.v != pull::VERSION || too_many {
            let why = format!("version {} is not known here, or more than {MAX_CONCURRENT_BATCHES} at once", poll.v);
            return Err(PollRejection::Malformed(why));
        }
        if cluster.uid != poll.cluster {
            let theirs = message(&poll.cluster);
            let why = format!("cluster {name} is pinned to another uid than {theirs}: was it restored or copied?");
            return Err(PollRejection::Conflict("wrong-cluster", why));
        }
        let PollRequest { replies, in_progress, wait_ms, .. } = poll;
        let stored = replies.into_iter().map(|reply| self.store_response(name, reply));
        let mut stored = futures::stream::iter(stored).buffer_unordered(MAX_CONCURRENT);
        while let Some(result) = stored.next().await {
            result?;
        }
        drop(stored);
        match wait_ms {
            None => Ok(PollResponse { v: pull::VERSION, waited_ms: 0, batches: Vec::new() }),
            Some(wait) => {
                self.wait_for_batches(name, &in_progress, Duration::from_millis(wait.min(LONGEST_WAIT_MS))).await
            }
        }
    }

    /// Returns the cluster of this name, whose relay polls and has signed the body.
    ///
    /// # Errors
    /// [`PollRejection::Unauthenticated`]; [`PollRejection::Conflict`] for a cluster with the push transport.
    pub fn authenticate(&self, name: &str, headers: &HeaderMap, body: &[u8]) -> Result<&ClusterConfig, PollRejection> {
        let cluster = self.clusters.all().find(|cluster| cluster.name == name);
        let Some(cluster) = cluster else {
            return Err(PollRejection::Unauthenticated("no cluster with this name and secret is connected".to_owned()));
        };
        sign::verify(&cluster.keys, headers, body, self.clock.now())
            .map_err(|error| PollRejection::Unauthenticated(error.to_string()))?;
        match cluster.transport {
            RelayTransport::Pull => Ok(cluster),
            RelayTransport::Push(_) => Err(PollRejection::Conflict(
                "wrong-transport",
                format!("cluster {name} has the transport push: remove its URL, or the pull URL of its relay"),
            )),
        }
    }

    async fn store_response(&self, name: &str, reply: QueuedReply) -> Result<(), StoreError> {
        let QueuedReply { id, outcome } = reply;
        let outcome = match outcome {
            ReplyOutcome::Status { status, message: said } => ReplyOutcome::Status { status, message: message(&said) },
            response => response,
        };
        // What was read from JSON can be written.
        let response = serde_json::to_vec(&outcome).unwrap_or_default();
        if !ebb_protocol::pull::SealedBatch::is_id(&id) || !self.queue.put_reply(name, &id, &response).await? {
            tracing::info!(cluster = name, id = message(&id), "no request waits for this response");
        }
        Ok(())
    }

    async fn wait_for_batches(
        &self,
        name: &str,
        in_progress: &[String],
        wait: Duration,
    ) -> Result<PollResponse, PollRejection> {
        let begun = Instant::now();
        let room = MAX_CONCURRENT_BATCHES.saturating_sub(in_progress.len());
        loop {
            let queued = self.queue.pending_batches(name, self.clock.now(), in_progress, room, MAX_BATCH_BYTES).await?;
            let waited = begun.elapsed();
            if !queued.is_empty() || waited >= wait {
                let now = self.clock.now();
                let batches = queued.into_iter().map(|batch| super::pull::sealed_batch(batch, now)).collect();
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Ok(PollResponse { v: pull::VERSION, waited_ms, batches });
            }
            tokio::time::sleep(POLL_INTERVAL.min(wait - waited)).await;
        }
    }
}
