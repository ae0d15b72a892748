//! What the functions need of their surroundings, beside the store.

use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Attempt, Epoch, Timestamp, Unit};
use ebb_protocol::id::RunId;
use ebb_protocol::listing::{ClusterListing, RelayInfo};
use ebb_protocol::relay::{EnsureTask, TaskId, TaskState};
use serde::{Deserialize, Serialize};

/// The present.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> Timestamp;
}

/// Randomness for jitter and keys.
pub trait RandomSource: Send + Sync {
    /// A number of 64 random bits.
    fn next(&self) -> u64;
}

/// Why a relay gave no answer, or none that helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// No answer of the relay arrived: the connection failed, timed out, or another server answered. Whether the relay has
    /// seen the request is unknown.
    #[error("the relay does not answer: {0}")]
    Unreachable(String),
    /// The relay answered that it cannot do this now. Whether it has done a part of it is unknown.
    #[error("the relay cannot do it now: {0}")]
    Busy(String),
    /// It refuses the task as it is written, and nothing of it runs or will. Final.
    #[error("the relay refuses the task: {0}")]
    Refused(String),
}

/// The outcome of requests for tasks to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayObservation {
    Responded,
    /// It gives no answer, or none that helps; what was said instead.
    NoResponse(String),
}

/// The relay of a cluster.
#[async_trait]
pub trait RelayClient: Send + Sync {
    /// Starts a task or finds it; cancels all lower attempts first. The state is that after the call; a task that has
    /// ended already calls back again.
    async fn ensure(&self, cluster: Option<&str>, request: EnsureTask) -> Result<TaskState, RelayError>;
    /// Cancels a task, leaves a tombstone, and returns once nothing of it runs: [`TaskState::Ended`] with its result
    /// if it had ended by itself, else [`TaskState::Tombstoned`]. A task that takes longer to terminate is `Running`: call
    /// again.
    async fn cancel(&self, cluster: Option<&str>, name: &TaskId, grace: Duration) -> Result<TaskState, RelayError>;
    /// Removes a queued task, and waits for nothing to end: [`TaskState::Tombstoned`]. A task that runs or has ended stays
    /// as it is. A relay without a queue returns the state.
    async fn dequeue(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.get(cluster, name).await
    }
    /// Reads the state of a task, with the tail of its log.
    async fn get(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError>;
    /// Acknowledges the result of an ended task that was read with [`get`](Self::get). The response to a callback
    /// acknowledges by itself.
    async fn acknowledge(&self, cluster: Option<&str>, name: &TaskId) -> Result<(), RelayError>;
    /// Releases the sensitive outputs of an instance that is over. Idempotent.
    async fn release(&self, cluster: Option<&str>, instance: &str) -> Result<(), RelayError>;
    /// The clusters that are connected. None where scripts run without one: then nobody asks for what follows.
    fn clusters(&self) -> Vec<ConnectedCluster> {
        Vec::new()
    }
    /// The name under which the cluster is connected that a document names so, or does not name; `None`: it is not.
    fn resolve_cluster(&self, _cluster: Option<&str>) -> Option<String> {
        None
    }
    /// Returns the clusters that got requests for tasks since the last call, and whether one of their responses helped.
    fn take_observations(&self) -> Vec<(String, RelayObservation)> {
        Vec::new()
    }
    /// Returns the relay of a cluster, and the uid of that cluster's namespace `kube-system`.
    async fn about(&self, cluster: &str) -> Result<(RelayInfo, String), RelayError> {
        no_cluster(cluster)
    }
    /// Lists a page of the tasks and objects in a cluster; `after` is the token of the page before.
    async fn list(&self, cluster: &str, _after: Option<String>) -> Result<ClusterListing, RelayError> {
        no_cluster(cluster)
    }
    /// Ends a task for which no further request comes and deletes the objects that were applied for it; not done before
    /// all are gone: call again. Idempotent.
    async fn delete(&self, cluster: &str, _name: &TaskId) -> Result<(), RelayError> {
        no_cluster(cluster)
    }
}

fn no_cluster<T>(cluster: &str) -> Result<T, RelayError> {
    Err(RelayError::Refused(format!("no relay is connected for cluster {cluster:?}")))
}

/// A cluster that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectedCluster {
    /// The name that documents have for it.
    pub name: String,
    /// True if its relay asks for what is to be done, and is not asked.
    pub polls: bool,
    /// The uid of its namespace `kube-system`, if it is pinned.
    pub uid: Option<String>,
}

/// Work for another invocation. Only ever a hint: a lost message costs time, the table stays the truth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QueueMessage {
    /// Send these units of a run.
    Dispatch {
        run: RunId,
        /// The epoch in which it was decided.
        epoch: u32,
        units: Vec<(u32, u32)>,
        /// When the look that passes them on looks at the run again; `None`: no look does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_sweep: Option<u64>,
        /// When they were passed on. `None`: by a version that did not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forwarded_at: Option<u64>,
    },
    /// `sweep` is to look at a run, if it is due.
    Run(RunId),
    /// `sweep` is to look at one try of a unit, whose time may be up.
    Unit { run: RunId, unit: u32, attempt: u32 },
    /// `sweep` is to look at a run, due or not: whoever was to act on it may have died.
    Recover(RunId),
    /// `sweep` is to look at a target, by kind and name.
    Target(String, String),
    /// `sweep` is to mark that it has got this.
    Mark,
}

impl QueueMessage {
    /// Returns the message that sends `units`, passed on at `passed`, for a look that looks at the run `again` if it is one.
    pub fn dispatch(
        run: &RunId,
        epoch: Epoch,
        units: &[(Unit, Attempt)],
        again: Option<Timestamp>,
        passed: Timestamp,
    ) -> Self {
        let units = units.iter().map(|(unit, attempt)| (unit.0, attempt.0)).collect();
        let next_sweep = again.map(|at| at.0);
        Self::Dispatch { run: run.clone(), epoch: epoch.0, units, next_sweep, forwarded_at: Some(passed.0) }
    }

    /// The message that looks at one try.
    pub fn unit(run: &RunId, unit: Unit, attempt: Attempt) -> Self {
        Self::Unit { run: run.clone(), unit: unit.0, attempt: attempt.0 }
    }
}

/// The delayed queue.
#[async_trait]
pub trait MessageQueue: Send + Sync {
    /// Delivers `message` after `delay` (at most 15 minutes), at least once or, if things go wrong, never.
    async fn send(&self, message: QueueMessage, delay: Duration);
    /// Delivers each of `messages` as soon as possible, as [`Self::send`] does.
    async fn send_all(&self, messages: Vec<QueueMessage>) {
        for message in messages {
            self.send(message, Duration::ZERO).await;
        }
    }
    /// Sends [`QueueMessage::Mark`], or says why it cannot be sent.
    async fn check(&self) -> Result<(), String>;
}
