//! The transport of a batch to a relay: push over HTTP, or pull.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_egress::{CallError, HttpCall, HttpRequest};
use ebb_protocol::pull::ReplyOutcome;
use ebb_protocol::relay::{self, Batch, BatchResponse, RelayRequest as Verb, RelayResponse};
use ebb_protocol::sign::{MessageId, sign};
use ebb_store::BatchQueue;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::batches::RelayReply;
use super::registry::{ClusterConfig, ClusterRegistry, RelayTransport};
use ebb_flow::ports::{Clock, RandomSource, RelayError};

/// Sends batches to the relays of clusters, each one signed request as Standard Webhooks are.
pub(super) struct BatchSender {
    pub(super) clusters: Arc<ClusterRegistry>,
    pub(super) queue: Arc<dyn BatchQueue>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn RandomSource>,
    pub(super) call: Arc<dyn HttpCall>,
}

/// Verbs of one batch that are asked for again by themselves: each answer may have 5 MiB, and a function has 256 MB.
const MAX_SEPARATE: usize = 6;

/// The outcome of a whole batch.
enum BatchOutcome {
    Responses(BatchResponse),
    /// The error holds for each verb.
    All(RelayError),
    /// The error is about one of the verbs, or about the size of all answers: a smaller batch may succeed.
    Parts(RelayError),
}

impl BatchSender {
    /// Sends verbs to a cluster. Gives an answer for each, in their order.
    pub(super) async fn send(&self, cluster: &str, verbs: Vec<Verb>, timeout: Duration) -> Vec<RelayReply> {
        let Some(cluster) = self.clusters.all().find(|known| known.name == cluster) else {
            let why = RelayError::Refused(format!("no relay is connected for cluster {cluster:?}"));
            return verbs.iter().map(|_| Err(why.clone())).collect();
        };
        self.send_split(cluster, verbs, timeout).await
    }

    /// As [`Self::add_dispatch`]. A batch that is too large is sent again in two halves, in the time that is left.
    fn send_split<'a>(
        &'a self,
        cluster: &'a ClusterConfig,
        verbs: Vec<Verb>,
        timeout: Duration,
    ) -> BoxFuture<'a, Vec<RelayReply>> {
        async move {
            let begun = Instant::now();
            let count = verbs.len();
            let mut batch = Batch { v: relay::VERSION, cluster: cluster.uid.clone(), requests: verbs };
            let outcome = self.send_once(cluster, &batch, timeout).await;
            let left = timeout.saturating_sub(begun.elapsed());
            match outcome {
                BatchOutcome::Responses(answers) => self.send_separately(cluster, batch, answers, left).await,
                BatchOutcome::Parts(_) if count > 1 => {
                    let other = batch.requests.split_off(count / 2);
                    let halves = [batch.requests, other].map(|half| self.send_split(cluster, half, left));
                    futures::future::join_all(halves).await.into_iter().flatten().map(after_answer).collect()
                }
                BatchOutcome::All(error) | BatchOutcome::Parts(error) => {
                    (0..count).map(|_| Err(error.clone())).collect()
                }
            }
        }
        .boxed()
    }

    /// Returns the answer to each verb of `batch`. The first verbs whose answers did not fit are asked for again, each by
    /// itself.
    async fn send_separately(
        &self,
        cluster: &ClusterConfig,
        batch: Batch,
        answers: BatchResponse,
        left: Duration,
    ) -> Vec<RelayReply> {
        let count = batch.requests.len();
        let fits = answers.responses.iter().map(|answer| *answer != RelayResponse::TooLarge);
        let apart: Vec<_> = batch.requests.into_iter().zip(fits).enumerate().collect();
        let mut all = reply_for_each(answers, count);
        let apart = apart.into_iter().filter(|(_, (_, fits))| !fits && count > 1).take(MAX_SEPARATE);
        let again = apart.map(async |(place, (verb, _))| (place, self.send_split(cluster, vec![verb], left).await));
        for (place, mut answer) in futures::future::join_all(again).await {
            if let (Some(known), Some(answer)) = (all.get_mut(place), answer.pop()) {
                *known = after_answer(answer);
            }
        }
        all
    }

    async fn send_once(&self, cluster: &ClusterConfig, batch: &Batch, timeout: Duration) -> BatchOutcome {
        if timeout.is_zero() {
            let why = "its answers were too large, and time is up";
            return BatchOutcome::All(RelayError::Busy(why.to_owned()));
        }
        let outcome = match &cluster.transport {
            RelayTransport::Push(url) => self.push(cluster, url, batch, timeout).await,
            RelayTransport::Pull => self.send_by_queue(cluster, batch, timeout).await.map_err(BatchOutcome::All),
        };
        match outcome {
            Ok(outcome) => batch_outcome(cluster, outcome),
            Err(sent) => sent,
        }
    }

    async fn push(
        &self,
        cluster: &ClusterConfig,
        url: &str,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<ReplyOutcome, BatchOutcome> {
        let unwritable = |error| BatchOutcome::All(encode_error(error));
        let body = serde_json::to_vec(batch).map_err(|error| unwritable(error.to_string()))?;
        let id = MessageId::parse(&format!("batch-{:016x}", self.random.next()));
        let id = id.map_err(|error| unwritable(error.to_string()))?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let signed = sign(cluster.keys.first(), &id, self.clock.now(), &body);
        headers.extend(signed.map(|(name, value)| (name.to_owned(), value)));
        let url = format!("{url}/v1/batch");
        let request = HttpRequest { method: "POST".to_owned(), url, headers, body, timeout };
        match self.call.call(request).await {
            Ok(response) if (200..=299).contains(&response.status) => {
                serde_json::from_slice(&response.body).map(ReplyOutcome::Response).map_err(|error| {
                    BatchOutcome::All(RelayError::Unreachable(format!("its answer cannot be read: {error}")))
                })
            }
            Ok(response) => {
                let said = ebb_protocol::limits::message(&String::from_utf8_lossy(&response.body));
                Ok(ReplyOutcome::Status { status: response.status, message: said })
            }
            Err(CallError::Refused(reason)) => Err(BatchOutcome::All(RelayError::Refused(reason))),
            Err(error @ (CallError::Connect(_) | CallError::Timeout(_))) => {
                Err(BatchOutcome::All(RelayError::Unreachable(error.to_string())))
            }
            Err(error @ CallError::TooLarge(_)) => Err(BatchOutcome::Parts(RelayError::Busy(error.to_string()))),
        }
    }
}

pub(super) fn encode_error(error: impl std::fmt::Display) -> RelayError {
    RelayError::Refused(format!("the request cannot be written: {error}"))
}

fn batch_outcome(cluster: &ClusterConfig, outcome: ReplyOutcome) -> BatchOutcome {
    let other = |uid: &str| {
        let place = match &cluster.transport {
            RelayTransport::Push(url) => format!("the relay at {url}"),
            RelayTransport::Pull => format!("the relay that polls as {}", cluster.name),
        };
        let pinned = &cluster.uid;
        BatchOutcome::All(RelayError::Refused(format!(
            "{place} is that of another cluster{uid} than {pinned}, which is pinned: was it restored or copied?"
        )))
    };
    match outcome {
        ReplyOutcome::Response(answers) if answers.cluster != cluster.uid => {
            other(&format!(" ({})", ebb_protocol::limits::message(&answers.cluster)))
        }
        ReplyOutcome::Response(answers) => BatchOutcome::Responses(answers),
        ReplyOutcome::Status { status: 409, .. } => other(""),
        ReplyOutcome::Status { status: status @ (400 | 413 | 422), message: said } => {
            BatchOutcome::Parts(RelayError::Refused(format!("it answered {status}: {said}")))
        }
        // The answers are larger than a relay can send in one go.
        ReplyOutcome::Status { status: 507, message: said } => {
            BatchOutcome::Parts(RelayError::Busy(format!("it answered 507: {said}")))
        }
        // A relay without room for the batch.
        ReplyOutcome::Status { status: 429, message: said } => {
            BatchOutcome::All(RelayError::Busy(format!("it answered 429: {said}")))
        }
        // A wrong secret or URL gives such a status, too. The requests are repeated until an operator has corrected it.
        ReplyOutcome::Status { status, message: said } => {
            BatchOutcome::All(RelayError::Unreachable(format!("it answered {status}: {said}")))
        }
    }
}

/// Returns an answer to a part of a batch. The relay has answered the batch itself, so a part without an answer says
/// nothing of its cluster: it had less time.
fn after_answer(answer: RelayReply) -> RelayReply {
    answer.map_err(|error| match error {
        RelayError::Unreachable(why) => RelayError::Busy(why),
        error => error,
    })
}

/// The answers to `count` verbs.
fn reply_for_each(answers: BatchResponse, count: usize) -> Vec<RelayReply> {
    if answers.responses.len() != count {
        let of = if count == 1 { "one request".to_owned() } else { format!("{count} requests") };
        let why = format!("its answer cannot be read: {} answers to {of}", answers.responses.len());
        return (0..count).map(|_| Err(RelayError::Unreachable(why.clone()))).collect();
    }
    let uid = answers.cluster;
    let one = |answer| match answer {
        RelayResponse::Refused(reason) => Err(RelayError::Refused(reason)),
        RelayResponse::Unavailable(reason) => Err(RelayError::Busy(reason)),
        RelayResponse::TooLarge => Err(RelayError::Busy("its answer is too large to be read with others".to_owned())),
        answer => Ok((answer, uid.clone())),
    };
    answers.responses.into_iter().map(one).collect()
}
