//! The relays of clusters, over HTTP.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_wire::relay::{self, Answer, Answers, Batch, Ensure, Request as Verb, WorkName, WorkState};
use ebb_wire::sign::{MessageId, sign};

use super::clusters::{Cluster, Clusters};
use super::job::Pods;
use super::script;
use crate::ports::{Clock, Random, Relay, RelayError};

/// How long a relay may take to answer: it does not wait for what it starts.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How long it may take to hear what only it needs to know.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the relay of the cluster that a unit names: one signed request each, as Standard Webhooks are.
pub struct ClusterRelay {
    clusters: Clusters,
    call: Arc<dyn Call>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// Between `SIGTERM` and `SIGKILL` of a script.
    grace: Duration,
}

impl ClusterRelay {
    /// The relays of `clusters`, reached by `call`.
    pub fn new(
        clusters: Clusters,
        call: Arc<dyn Call>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        grace: Duration,
    ) -> Self {
        Self { clusters, call, clock, random, grace }
    }

    fn named(&self, cluster: Option<&str>) -> Result<&Cluster, RelayError> {
        self.clusters.named(cluster).ok_or_else(|| {
            let cluster = cluster.unwrap_or("default");
            RelayError::Refused(format!("no relay is connected for cluster {cluster:?}"))
        })
    }

    async fn ask(&self, cluster: &Cluster, verb: Verb, timeout: Duration) -> Result<Answer, RelayError> {
        let batch = Batch { v: relay::VERSION, cluster: cluster.uid.clone(), requests: vec![verb] };
        let broken = |error: String| RelayError::Refused(format!("the request cannot be written: {error}"));
        let body = serde_json::to_vec(&batch).map_err(|error| broken(error.to_string()))?;
        let id = MessageId::parse(&format!("batch-{:016x}", self.random.next()))
            .map_err(|error| broken(error.to_string()))?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let signed = sign(&cluster.secret, &id, self.clock.now(), &body);
        headers.extend(signed.map(|(name, value)| (name.to_owned(), value)));
        let url = format!("{}/v1/batch", cluster.url);
        let request = Request { method: "POST".to_owned(), url, headers, body, timeout };
        match self.call.call(request).await {
            Ok(response) => read(cluster, &response),
            Err(CallError::Refused(reason)) => Err(RelayError::Refused(reason)),
            // What was too large to read comes by a callback, too.
            Err(error @ (CallError::Connect(_) | CallError::Timeout(_) | CallError::TooLarge(_))) => {
                Err(RelayError::Unreachable(error.to_string()))
            }
        }
    }

    async fn state(&self, cluster: Option<&str>, verb: Verb) -> Result<WorkState, RelayError> {
        match self.ask(self.named(cluster)?, verb, TIMEOUT).await? {
            Answer::State(state) => Ok(state),
            other => Err(unexpected(&other)),
        }
    }

    /// The state of work that may be there. A refusal says nothing of that: only that no such cluster is connected (any
    /// more) is final.
    async fn standing(&self, cluster: Option<&str>, verb: Verb) -> Result<WorkState, RelayError> {
        self.named(cluster)?;
        let state = self.state(cluster, verb).await;
        state.map_err(|error| match error {
            RelayError::Refused(reason) | RelayError::Unreachable(reason) => RelayError::Unreachable(reason),
        })
    }

    async fn done(&self, cluster: Option<&str>, verb: Verb) -> Result<(), RelayError> {
        match self.ask(self.named(cluster)?, verb, ACKNOWLEDGE_TIMEOUT).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// The answer to the one request of a batch.
fn read(cluster: &Cluster, response: &Response) -> Result<Answer, RelayError> {
    let said = || ebb_wire::limits::message(&String::from_utf8_lossy(&response.body));
    let other = |uid: &str| {
        let pinned = cluster.uid.as_deref().unwrap_or_default();
        RelayError::Refused(format!(
            "the relay at {} is that of another cluster{uid} than {pinned}, which is pinned: was it restored or copied?",
            cluster.url
        ))
    };
    match response.status {
        200..=299 => {}
        409 => return Err(other("")),
        400 | 413 | 422 => {
            return Err(RelayError::Refused(format!("it answered {}: {}", response.status, said())));
        }
        // Also what a wrong secret or URL looks like: the operator mends that, and until then nothing is lost.
        status => return Err(RelayError::Unreachable(format!("it answered {status}: {}", said()))),
    }
    let unreadable = |why: String| RelayError::Unreachable(format!("its answer cannot be read: {why}"));
    let answers: Answers =
        serde_json::from_slice(&response.body).map_err(|error| unreadable(error.to_string()))?;
    if cluster.uid.as_ref().is_some_and(|uid| *uid != answers.cluster) {
        return Err(other(&format!(" ({})", ebb_wire::limits::message(&answers.cluster))));
    }
    match <[Answer; 1]>::try_from(answers.answers) {
        Ok([Answer::Refused(reason)]) => Err(RelayError::Refused(reason)),
        Ok([Answer::Failed(reason)]) => Err(RelayError::Unreachable(reason)),
        Ok([answer]) => Ok(answer),
        Err(answers) => Err(unreadable(format!("{} answers to one request", answers.len()))),
    }
}

fn unexpected(answer: &Answer) -> RelayError {
    let kind = match answer {
        Answer::State(_) => "a state",
        Answer::Done => "done",
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
        self.state(cluster, Verb::Ensure(Box::new(request))).await
    }

    async fn cancel(
        &self,
        cluster: Option<&str>,
        name: &WorkName,
        grace: Duration,
    ) -> Result<WorkState, RelayError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.standing(cluster, Verb::Cancel { name: name.clone(), grace_ms }).await
    }

    async fn get(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.standing(cluster, Verb::Get(name.clone())).await
    }

    async fn acknowledge(&self, cluster: Option<&str>, name: &WorkName) -> Result<(), RelayError> {
        self.done(cluster, Verb::Acknowledge(name.clone())).await
    }

    async fn release(&self, cluster: Option<&str>, life: &str) -> Result<(), RelayError> {
        self.done(cluster, Verb::Release { life: life.to_owned() }).await
    }
}

#[cfg(test)]
mod tests;
