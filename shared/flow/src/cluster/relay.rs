//! The relays of clusters: asked over HTTP, or by mail where they are not reached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ebb_outbound::Call;
use ebb_store::Mailbox;
use ebb_wire::listing::{About, Listing};
use ebb_wire::relay::{Answer, Ensure, Request as Verb, WorkName, WorkState};

use super::batches::Batches;
use super::clusters::{Cluster, Clusters, Way};
use super::job::Pods;
use super::script;
use super::sender::Sender;
use crate::ports::{Clock, Connected, Heard, Random, Relay, RelayError};

/// Asks the relay of the cluster that a unit names. What is asked of one cluster at the same time goes together.
pub struct ClusterRelay {
    sender: Arc<Sender>,
    batches: Batches,
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
        let sender = Arc::new(Sender { clusters, mail, clock, random, call });
        Self { sender, batches: Batches::default(), grace, heard: Mutex::default() }
    }

    fn named(&self, cluster: Option<&str>) -> Result<&Cluster, RelayError> {
        self.sender.clusters.named(cluster).ok_or_else(|| {
            let cluster = cluster.unwrap_or("default");
            RelayError::Refused(format!("no relay is connected for cluster {cluster:?}"))
        })
    }

    /// Asks one thing. Gives the answer, and the uid of the cluster whose relay gave it.
    async fn ask(&self, cluster: &Cluster, verb: Verb) -> Result<(Answer, String), RelayError> {
        self.batches.ask(&self.sender, cluster, verb).await
    }

    async fn state(&self, cluster: Option<&str>, verb: Verb) -> Result<WorkState, RelayError> {
        match self.ask(self.named(cluster)?, verb).await?.0 {
            Answer::State(state) => Ok(state),
            other => Err(unexpected(&other)),
        }
    }

    /// Notes whether there was an answer. One that helps outweighs others: they are about single works then.
    fn note(&self, cluster: &Cluster, error: Option<&RelayError>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = heard.entry(cluster.name.clone());
        match error {
            Some(RelayError::Unreachable(why) | RelayError::Busy(why)) => {
                entry.or_insert_with(|| Heard::Nothing(why.clone()));
            }
            Some(RelayError::Refused(_)) | None => drop(entry.insert_entry(Heard::Answer)),
        }
    }

    /// The state of work that may be there. A refusal says nothing of that: only that no such cluster is connected (any
    /// more) is final.
    async fn standing(&self, cluster: Option<&str>, verb: Verb) -> Result<WorkState, RelayError> {
        let found = self.named(cluster)?;
        let state = self.state(cluster, verb).await.map_err(|error| match error {
            RelayError::Refused(reason) => RelayError::Busy(reason),
            error => error,
        });
        self.note(found, state.as_ref().err());
        state
    }

    async fn done(&self, cluster: Option<&str>, verb: Verb) -> Result<(), RelayError> {
        match self.ask(self.named(cluster)?, verb).await?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(answer: &Answer) -> RelayError {
    let kind = match answer {
        Answer::State(_) => "a state",
        Answer::Done => "done",
        Answer::About(_) => "what it is",
        Answer::Listing(_) => "a list",
        Answer::Refused(_) | Answer::Failed(_) | Answer::Alone => "why not",
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
        let state = self.state(cluster, Verb::Ensure(Box::new(request))).await;
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
        self.standing(cluster, Verb::Cancel { name: name.clone(), grace_ms }).await
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.standing(cluster, Verb::Dequeue(name.clone())).await
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

    fn clusters(&self) -> Vec<Connected> {
        let all = self.sender.clusters.all().map(|cluster| Connected {
            name: cluster.name.clone(),
            polls: cluster.way == Way::Poll,
            uid: Some(cluster.uid.clone()),
        });
        all.collect()
    }

    fn connected(&self, cluster: Option<&str>) -> Option<String> {
        self.sender.clusters.named(cluster).map(|cluster| cluster.name.clone())
    }

    fn heard(&self) -> Vec<(String, Heard)> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard).into_iter().collect()
    }

    async fn about(&self, cluster: &str) -> Result<(About, String), RelayError> {
        match self.ask(self.named(Some(cluster))?, Verb::About).await? {
            (Answer::About(about), uid) => Ok((about, uid)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    async fn list(&self, cluster: &str, after: Option<String>) -> Result<Listing, RelayError> {
        let cluster = self.named(Some(cluster))?;
        match self.ask(cluster, Verb::List { after }).await?.0 {
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
        match self.ask(self.named(Some(cluster))?, Verb::Discard(name.clone())).await?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
