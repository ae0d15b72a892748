//! Sends a batch to a relay, by push over HTTP or by pull.
//!
//! A batch that is too large is sent again in halves. Requests whose responses do not fit into the response of the batch
//! are sent again one by one.

use ebb_store::Store;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_egress::{CallError, HttpCall, HttpRequest};
use ebb_protocol::relay::NOT_SENT;
use ebb_protocol::sign::{MessageId, sign};
use ebb_protocol::{Batch, BatchResponse, RelayRequest, RelayResponse, ReplyOutcome, limits, relay};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::registry::{ClusterConfig, ClusterLookupError, ClusterRegistry, RelayTransport};
use ebb_flow::ports::{Clock, RandomSource, RelayError};

/// The response to a request, with the UID of the cluster that sent it.
pub(super) type RelayReply = Result<(RelayResponse, String), RelayError>;

/// Sends each batch as one request that is signed as in Standard Webhooks.
pub(super) struct BatchSender {
    pub(super) clusters: Arc<ClusterRegistry>,
    pub(super) queue: Arc<Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn RandomSource>,
    pub(super) call: Arc<dyn HttpCall>,
}

/// Requests of one batch that are sent again one by one. Each response may have 5 MiB, and a function has 256 MB.
const MAX_SEPARATE: usize = 6;

enum BatchOutcome {
    Responses(BatchResponse),
    All(RelayError),
    /// The error of one of the requests, or of the size of all responses. A smaller batch may succeed.
    Parts(RelayError),
}

impl BatchSender {
    /// Sends requests as a batch, or in the remaining time as two halves. Returns a reply for each, in their order.
    pub(super) fn send<'a>(
        &'a self,
        cluster: &'a ClusterConfig,
        requests: Vec<RelayRequest>,
        timeout: Duration,
    ) -> BoxFuture<'a, Vec<RelayReply>> {
        async move {
            let begun = Instant::now();
            let count = requests.len();
            let mut batch = Batch { v: relay::VERSION, cluster: cluster.uid.clone(), requests };
            let outcome = self.send_once(cluster, &batch, timeout).await;
            let remaining = timeout.saturating_sub(begun.elapsed());
            match outcome {
                BatchOutcome::Responses(responses) => self.send_separately(cluster, batch, responses, remaining).await,
                BatchOutcome::Parts(_) if count > 1 => {
                    let other = batch.requests.split_off(count / 2);
                    let halves = [batch.requests, other].map(|half| self.send(cluster, half, remaining));
                    futures::future::join_all(halves).await.into_iter().flatten().map(reply_to_part).collect()
                }
                BatchOutcome::All(error) | BatchOutcome::Parts(error) => {
                    (0..count).map(|_| Err(error.clone())).collect()
                }
            }
        }
        .boxed()
    }

    /// Returns a reply for each request of `batch`. The first ones whose responses did not fit are sent again alone.
    async fn send_separately(
        &self,
        cluster: &ClusterConfig,
        batch: Batch,
        responses: BatchResponse,
        remaining: Duration,
    ) -> Vec<RelayReply> {
        let count = batch.requests.len();
        let fits = responses.responses.iter().map(|response| *response != RelayResponse::TooLarge);
        let requests: Vec<_> = batch.requests.into_iter().zip(fits).enumerate().collect();
        let mut replies = reply_for_each(&cluster.name, responses, count);
        let separate = requests.into_iter().filter(|(_, (_, fits))| !fits && count > 1).take(MAX_SEPARATE);
        let separate =
            separate.map(async |(index, (request, _))| (index, self.send(cluster, vec![request], remaining).await));
        for (index, mut separate) in futures::future::join_all(separate).await {
            if let (Some(reply), Some(separate)) = (replies.get_mut(index), separate.pop()) {
                *reply = reply_to_part(separate);
            }
        }
        replies
    }

    async fn send_once(&self, cluster: &ClusterConfig, batch: &Batch, timeout: Duration) -> BatchOutcome {
        if timeout.is_zero() {
            let why = "the responses of the batch were too large, and no time remains to send its parts";
            return BatchOutcome::All(RelayError::Busy(why.to_owned()));
        }
        let outcome = match &cluster.transport {
            RelayTransport::Push(url) => self.push(cluster, url, batch, timeout).await,
            RelayTransport::Pull => self.send_by_queue(cluster, batch, timeout).await.map_err(BatchOutcome::All),
        };
        outcome.map_or_else(|failed| failed, |reply| batch_outcome(cluster, reply))
    }

    async fn push(
        &self,
        cluster: &ClusterConfig,
        url: &str,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<ReplyOutcome, BatchOutcome> {
        let unencodable = |error| BatchOutcome::All(encode_error(error));
        let body = serde_json::to_vec(batch).map_err(|error| unencodable(error.to_string()))?;
        let id = MessageId::parse(&format!("batch-{:016x}", self.random.next()));
        let id = id.map_err(|error| unencodable(error.to_string()))?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let signature = sign(cluster.keys.first(), &id, self.clock.now(), &body);
        headers.extend(signature.map(|(name, value)| (name.to_owned(), value)));
        let mut request = HttpRequest::new("POST", format!("{url}/v1/batch"), headers, body, timeout);
        request.largest = limits::BATCH_RESPONSE_BODY;
        match self.call.call(request).await.or_else(|error| error.without_body(true)) {
            Ok(response) if (200..=299).contains(&response.status) => {
                serde_json::from_slice(&response.body).map(ReplyOutcome::Response).map_err(|error| {
                    BatchOutcome::All(RelayError::Unreachable(format!("its response cannot be parsed: {error}")))
                })
            }
            Ok(response) => {
                let message = limits::message(&String::from_utf8_lossy(&response.body));
                Ok(ReplyOutcome::Status { status: response.status, message })
            }
            Err(CallError::Refused(reason)) => Err(BatchOutcome::All(RelayError::Refused(reason))),
            Err(error @ CallError::TooLarge(_)) => Err(BatchOutcome::Parts(RelayError::Busy(error.to_string()))),
            Err(CallError::NoConnection(why)) => {
                Err(BatchOutcome::All(RelayError::Unreachable(format!("{NOT_SENT}{why}"))))
            }
            Err(error) => Err(BatchOutcome::All(RelayError::Unreachable(error.to_string()))),
        }
    }
}

/// Converts the error of a lookup, before anything is sent. Only an unknown cluster is final: a relay may register, and the
/// table may respond.
pub(super) fn lookup_error(error: ClusterLookupError) -> RelayError {
    match error {
        ClusterLookupError::Unknown(_) => RelayError::Refused(error.to_string()),
        ClusterLookupError::Waiting(_) => RelayError::Unreachable(format!("{NOT_SENT}{error}")),
        ClusterLookupError::Store(_) => RelayError::Busy(format!("{NOT_SENT}{error}")),
    }
}

pub(super) fn encode_error(error: impl std::fmt::Display) -> RelayError {
    RelayError::Refused(format!("the request cannot be encoded: {error}"))
}

fn batch_outcome(cluster: &ClusterConfig, outcome: ReplyOutcome) -> BatchOutcome {
    let other_cluster = |uid: &str| {
        let relay = match &cluster.transport {
            RelayTransport::Push(url) => format!("the relay at {url}"),
            RelayTransport::Pull => format!("the relay that polls as {}", cluster.name),
        };
        let pinned = &cluster.uid;
        BatchOutcome::All(RelayError::Refused(format!(
            "{relay} runs in another cluster{uid} than the pinned {pinned}; was the cluster restored or copied?"
        )))
    };
    match outcome {
        ReplyOutcome::Response(responses) if responses.cluster != cluster.uid => {
            other_cluster(&format!(" ({})", limits::message(&responses.cluster)))
        }
        ReplyOutcome::Response(responses) => BatchOutcome::Responses(responses),
        ReplyOutcome::Status { status: 409, .. } => other_cluster(""),
        ReplyOutcome::Status { status, message } => {
            let why = format!("it responded {status}: {message}");
            match status {
                400 | 413 | 422 => BatchOutcome::Parts(RelayError::Refused(why)),
                // The responses together exceed the maximum size of a response of the relay.
                507 => BatchOutcome::Parts(RelayError::Busy(why)),
                // The relay currently has no memory for the batch.
                429 => BatchOutcome::All(RelayError::Busy(format!("{NOT_SENT}{why}"))),
                // A wrong secret or URL also gives such a status. The requests are repeated until an operator corrects it.
                _ => BatchOutcome::All(RelayError::Unreachable(why)),
            }
        }
    }
}

/// Converts the reply to a part of a batch. The relay has responded to the batch itself, so `Unreachable` means that
/// too little time remained for the part. It is not an outage of the cluster.
fn reply_to_part(reply: RelayReply) -> RelayReply {
    reply.map_err(|error| match error {
        RelayError::Unreachable(why) => RelayError::Busy(why),
        error => error,
    })
}

fn reply_for_each(cluster: &str, responses: BatchResponse, count: usize) -> Vec<RelayReply> {
    if responses.responses.len() != count {
        let requests = if count == 1 { "1 request".to_owned() } else { format!("{count} requests") };
        let why = format!("its response is invalid: {} responses to {requests}", responses.responses.len());
        return (0..count).map(|_| Err(RelayError::Unreachable(why.clone()))).collect();
    }
    let uid = responses.cluster;
    let reply = |response| match response {
        // A relay need not know the name of its cluster, which the commands in its texts have.
        RelayResponse::Refused(reason) => {
            Err(RelayError::Refused(reason.replace(" connect NAME ", &format!(" connect {cluster} "))))
        }
        RelayResponse::Unavailable(reason) => Err(RelayError::Busy(reason)),
        RelayResponse::TooLarge => Err(RelayError::Busy("its response is too large for a batch".to_owned())),
        response => Ok((response, uid.clone())),
    };
    responses.responses.into_iter().map(reply).collect()
}
