//! Arguments and results of the operations of the store, and the bucket.

use std::fmt::Debug;

use async_trait::async_trait;
use ebb_protocol::engine::Attempt;
use ebb_protocol::{
    AttemptRecord, AttemptResult, EventRef, InstanceIds, Outputs, ReportedPolicy, RunId, StateWait, Timestamp, Unit,
};
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};

use crate::items::instance_keys;
use crate::{DesiredKey, HistoryItem, StoreError, TargetHead};

pub type StoreResult<T> = Result<T, StoreError>;

pub type UnitRecord = (Unit, Attempt, AttemptRecord);

/// A change of an attempt before its result.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptUpdate {
    /// The attempt was dispatched.
    Started(Timestamp),
    Accepted(Timestamp),
    /// The request is to be repeated at this time.
    DispatchAgain(Timestamp),
    /// The wait before a repetition, or before a question, ends at this time.
    DispatchEarlier(Timestamp),
    /// A request that is not idempotent is about to be posted (PostOnce), with the credential of this digest, if it has one.
    Posted(Timestamp, Option<String>),
    /// A sender posts the request again and waits for the response until this time.
    Leased(Timestamp),
    /// The request was not sent. The attempt starts at this time. The text is for an attempt that waits for a slot.
    Postponed(Timestamp, Option<String>),
    /// The attempt is running. The text describes its progress, for display.
    Heartbeat(Timestamp, Option<String>),
    /// A callback was rejected for this reason.
    Refused(String),
    /// The rejected callback had these declared outputs, of at most [`ebb_protocol::limits::OUTPUTS_INLINE`] bytes.
    Reported(Outputs),
    /// The request was answered, and the attempt waits for a state. It is dispatched again at `next`. `seen_by` is the
    /// digest of the credential, if the answer shows the resource to it.
    Waiting {
        wait: Box<StateWait>,
        begun: Timestamp,
        next: Timestamp,
        seen_by: Option<String>,
    },
    /// An answer showed the resource to the credential with this digest.
    Seen(String),
    /// An InfraKit plugin answered about these instances. At least one.
    Instances(InstanceIds),
}

/// The outcome of writing a result.
#[derive(Clone, Debug, PartialEq)]
pub enum PutOutcome {
    /// The attempt has this result now.
    Created,
    /// The attempt already had the same result.
    Duplicate(AttemptResult),
    /// The attempt has another result, which stays. This success is stored as a further result.
    Conflict(AttemptResult),
    /// The attempt has another result, which stays. This success is only counted, because
    /// [`ebb_protocol::limits::DISTINCT_RESULTS`] are stored already.
    Excess(AttemptResult),
}

/// The bucket folder of outputs, with one folder per run.
pub const OUTPUTS: &str = "outputs";
/// The bucket folder of logs, with one folder per run.
pub const LOGS: &str = "logs";

/// A page of the history of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryItems {
    /// The newest first, with the entries of runs that have not begun.
    pub entries: Vec<HistoryItem>,
    /// The id after which the next page begins. `None` on the last page.
    pub next: Option<String>,
}

/// An item that `sweep` must process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueItem {
    Run(RunId),
    /// Kind and name of a target.
    Target(String, String),
    /// A desired state that is not applied.
    Desired(DesiredKey),
    /// A source that lists what exists at its sender.
    Source(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginItem {
    /// The name without version.
    pub name: String,
    pub version: String,
    /// `signadot` or `ebb`.
    pub dialect: String,
    pub digest: String,
    pub document: String,
    pub created: Timestamp,
    /// The time of withdrawal. Existing targets keep a withdrawn version; new targets do not use it.
    pub withdrawn: Option<Timestamp>,
}

/// The removal time of the data of an instance, or of the run of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceExpiry {
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// The generation in the ids of its runs.
    pub generation: u64,
    /// The number of the last update. The runs of updates are found without the plan.
    pub updates: u32,
    pub plan: String,
    /// The event whose run is removed. `None` removes the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<EventRef>,
    #[serde(skip)]
    pub due: Timestamp,
    /// Consecutive failed removals.
    #[serde(skip)]
    pub failures: u32,
}

instance_keys!(InstanceExpiry);

impl InstanceExpiry {
    /// Returns the key of the instance, or the id of the run.
    pub fn subject(&self) -> String {
        match &self.event {
            None => self.instance_key(),
            Some(event) => RunId::of_event(&self.instance_key(), self.generation, event).to_string(),
        }
    }
}

/// A removal time that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedExpiry {
    pub instance: String,
    pub key: String,
    /// Consecutive failed removals.
    pub failures: u32,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueExpiries {
    /// Readable ones, the oldest first.
    pub readable: Vec<InstanceExpiry>,
    pub damaged: Vec<DamagedExpiry>,
    /// The sort keys of the removal times of objects.
    pub objects: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Targets ordered by kind and name.
    pub targets: Vec<TargetHead>,
    /// Unreadable targets with the reasons.
    pub damaged: Vec<String>,
    /// Kind and name after which the next page begins, or `None` on the last page. A page may be short if it met many
    /// targets of the other list.
    pub next: Option<(String, String)>,
}

const REMOVALS: usize = 16;

/// Stores large values (S3 `PutObject`, `GetObject`, `DeleteObject`, `ListObjectsV2`).
#[async_trait]
pub trait Bucket: Debug + Send + Sync {
    /// Stores bytes under a key, and replaces an existing object.
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()>;
    /// Opens an object without reading its bytes.
    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>>;
    /// Removes an object if it exists.
    async fn remove(&self, key: &str) -> StoreResult<()>;
    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>>;
    async fn get_object(&self, key: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.open_object(key).await? {
            None => Ok(None),
            Some(object) => object.read().await.map(Some),
        }
    }
    async fn remove_all(&self, prefix: &str) -> StoreResult<()> {
        let keys = futures::stream::iter(self.list(prefix).await?);
        let removals = keys.map(|key| async move { self.remove(&key).await });
        removals.buffer_unordered(REMOVALS).try_collect().await
    }
}

/// An object whose bytes have not been read.
pub struct OpenObject {
    /// The size in bytes, or `None` if the service did not send it.
    pub bytes: Option<usize>,
    body: BoxFuture<'static, StoreResult<Vec<u8>>>,
}

impl OpenObject {
    pub fn new(bytes: Option<usize>, body: impl Future<Output = StoreResult<Vec<u8>>> + Send + 'static) -> Self {
        Self { bytes, body: Box::pin(body) }
    }

    pub async fn read(self) -> StoreResult<Vec<u8>> {
        self.body.await
    }
}

/// A batch for a relay with the pull transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedBatch {
    /// Sorts by the time of queuing.
    pub id: String,
    pub posted: Timestamp,
    /// The time until which a relay can fetch it.
    pub expires: Timestamp,
    pub body: Vec<u8>,
    /// True if the batch is delivered at most once, because a repetition has another effect. Otherwise, a relay that
    /// restarts gets it again.
    pub once: bool,
}

/// The outage of a relay, or a poll that was denied, because the relay has another secret than the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFault {
    /// The start of the outage, or the time of the poll.
    pub at: Timestamp,
    /// The first error of the outage, or the error of the last denied poll, for display.
    pub reason: String,
}

/// The kinds of faults of a cluster, which has at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterFaultKind {
    /// The relay does not respond, or cannot execute tasks.
    Outage,
    /// A poll of the relay was denied.
    Denial,
}

impl ClusterFault {
    /// The time for which a later denial of the same cluster is not recorded, in milliseconds.
    pub const DENIAL_INTERVAL_MS: u64 = 60_000;
}

/// Components that write a heartbeat when they work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthMark {
    Table,
    /// A message that was delivered by the queue.
    Queue,
    Schedule,
}

/// A policy that a relay reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRecord {
    /// The time of its first report.
    pub at: Timestamp,
    pub policy: ReportedPolicy,
}
