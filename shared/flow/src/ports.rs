//! Interfaces to other systems, apart from the store.

use std::time::Duration;

use async_trait::async_trait;
use ebb_documents::compile::ClusterPolicy;
use ebb_engine::{Attempt, Epoch, Millis, Timestamp, Unit};
use ebb_protocol::relay::{EnsureTask, ServiceRequest, ServiceResponse, TaskId, TaskState};
use ebb_protocol::{ClusterListing, RelayInfo, RunId, is_dns_label};
use ebb_store::{ClusterFault, StoreResult};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A time for ages in the memory of one process. It never goes back, and has no relation to the time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SteadyTime(pub Millis);

impl SteadyTime {
    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.0.saturating_sub(earlier.0.0))
    }

    /// Adds `millis`, up to the largest time.
    pub fn plus(self, millis: Millis) -> Self {
        Self(Millis(self.0.0.saturating_add(millis.0)))
    }
}

pub trait Clock: Send + Sync {
    /// Returns the present time, in milliseconds since 1970. It can jump, also back.
    fn now(&self) -> Timestamp;
    /// Returns the time for ages in memory. A clock that never goes back needs no other one.
    fn steady(&self) -> SteadyTime {
        SteadyTime(Millis(self.now().0))
    }
    /// Waits. A simulation has its own time.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

/// Randomness for jitter and keys.
pub trait RandomSource: Send + Sync {
    /// Returns 64 random bits.
    fn next(&self) -> u64;
}

/// The reason why a relay did not execute a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// The relay did not respond: the connection failed, timed out, or led to another server. The relay may have
    /// received the request.
    #[error("the relay does not respond: {0}")]
    Unreachable(String),
    /// The relay responded that it cannot execute the request now. It may have executed a part of it.
    #[error("the relay is busy: {0}")]
    Busy(String),
    /// The relay rejects the task. No part of it runs, and a repetition does not help.
    #[error("the relay rejects the task: {0}")]
    Refused(String),
}

/// A cluster in which units of a plan run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitCluster<'a> {
    /// The name in documents. `None` is the default cluster.
    pub name: Option<&'a str>,
    /// The UID in the plan. A request to another cluster of this name fails with [`RelayError::Refused`]. `None` if no
    /// cluster was connected under the name when the plan was made.
    pub uid: Option<&'a str>,
}

impl<'a> From<Option<&'a str>> for UnitCluster<'a> {
    fn from(name: Option<&'a str>) -> Self {
        Self { name, uid: None }
    }
}

#[async_trait]
pub trait RelayClient: Send + Sync {
    /// Starts a task or finds it, after it has cancelled all earlier attempts. Returns the state after the call, with
    /// the result of a task that has already ended.
    async fn ensure(&self, cluster: UnitCluster<'_>, request: EnsureTask) -> Result<TaskState, RelayError>;
    /// Cancels a task, leaves a tombstone, and waits until no part of the task runs. Returns [`TaskState::Ended`] with
    /// the result if the task had ended by itself, otherwise [`TaskState::Tombstoned`]. For a task that takes longer to
    /// terminate, it returns `Running`, and the caller repeats the call.
    async fn cancel(&self, cluster: UnitCluster<'_>, task: &TaskId, grace: Duration) -> Result<TaskState, RelayError>;
    /// Removes a queued task without waiting, and returns [`TaskState::Tombstoned`]. A running or ended task is
    /// unchanged. A relay without a queue only returns the state.
    async fn dequeue(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<TaskState, RelayError> {
        self.get(cluster, task).await
    }
    /// Returns the state of a task, with the tail of its log.
    async fn get(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<TaskState, RelayError>;
    /// Returns the state of a task, which may have no log. An error says nothing about the health of the relay.
    async fn status(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<TaskState, RelayError> {
        self.get(cluster, task).await
    }
    /// Acknowledges the result of an ended task that was read with [`get`](Self::get). A response to a callback
    /// acknowledges the result, too.
    async fn acknowledge(&self, cluster: UnitCluster<'_>, task: &TaskId) -> Result<(), RelayError>;
    /// Releases the sensitive outputs of an ended instance. The call is idempotent.
    async fn release(&self, cluster: UnitCluster<'_>, instance: &str) -> Result<(), RelayError>;
    /// Sends a request to a service of the cluster, once. [`RelayError::Refused`]: the service did not receive it. Another
    /// error leaves that open.
    async fn call(&self, cluster: UnitCluster<'_>, _request: ServiceRequest) -> Result<ServiceResponse, RelayError> {
        no_cluster(cluster.name.unwrap_or("default"))
    }
    /// Returns the clusters that have a relay. A program that runs scripts without clusters has none.
    async fn clusters(&self) -> Vec<ConnectedCluster> {
        Vec::new()
    }
    /// Returns the name of the cluster that a document names, which may not be connected. A program that runs scripts
    /// without clusters has none.
    fn resolve_cluster(&self, _cluster: Option<&str>) -> Option<String> {
        None
    }
    /// Returns the UID of a cluster, or the reason why no unit can start there. A cluster that waits for its relay has none,
    /// as well as a program that runs scripts without clusters. Fails if the connected clusters cannot be read.
    async fn cluster_uid(&self, _cluster: Option<&str>) -> StoreResult<Result<Option<String>, String>> {
        Ok(Ok(None))
    }
    /// Returns true if the outputs of Signadot plugins are not sensitive in a cluster. A program that runs scripts without
    /// clusters keeps them to itself. Fails if the settings of the cluster are stored and cannot be read.
    async fn opens_signadot_outputs(&self, _cluster: Option<&str>) -> StoreResult<bool> {
        Ok(false)
    }
    /// Returns the clusters that got requests for tasks since the last call. An outage means that the relay sent no usable
    /// response, and has the time of the first such request.
    fn take_observations(&self) -> Vec<(String, Option<ClusterFault>)> {
        Vec::new()
    }
    /// Returns information about the relay of a cluster, and the UID of the cluster's namespace `kube-system`.
    async fn about(&self, cluster: &str) -> Result<(RelayInfo, String), RelayError> {
        no_cluster(cluster)
    }
    /// Returns true if units can have objects. A program that runs scripts without clusters applies none.
    fn applies_objects(&self) -> bool {
        true
    }
    /// Returns the policy that the relay of a cluster reports, for checks of documents, with the name of the cluster. `None` if
    /// the relay does not respond, or reports no complete policy.
    async fn policy(&self, _cluster: Option<&str>) -> Option<(String, ClusterPolicy)> {
        None
    }
    /// Returns a page of the tasks and objects in a cluster. `after` is the token of the previous page.
    async fn list(&self, cluster: &str, _after: Option<String>) -> Result<ClusterListing, RelayError> {
        no_cluster(cluster)
    }
    /// Ends an orphaned task and deletes its objects. Fails with [`RelayError::Busy`] until all are gone, and the
    /// caller repeats the call. The call is idempotent.
    async fn delete(&self, cluster: &str, _task: &TaskId) -> Result<(), RelayError> {
        no_cluster(cluster)
    }
}

fn no_cluster<T>(cluster: &str) -> Result<T, RelayError> {
    Err(RelayError::Refused(no_relay(cluster)))
}

/// Returns the reason why a unit cannot run in a cluster without a relay, with the command that connects it. `cluster` may
/// come from a document, so it is a part of the command only if it is a name of a cluster.
pub fn no_relay(cluster: &str) -> String {
    let why = format!("no relay is connected for cluster {cluster:?}");
    match is_dns_label(cluster) {
        true => format!(
            "{why}; ask its operator to run: ebb cluster connect {cluster} --apply --image IMAGE --entrypoint-image IMAGE"
        ),
        false => why,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectedCluster {
    /// The name in documents.
    pub name: String,
    /// True if the cluster has pull transport.
    pub polls: bool,
    /// The UID of its namespace `kube-system`, if it is pinned.
    pub uid: Option<String>,
    /// False for a cluster of the configuration of the control plane.
    pub is_registered: bool,
}

/// Attempts of a run that an invocation forwards to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedAttempts {
    pub run: RunId,
    pub epoch: Epoch,
    pub units: Vec<(Unit, Attempt)>,
    /// The next sweep of the run, if a sweep forwarded the attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_sweep: Option<Timestamp>,
    pub forwarded_at: Timestamp,
}

/// A message to another invocation. It is only a hint. A lost message causes a delay, because the table has the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QueueMessage {
    Dispatch(ForwardedAttempts),
    /// Sweeps a run if it is due.
    Run(RunId),
    /// Checks the deadline of one attempt.
    Unit {
        run: RunId,
        unit: Unit,
        attempt: Attempt,
    },
    /// Asks for the state for which an attempt waits, unless a sweep has asked since. `sweep` is the time at which a sweep
    /// asks if the messages are lost.
    Poll {
        run: RunId,
        unit: Unit,
        attempt: Attempt,
        sweep: Timestamp,
    },
    /// Sweeps a run even if it is not due, because its dispatcher may have ended early.
    Recover(RunId),
    /// Sweeps a target, by kind and name.
    Target(String, String),
    /// Delivers the notifications of a target to the receivers of subscriptions, by kind and name.
    Deliver(String, String),
    /// Writes the queue mark of the health check.
    Mark,
}

#[async_trait]
pub trait MessageQueue: Send + Sync {
    /// Delivers `message` after `delay`, which is at most 15 minutes. It is usually delivered once, but may be
    /// delivered again or be lost.
    async fn send(&self, message: QueueMessage, delay: Duration);
    /// Delivers `messages` as soon as possible, in the same way as [`Self::send`].
    async fn send_all(&self, messages: Vec<QueueMessage>) {
        for message in messages {
            self.send(message, Duration::ZERO).await;
        }
    }
    /// Sends [`QueueMessage::Mark`]. The error is a text for operators. A queue whose `send` cannot fail has none.
    async fn check(&self) -> Result<(), String> {
        self.send(QueueMessage::Mark, Duration::ZERO).await;
        Ok(())
    }
}
