//! The client of all connected relays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ebb_egress::HttpCall;
use ebb_engine::{Millis, Timestamp};
use ebb_kube::podspec::ClusterPolicy;
use ebb_protocol::listing::{ApiServerState, ClusterListing, RelayInfo};
use ebb_protocol::relay::{
    EnsureTask, RelayRequest, RelayResponse, ServiceRequest, ServiceResponse, TaskId, TaskState,
};
use ebb_store::{ClusterFault, Store, StoreResult};

use super::batch_sender::{BatchSender, RelayReply, lookup_error};
use super::batches::OpenBatches;
use super::registry::{ClusterConfig, ClusterLookupError, ClusterRegistry, RelayTransport};
use super::reported_policy::reported_policy;
use super::script::{self, PodSettings};
use ebb_flow::lock::lock;
use ebb_flow::ports::{Clock, ConnectedCluster, RandomSource, RelayClient, RelayError, UnitCluster};

/// Sends requests to the relay of the cluster that a unit names. Simultaneous requests to a cluster share a batch.
pub struct ClusterRelay {
    sender: Arc<BatchSender>,
    batches: OpenBatches,
    /// The time between `SIGTERM` and `SIGKILL` of a script.
    grace: Duration,
    /// Observations by cluster, until a sweep takes them. They are for operators only.
    observations: Mutex<BTreeMap<String, Option<ClusterFault>>>,
}

impl ClusterRelay {
    /// Creates a client that uses `call` for push transport and `queue` for pull transport.
    pub fn new(
        clusters: Arc<ClusterRegistry>,
        call: Arc<dyn HttpCall>,
        queue: Arc<Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn RandomSource>,
        grace: Duration,
    ) -> Self {
        let sender = Arc::new(BatchSender { clusters, queue, clock, random, call });
        Self { sender, batches: OpenBatches::default(), grace, observations: Mutex::default() }
    }

    async fn named(&self, cluster: UnitCluster<'_>) -> Result<Arc<ClusterConfig>, RelayError> {
        let found = self.sender.clusters.find(cluster.name).await.map_err(lookup_error)?;
        match cluster.uid.filter(|uid| *uid != found.uid) {
            Some(uid) => Err(other_cluster(&found, uid)),
            None => Ok(found),
        }
    }

    async fn request(&self, cluster: &Arc<ClusterConfig>, request: RelayRequest) -> RelayReply {
        self.batches.request(&self.sender, cluster, request).await
    }

    async fn state(&self, cluster: &Arc<ClusterConfig>, request: RelayRequest) -> Result<TaskState, RelayError> {
        match self.request(cluster, request).await?.0 {
            RelayResponse::State(state) => Ok(state),
            other => Err(unexpected(&other)),
        }
    }

    /// Does the same as [`Self::state`], and records an observation. `refused` is the error for the reason of a refusal.
    async fn observed_state(
        &self,
        cluster: &Arc<ClusterConfig>,
        request: RelayRequest,
        refused: impl FnOnce(String) -> RelayError + Send,
    ) -> Result<TaskState, RelayError> {
        let since = self.sender.clock.now();
        let state = self.state(cluster, request).await.map_err(|error| match error {
            RelayError::Refused(reason) => refused(reason),
            error => error,
        });
        self.observe(cluster, since, state.as_ref().err());
        state
    }

    /// Records whether the relay responded to a request of the time `since`. One usable response outweighs errors, because errors concern single tasks.
    fn observe(&self, cluster: &ClusterConfig, since: Timestamp, error: Option<&RelayError>) {
        let mut observations = lock(&self.observations);
        let entry = observations.entry(cluster.name.clone());
        match error {
            Some(RelayError::Unreachable(why) | RelayError::Busy(why)) => {
                entry.or_insert_with(|| Some(ClusterFault { at: since, reason: why.clone() }));
            }
            Some(RelayError::Refused(_)) | None => drop(entry.insert_entry(None)),
        }
    }

    /// Reads the state of a task that may exist. The refusal of a relay is retryable, because the task may still run.
    /// The only final error is that the cluster is not connected, or another one has its name.
    async fn task_state(&self, cluster: UnitCluster<'_>, request: RelayRequest) -> Result<TaskState, RelayError> {
        self.observed_state(&self.named(cluster).await?, request, RelayError::Busy).await
    }

    async fn expect_done(&self, cluster: UnitCluster<'_>, request: RelayRequest) -> Result<(), RelayError> {
        match self.request(&self.named(cluster).await?, request).await?.0 {
            RelayResponse::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// Returns the error of a request for a task in the cluster `uid`, whose name another cluster has now.
fn other_cluster(present: &ClusterConfig, uid: &str) -> RelayError {
    let ClusterConfig { name, uid: present, .. } = present;
    RelayError::Refused(format!(
        "cluster {name:?} is another cluster now: the target was made for the one with the UID {uid}, and the connected one \
         has the UID {present}; connect the first one as {name:?} again and run `ebb retry`, or, if it does not exist any \
         more, remove by hand what it has made elsewhere and run `ebb unit force-complete`"
    ))
}

fn unexpected(response: &RelayResponse) -> RelayError {
    let kind = match response {
        RelayResponse::State(_) => "the state of a task",
        RelayResponse::Done => "`done`",
        RelayResponse::About(_) => "information about itself",
        RelayResponse::Listing(_) => "a listing",
        RelayResponse::Service(_) => "the response of a service",
        RelayResponse::Refused(_) | RelayResponse::Unavailable(_) | RelayResponse::TooLarge => "an error",
    };
    RelayError::Unreachable(format!("it responded with {kind}, which does not match the request"))
}

#[async_trait]
impl RelayClient for ClusterRelay {
    async fn ensure(&self, cluster: UnitCluster<'_>, request: EnsureTask) -> Result<TaskState, RelayError> {
        let connected = self.named(cluster).await?;
        let pods = PodSettings { cluster: &connected, grace: self.grace };
        let request = script::objects(request, pods).map_err(RelayError::Refused)?;
        self.observed_state(&connected, RelayRequest::Ensure(Box::new(request)), RelayError::Refused).await
    }

    async fn cancel(&self, cluster: UnitCluster<'_>, task: &TaskId, grace: Duration) -> Result<TaskState, RelayError> {
        let grace_ms = Millis::from(grace).0;
        self.task_state(cluster, RelayRequest::Cancel { task: task.clone(), grace_ms }).await
    }

    async fn dequeue(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<TaskState, RelayError> {
        self.task_state(cluster, RelayRequest::Dequeue(task.clone())).await
    }

    async fn get(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<TaskState, RelayError> {
        self.task_state(cluster, RelayRequest::Get(task.clone())).await
    }

    /// Does not record an observation, because the response is only shown.
    async fn status(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<TaskState, RelayError> {
        self.state(&self.named(cluster).await?, RelayRequest::Status(task.clone())).await
    }

    async fn acknowledge(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<(), RelayError> {
        self.expect_done(cluster, RelayRequest::Acknowledge(task.clone())).await
    }

    async fn release(&self, cluster: UnitCluster<'_>, instance: &str) -> Result<(), RelayError> {
        self.expect_done(cluster, RelayRequest::Release { instance: instance.to_owned() }).await
    }

    async fn call(&self, cluster: UnitCluster<'_>, request: ServiceRequest) -> Result<ServiceResponse, RelayError> {
        match self.request(&self.named(cluster).await?, RelayRequest::Call(Box::new(request))).await?.0 {
            RelayResponse::Service(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn clusters(&self) -> Vec<ConnectedCluster> {
        let connected = self.sender.clusters.connected().await;
        let connected = connected.inspect_err(|error| tracing::warn!(%error, "cannot read the registered clusters"));
        let all = connected.unwrap_or_default().into_iter().map(|cluster| ConnectedCluster {
            name: cluster.name.clone(),
            polls: cluster.transport == RelayTransport::Pull,
            uid: Some(cluster.uid.clone()),
            is_registered: cluster.is_registered,
        });
        all.collect()
    }

    fn resolve_cluster(&self, cluster: Option<&str>) -> Option<String> {
        Some(self.sender.clusters.resolve(cluster).to_owned())
    }

    async fn cluster_uid(&self, cluster: Option<&str>) -> StoreResult<Result<Option<String>, String>> {
        match self.sender.clusters.find(cluster).await {
            Ok(connected) => Ok(Ok(Some(connected.uid.clone()))),
            Err(ClusterLookupError::Waiting(_)) => Ok(Ok(None)),
            Err(error @ ClusterLookupError::Unknown(_)) => Ok(Err(error.to_string())),
            Err(ClusterLookupError::Store(error)) => Err(error),
        }
    }

    async fn opens_signadot_outputs(&self, cluster: Option<&str>) -> StoreResult<bool> {
        self.sender.clusters.opens_signadot_outputs(cluster).await
    }

    fn take_observations(&self) -> Vec<(String, Option<ClusterFault>)> {
        let mut observations = lock(&self.observations);
        std::mem::take(&mut *observations).into_iter().collect()
    }

    async fn about(&self, cluster: &str) -> Result<(RelayInfo, String), RelayError> {
        let (cluster, since) = (self.named(Some(cluster).into()).await?, self.sender.clock.now());
        match self.request(&cluster, RelayRequest::About).await? {
            (RelayResponse::About(about), uid) => {
                // An outage also ends without a task.
                if about.api_server == Some(ApiServerState::Responds) {
                    self.observe(&cluster, since, None);
                }
                Ok((about, uid))
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    async fn policy(&self, cluster: Option<&str>) -> Option<(String, ClusterPolicy)> {
        let name = self.resolve_cluster(cluster)?;
        let (about, _) = self.about(&name).await.ok()?;
        Some((name, reported_policy(&about.policy?.fit())?))
    }

    async fn list(&self, cluster: &str, after: Option<String>) -> Result<ClusterListing, RelayError> {
        let cluster = self.named(Some(cluster).into()).await?;
        match self.request(&cluster, RelayRequest::List { after }).await?.0 {
            RelayResponse::Listing(listing) => {
                // A complete listing ends an outage even if no unit sends requests to the cluster.
                if listing.errors.is_empty() {
                    self.observe(&cluster, self.sender.clock.now(), None);
                }
                Ok(listing)
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn delete(&self, cluster: &str, task: &TaskId) -> Result<(), RelayError> {
        self.expect_done(Some(cluster).into(), RelayRequest::Delete(task.clone())).await
    }
}

#[cfg(test)]
pub(super) mod tests;
