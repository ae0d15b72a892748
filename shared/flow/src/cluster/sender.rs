//! A batch on its way to a relay, over HTTP or by mail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_outbound::{Call, CallError, Request};
use ebb_store::Mailbox;
use ebb_wire::mail::Outcome;
use ebb_wire::relay::{self, Answer, Answers, Batch, Request as Verb};
use ebb_wire::sign::{MessageId, sign};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::batches::Answered;
use super::clusters::{Cluster, Clusters, Way};
use crate::ports::{Clock, Random, RelayError};

/// Sends batches to the relays of clusters, each one signed request as Standard Webhooks are.
pub(super) struct Sender {
    pub(super) clusters: Arc<Clusters>,
    pub(super) mail: Arc<dyn Mailbox>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) call: Arc<dyn Call>,
}

/// The outcome of a whole batch.
enum Sent {
    Answers(Answers),
    /// This holds for each of its verbs.
    All(RelayError),
    /// Something about one of its verbs, or about all answers together: each part of it is another matter.
    Parts(RelayError),
}

impl Sender {
    /// Sends verbs to a cluster. Gives an answer for each, in their order.
    pub(super) async fn send(&self, cluster: &str, verbs: Vec<Verb>, timeout: Duration) -> Vec<Answered> {
        let Some(cluster) = self.clusters.all().find(|known| known.name == cluster) else {
            let why = RelayError::Refused(format!("no relay is connected for cluster {cluster:?}"));
            return verbs.iter().map(|_| Err(why.clone())).collect();
        };
        self.parts(cluster, verbs, timeout).await
    }

    /// As [`Self::send`]. What is too much for one batch is sent again in two halves, in the time that is left.
    fn parts<'a>(
        &'a self,
        cluster: &'a Cluster,
        verbs: Vec<Verb>,
        timeout: Duration,
    ) -> BoxFuture<'a, Vec<Answered>> {
        async move {
            let begun = Instant::now();
            let count = verbs.len();
            let mut batch = Batch { v: relay::VERSION, cluster: cluster.uid.clone(), requests: verbs };
            let error = match self.once(cluster, &batch, timeout).await {
                Sent::Answers(answers) => return each(answers, count),
                Sent::Parts(_) if count > 1 => {
                    let rest = batch.requests.split_off(count / 2);
                    let (one, other) = (batch.requests, rest);
                    let left = timeout.saturating_sub(begun.elapsed());
                    let halves = futures::future::join(
                        self.parts(cluster, one, left),
                        self.parts(cluster, other, left),
                    );
                    let (mut answers, rest) = halves.await;
                    answers.extend(rest);
                    return answers;
                }
                Sent::All(error) | Sent::Parts(error) => error,
            };
            (0..count).map(|_| Err(error.clone())).collect()
        }
        .boxed()
    }

    async fn once(&self, cluster: &Cluster, batch: &Batch, timeout: Duration) -> Sent {
        if timeout.is_zero() {
            return Sent::All(RelayError::Unreachable(
                "its answers were too large, and time is up".to_owned(),
            ));
        }
        let outcome = match &cluster.way {
            Way::Push(url) => self.push(cluster, url, batch, timeout).await,
            Way::Poll => self.send_mail(cluster, batch, timeout).await.map_err(Sent::All),
        };
        match outcome {
            Ok(outcome) => judge(cluster, outcome),
            Err(sent) => sent,
        }
    }

    async fn push(
        &self,
        cluster: &Cluster,
        url: &str,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<Outcome, Sent> {
        let unwritable = |error| Sent::All(unwritable(error));
        let body = serde_json::to_vec(batch).map_err(|error| unwritable(error.to_string()))?;
        let id = MessageId::parse(&format!("batch-{:016x}", self.random.next()));
        let id = id.map_err(|error| unwritable(error.to_string()))?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let signed = sign(cluster.keys.first(), &id, self.clock.now(), &body);
        headers.extend(signed.map(|(name, value)| (name.to_owned(), value)));
        let url = format!("{url}/v1/batch");
        let request = Request { method: "POST".to_owned(), url, headers, body, timeout };
        match self.call.call(request).await {
            Ok(response) if (200..=299).contains(&response.status) => {
                serde_json::from_slice(&response.body).map(Outcome::Answers).map_err(|error| {
                    Sent::All(RelayError::Unreachable(format!("its answer cannot be read: {error}")))
                })
            }
            Ok(response) => {
                let said = ebb_wire::limits::message(&String::from_utf8_lossy(&response.body));
                Ok(Outcome::Status { status: response.status, said })
            }
            Err(CallError::Refused(reason)) => Err(Sent::All(RelayError::Refused(reason))),
            Err(error @ (CallError::Connect(_) | CallError::Timeout(_))) => {
                Err(Sent::All(RelayError::Unreachable(error.to_string())))
            }
            Err(error @ CallError::TooLarge(_)) => {
                Err(Sent::Parts(RelayError::Unreachable(error.to_string())))
            }
        }
    }
}

pub(super) fn unwritable(error: impl std::fmt::Display) -> RelayError {
    RelayError::Refused(format!("the request cannot be written: {error}"))
}

fn judge(cluster: &Cluster, outcome: Outcome) -> Sent {
    let other = |uid: &str| {
        let place = match &cluster.way {
            Way::Push(url) => format!("the relay at {url}"),
            Way::Poll => format!("the relay that polls as {}", cluster.name),
        };
        let pinned = &cluster.uid;
        Sent::All(RelayError::Refused(format!(
            "{place} is that of another cluster{uid} than {pinned}, which is pinned: was it restored or copied?"
        )))
    };
    match outcome {
        Outcome::Answers(answers) if answers.cluster != cluster.uid => {
            other(&format!(" ({})", ebb_wire::limits::message(&answers.cluster)))
        }
        Outcome::Answers(answers) => Sent::Answers(answers),
        Outcome::Status { status: 409, .. } => other(""),
        Outcome::Status { status: status @ (400 | 413 | 422), said } => {
            Sent::Parts(RelayError::Refused(format!("it answered {status}: {said}")))
        }
        // The answers are larger than a relay can send in one go.
        Outcome::Status { status: 507, said } => {
            Sent::Parts(RelayError::Unreachable(format!("it answered 507: {said}")))
        }
        // Also what a wrong secret or URL looks like: the operator mends that, and until then nothing is lost.
        Outcome::Status { status, said } => {
            Sent::All(RelayError::Unreachable(format!("it answered {status}: {said}")))
        }
    }
}

/// The answers to `count` verbs.
fn each(answers: Answers, count: usize) -> Vec<Answered> {
    if answers.answers.len() != count {
        let of = if count == 1 { "one request".to_owned() } else { format!("{count} requests") };
        let why = format!("its answer cannot be read: {} answers to {of}", answers.answers.len());
        return (0..count).map(|_| Err(RelayError::Unreachable(why.clone()))).collect();
    }
    let uid = answers.cluster;
    let one = |answer| match answer {
        Answer::Refused(reason) => Err(RelayError::Refused(reason)),
        Answer::Failed(reason) => Err(RelayError::Unreachable(reason)),
        answer => Ok((answer, uid.clone())),
    };
    answers.answers.into_iter().map(one).collect()
}
