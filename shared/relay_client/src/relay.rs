//! The relays of clusters, over HTTP or the batch queue of those that poll.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ebb_egress::HttpCall;
use ebb_protocol::listing::{ClusterListing, RelayInfo};
use ebb_protocol::relay::{EnsureTask, RelayRequest as Verb, RelayResponse, TaskId, TaskState};
use ebb_store::BatchQueue;

use super::batch_sender::BatchSender;
use super::batches::OpenBatches;
use super::job::PodSettings;
use super::registry::{ClusterConfig, ClusterRegistry, RelayTransport};
use super::script;
use ebb_flow::ports::{Clock, ConnectedCluster, RandomSource, RelayClient, RelayError, RelayObservation};

/// Sends requests to the relay of the cluster that a unit names. Simultaneous requests to one cluster go together.
pub struct ClusterRelay {
    sender: Arc<BatchSender>,
    batches: OpenBatches,
    /// Between `SIGTERM` and `SIGKILL` of a script.
    grace: Duration,
    /// By cluster, until somebody asks for it. Only for people.
    observations: Mutex<BTreeMap<String, RelayObservation>>,
}

impl ClusterRelay {
    /// The relays of `clusters`, reached by `call`, or by `queue` if they poll.
    pub fn new(
        clusters: Arc<ClusterRegistry>,
        call: Arc<dyn HttpCall>,
        queue: Arc<dyn BatchQueue>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn RandomSource>,
        grace: Duration,
    ) -> Self {
        let sender = Arc::new(BatchSender { clusters, queue, clock, random, call });
        Self { sender, batches: OpenBatches::default(), grace, observations: Mutex::default() }
    }

    fn named(&self, cluster: Option<&str>) -> Result<&ClusterConfig, RelayError> {
        self.sender.clusters.named(cluster).ok_or_else(|| {
            let cluster = cluster.unwrap_or("default");
            RelayError::Refused(format!("no relay is connected for cluster {cluster:?}"))
        })
    }

    /// Asks one thing. Gives the answer, and the uid of the cluster whose relay gave it.
    async fn request(&self, cluster: &ClusterConfig, verb: Verb) -> Result<(RelayResponse, String), RelayError> {
        self.batches.request(&self.sender, cluster, verb).await
    }

    async fn state(&self, cluster: Option<&str>, verb: Verb) -> Result<TaskState, RelayError> {
        match self.request(self.named(cluster)?, verb).await?.0 {
            RelayResponse::State(state) => Ok(state),
            other => Err(unexpected(&other)),
        }
    }

    /// Notes whether there was an answer. One that helps outweighs others: they are about single tasks then.
    fn observe(&self, cluster: &ClusterConfig, error: Option<&RelayError>) {
        let mut heard = self.observations.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = heard.entry(cluster.name.clone());
        match error {
            Some(RelayError::Unreachable(why) | RelayError::Busy(why)) => {
                entry.or_insert_with(|| RelayObservation::NoResponse(why.clone()));
            }
            Some(RelayError::Refused(_)) | None => drop(entry.insert_entry(RelayObservation::Responded)),
        }
    }

    /// Reads the state of a task that may exist. A refusal says nothing of that: only that no such cluster is connected (any
    /// more) is final.
    async fn task_state(&self, cluster: Option<&str>, verb: Verb) -> Result<TaskState, RelayError> {
        let found = self.named(cluster)?;
        let state = self.state(cluster, verb).await.map_err(|error| match error {
            RelayError::Refused(reason) => RelayError::Busy(reason),
            error => error,
        });
        self.observe(found, state.as_ref().err());
        state
    }

    async fn expect_done(&self, cluster: Option<&str>, verb: Verb) -> Result<(), RelayError> {
        match self.request(self.named(cluster)?, verb).await?.0 {
            RelayResponse::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(answer: &RelayResponse) -> RelayError {
    let kind = match answer {
        RelayResponse::State(_) => "a state",
        RelayResponse::Done => "done",
        RelayResponse::About(_) => "what it is",
        RelayResponse::Listing(_) => "a list",
        RelayResponse::Refused(_) | RelayResponse::Unavailable(_) | RelayResponse::TooLarge => "why not",
    };
    RelayError::Unreachable(format!("it answered with {kind}, which is no answer to what was asked"))
}

#[async_trait]
impl RelayClient for ClusterRelay {
    async fn ensure(&self, cluster: Option<&str>, request: EnsureTask) -> Result<TaskState, RelayError> {
        let found = self.named(cluster)?;
        let pods =
            PodSettings { entrypoint_image: found.entrypoint_image.clone(), grace: self.grace, user: found.user };
        let request = script::objects(request, &pods).map_err(|error| RelayError::Refused(error.to_string()))?;
        let state = self.state(cluster, Verb::Ensure(Box::new(request))).await;
        self.observe(found, state.as_ref().err());
        state
    }

    async fn cancel(&self, cluster: Option<&str>, name: &TaskId, grace: Duration) -> Result<TaskState, RelayError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.task_state(cluster, Verb::Cancel { task: name.clone(), grace_ms }).await
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.task_state(cluster, Verb::Dequeue(name.clone())).await
    }

    async fn get(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.task_state(cluster, Verb::Get(name.clone())).await
    }

    async fn acknowledge(&self, cluster: Option<&str>, name: &TaskId) -> Result<(), RelayError> {
        self.expect_done(cluster, Verb::Acknowledge(name.clone())).await
    }

    async fn release(&self, cluster: Option<&str>, instance: &str) -> Result<(), RelayError> {
        self.expect_done(cluster, Verb::Release { instance: instance.to_owned() }).await
    }

    fn clusters(&self) -> Vec<ConnectedCluster> {
        let all = self.sender.clusters.all().map(|cluster| ConnectedCluster {
            name: cluster.name.clone(),
            polls: cluster.transport == RelayTransport::Pull,
            uid: Some(cluster.uid.clone()),
        });
        all.collect()
    }

    fn resolve_cluster(&self, cluster: Option<&str>) -> Option<String> {
        self.sender.clusters.named(cluster).map(|cluster| cluster.name.clone())
    }

    fn take_observations(&self) -> Vec<(String, RelayObservation)> {
        let mut heard = self.observations.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard).into_iter().collect()
    }

    async fn about(&self, cluster: &str) -> Result<(RelayInfo, String), RelayError> {
        match self.request(self.named(Some(cluster))?, Verb::About).await? {
            (RelayResponse::About(about), uid) => Ok((about, uid)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    async fn list(&self, cluster: &str, after: Option<String>) -> Result<ClusterListing, RelayError> {
        let cluster = self.named(Some(cluster))?;
        match self.request(cluster, Verb::List { after }).await?.0 {
            RelayResponse::Listing(listing) => {
                // There may be no request for a task for a long time.
                if listing.errors.is_empty() {
                    self.observe(cluster, None);
                }
                Ok(listing)
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn delete(&self, cluster: &str, name: &TaskId) -> Result<(), RelayError> {
        match self.request(self.named(Some(cluster))?, Verb::Delete(name.clone())).await?.0 {
            RelayResponse::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
