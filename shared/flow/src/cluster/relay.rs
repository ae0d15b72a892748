//! The relays of clusters: asked over HTTP, or by mail where they are not reached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ebb_outbound::{Call, CallError, Request};
use ebb_store::Mailbox;
use ebb_wire::listing::{About, Listing};
use ebb_wire::mail::Outcome;
use ebb_wire::relay::{self, Answer, Batch, Ensure, Request as Verb, WorkName, WorkState};
use ebb_wire::sign::{MessageId, sign};

use super::clusters::{Cluster, Clusters, Way};
use super::job::Pods;
use super::script;
use crate::ports::{Clock, Connected, Heard, Random, Relay, RelayError};

/// How long a relay may take to answer: it does not wait for what it starts.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);
/// How long it may take to hear what only it needs to know, and to say how a work is, on which nothing depends: who kills it
/// asks that first, and has to be done with both before it is killed itself.
const SHORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the relay of the cluster that a unit names: one signed request each, as Standard Webhooks are.
pub struct ClusterRelay {
    pub(super) clusters: Arc<Clusters>,
    pub(super) mail: Arc<dyn Mailbox>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    call: Arc<dyn Call>,
    /// Between `SIGTERM` and `SIGKILL` of a script.
    grace: Duration,
    /// By cluster, until somebody asks for it. Only for people.
    heard: Mutex<BTreeMap<String, Heard>>,
}

impl ClusterRelay {
    /// The relays of `clusters`, reached by `call`, or by `mail` if they poll.
    pub fn new(
        clusters: Arc<Clusters>,
        call: Arc<dyn Call>,
        mail: Arc<dyn Mailbox>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        grace: Duration,
    ) -> Self {
        Self { clusters, mail, clock, random, call, grace, heard: Mutex::default() }
    }

    fn named(&self, cluster: Option<&str>) -> Result<&Cluster, RelayError> {
        self.clusters.named(cluster).ok_or_else(|| {
            let cluster = cluster.unwrap_or("default");
            RelayError::Refused(format!("no relay is connected for cluster {cluster:?}"))
        })
    }

    /// Asks one thing. Gives the answer, and the uid of the cluster whose relay gave it.
    async fn ask(
        &self,
        cluster: &Cluster,
        verb: Verb,
        timeout: Duration,
    ) -> Result<(Answer, String), RelayError> {
        let batch = Batch { v: relay::VERSION, cluster: cluster.uid.clone(), requests: vec![verb] };
        let outcome = match &cluster.way {
            Way::Push(url) => self.push(cluster, url, &batch, timeout).await?,
            Way::Poll => self.send_mail(cluster, &batch, timeout).await?,
        };
        read(cluster, outcome)
    }

    async fn push(
        &self,
        cluster: &Cluster,
        url: &str,
        batch: &Batch,
        timeout: Duration,
    ) -> Result<Outcome, RelayError> {
        let body = serde_json::to_vec(batch).map_err(unwritable)?;
        let id = MessageId::parse(&format!("batch-{:016x}", self.random.next())).map_err(unwritable)?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let signed = sign(&cluster.secret, &id, self.clock.now(), &body);
        headers.extend(signed.map(|(name, value)| (name.to_owned(), value)));
        let url = format!("{url}/v1/batch");
        let request = Request { method: "POST".to_owned(), url, headers, body, timeout };
        match self.call.call(request).await {
            Ok(response) if (200..=299).contains(&response.status) => serde_json::from_slice(&response.body)
                .map(Outcome::Answers)
                .map_err(|error| RelayError::Unreachable(format!("its answer cannot be read: {error}"))),
            Ok(response) => {
                let said = ebb_wire::limits::message(&String::from_utf8_lossy(&response.body));
                Ok(Outcome::Status { status: response.status, said })
            }
            Err(CallError::Refused(reason)) => Err(RelayError::Refused(reason)),
            // What was too large to read comes by a callback, too.
            Err(error @ (CallError::Connect(_) | CallError::Timeout(_) | CallError::TooLarge(_))) => {
                Err(RelayError::Unreachable(error.to_string()))
            }
        }
    }

    async fn state(
        &self,
        cluster: Option<&str>,
        verb: Verb,
        timeout: Duration,
    ) -> Result<WorkState, RelayError> {
        match self.ask(self.named(cluster)?, verb, timeout).await?.0 {
            Answer::State(state) => Ok(state),
            other => Err(unexpected(&other)),
        }
    }

    /// Notes whether there was an answer. One that helps outweighs others: they are about single works then.
    fn note(&self, cluster: &Cluster, error: Option<&RelayError>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = heard.entry(cluster.name.clone());
        match error {
            Some(RelayError::Unreachable(why)) => drop(entry.or_insert_with(|| Heard::Nothing(why.clone()))),
            Some(RelayError::Refused(_)) | None => drop(entry.insert_entry(Heard::Answer)),
        }
    }

    /// The state of work that may be there. A refusal says nothing of that: only that no such cluster is connected (any
    /// more) is final.
    async fn standing(
        &self,
        cluster: Option<&str>,
        verb: Verb,
        timeout: Duration,
    ) -> Result<WorkState, RelayError> {
        let found = self.named(cluster)?;
        let state = self.state(cluster, verb, timeout).await.map_err(|error| match error {
            RelayError::Refused(reason) | RelayError::Unreachable(reason) => RelayError::Unreachable(reason),
        });
        self.note(found, state.as_ref().err());
        state
    }

    async fn done(&self, cluster: Option<&str>, verb: Verb) -> Result<(), RelayError> {
        match self.ask(self.named(cluster)?, verb, SHORT_TIMEOUT).await?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

pub(super) fn unwritable(error: impl std::fmt::Display) -> RelayError {
    RelayError::Refused(format!("the request cannot be written: {error}"))
}

/// The answer to the one request of a batch, and the uid of the cluster that it is from.
fn read(cluster: &Cluster, outcome: Outcome) -> Result<(Answer, String), RelayError> {
    let other = |uid: &str| {
        let pinned = cluster.uid.as_deref().unwrap_or_default();
        let place = match &cluster.way {
            Way::Push(url) => format!("the relay at {url}"),
            Way::Poll => format!("the relay that polls as {}", cluster.name),
        };
        RelayError::Refused(format!(
            "{place} is that of another cluster{uid} than {pinned}, which is pinned: was it restored or copied?"
        ))
    };
    let answers = match outcome {
        Outcome::Answers(answers) => answers,
        Outcome::Status { status: 409, .. } => return Err(other("")),
        Outcome::Status { status: status @ (400 | 413 | 422), said } => {
            return Err(RelayError::Refused(format!("it answered {status}: {said}")));
        }
        // Also what a wrong secret or URL looks like: the operator mends that, and until then nothing is lost.
        Outcome::Status { status, said } => {
            return Err(RelayError::Unreachable(format!("it answered {status}: {said}")));
        }
    };
    if cluster.uid.as_ref().is_some_and(|uid| *uid != answers.cluster) {
        return Err(other(&format!(" ({})", ebb_wire::limits::message(&answers.cluster))));
    }
    match <[Answer; 1]>::try_from(answers.answers) {
        Ok([Answer::Refused(reason)]) => Err(RelayError::Refused(reason)),
        Ok([Answer::Failed(reason)]) => Err(RelayError::Unreachable(reason)),
        Ok([answer]) => Ok((answer, answers.cluster)),
        Err(list) => Err(RelayError::Unreachable(format!(
            "its answer cannot be read: {} answers to one request",
            list.len()
        ))),
    }
}

fn unexpected(answer: &Answer) -> RelayError {
    let kind = match answer {
        Answer::State(_) => "a state",
        Answer::Done => "done",
        Answer::About(_) => "what it is",
        Answer::Listing(_) => "a list",
        Answer::Refused(_) | Answer::Failed(_) => "why not",
    };
    RelayError::Unreachable(format!("it answered with {kind}, which is no answer to what was asked"))
}

#[async_trait]
impl Relay for ClusterRelay {
    async fn ensure(&self, cluster: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        let found = self.named(cluster)?;
        let pods = Pods { runner_image: found.runner_image.clone(), grace: self.grace, user: found.user };
        let request =
            script::objects(request, &pods).map_err(|error| RelayError::Refused(error.to_string()))?;
        let state = self.state(cluster, Verb::Ensure(Box::new(request)), TIMEOUT).await;
        self.note(found, state.as_ref().err());
        state
    }

    async fn cancel(
        &self,
        cluster: Option<&str>,
        name: &WorkName,
        grace: Duration,
    ) -> Result<WorkState, RelayError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.standing(cluster, Verb::Cancel { name: name.clone(), grace_ms }, TIMEOUT).await
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.standing(cluster, Verb::Dequeue(name.clone()), TIMEOUT).await
    }

    async fn get(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.standing(cluster, Verb::Get(name.clone()), SHORT_TIMEOUT).await
    }

    async fn acknowledge(&self, cluster: Option<&str>, name: &WorkName) -> Result<(), RelayError> {
        self.done(cluster, Verb::Acknowledge(name.clone())).await
    }

    async fn release(&self, cluster: Option<&str>, life: &str) -> Result<(), RelayError> {
        self.done(cluster, Verb::Release { life: life.to_owned() }).await
    }

    fn clusters(&self) -> Vec<Connected> {
        let all = self.clusters.all().map(|cluster| Connected {
            name: cluster.name.clone(),
            polls: cluster.way == Way::Poll,
            uid: cluster.uid.clone(),
        });
        all.collect()
    }

    fn connected(&self, cluster: Option<&str>) -> Option<String> {
        self.clusters.named(cluster).map(|cluster| cluster.name.clone())
    }

    fn heard(&self) -> Vec<(String, Heard)> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard).into_iter().collect()
    }

    async fn about(&self, cluster: &str) -> Result<(About, String), RelayError> {
        match self.ask(self.named(Some(cluster))?, Verb::About, SHORT_TIMEOUT).await? {
            (Answer::About(about), uid) => Ok((about, uid)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    async fn list(&self, cluster: &str, after: Option<String>) -> Result<Listing, RelayError> {
        let cluster = self.named(Some(cluster))?;
        match self.ask(cluster, Verb::List { after }, TIMEOUT).await?.0 {
            Answer::Listing(listing) => {
                // Nobody may ask it for works for a long time.
                if listing.unseen.is_empty() {
                    self.note(cluster, None);
                }
                Ok(listing)
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn discard(&self, cluster: &str, name: &WorkName) -> Result<(), RelayError> {
        match self.ask(self.named(Some(cluster))?, Verb::Discard(name.clone()), TIMEOUT).await?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

#[cfg(test)]
mod tests;
