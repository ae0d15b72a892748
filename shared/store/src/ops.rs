//! Operations of the store, in small traits. Reads of heads, targets and records are strongly consistent. The due index,
//! and operations whose names begin with `peek`, are eventually consistent.

use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use ebb_protocol::engine::{Attempt, Patch, Shard, Timestamp, Unit};
use ebb_protocol::id::{EventRef, RunId, TargetKey};
use ebb_protocol::listing::ReportedPolicy;
use ebb_protocol::record::{AttemptRecord, AttemptResult, InstanceIds, StateWait};
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::error::StoreError;
use crate::items::{
    ChangeFeed, ClusterItem, DesiredKey, DesiredTarget, HistoryItem, NamedDocument, NamedKind, PatchResult, RunHead,
    SessionItem, SourceRejections, TargetHead, TargetList, TargetTransition, TokenItem, Tombstone,
};

pub type StoreResult<T> = Result<T, StoreError>;

/// Reads head items of a run (`Query`).
#[async_trait]
pub trait ReadRun: Send + Sync {
    /// Returns all head items, the root first. Empty if the run does not exist.
    async fn read_run(&self, run: &RunId) -> StoreResult<Vec<RunHead>>;
    /// Returns the root (`GetItem`).
    async fn read_root(&self, run: &RunId) -> StoreResult<Option<RunHead>>;
}

/// Updates a head item of a run (`UpdateItem`).
#[async_trait]
pub trait PatchRun: Send + Sync {
    /// Applies a patch if all its conditions hold.
    async fn patch_run(&self, run: &RunId, patch: &Patch) -> StoreResult<PatchResult>;
    /// Gives a run the digest of another plan. Returns false if the run does not exist.
    async fn set_run_plan(&self, run: &RunId, plan: &str) -> StoreResult<bool>;
}

/// Reads attempt records (`Query`).
#[async_trait]
pub trait ReadRecords: Send + Sync {
    /// Returns the records of all attempts of `units`, ordered by unit and attempt.
    async fn read_records(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>>;
    /// Returns all records with [`OutputStorage::Nothing`] and without evidence.
    ///
    /// [`OutputStorage::Nothing`]: ebb_protocol::record::OutputStorage::Nothing
    async fn read_outlines(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>>;
    /// Returns acceptances from [`UpdateAttemptRecord::record_accepted`], in no order (`Query` per head item).
    async fn read_accepted(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>>;
    /// Returns the records of all units.
    async fn read_all_records(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>>;
}

/// A change of an attempt before its result.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptUpdate {
    /// The attempt was dispatched.
    Started(Timestamp),
    Accepted(Timestamp),
    /// The request is to be repeated at this time.
    DispatchAgain(Timestamp),
    /// A request that is not idempotent is about to be posted (PostOnce), with the credential of this digest, if it has one.
    Posted(Timestamp, Option<String>),
    /// A sender posts the request again and waits for the response until this time.
    Leased(Timestamp),
    /// The request was not sent. The attempt starts at this time.
    Postponed(Timestamp),
    /// The attempt is running. The text describes its progress, for display.
    Heartbeat(Timestamp, Option<String>),
    /// A callback was rejected for this reason.
    Refused(String),
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

/// Updates the record of an attempt before its result (`UpdateItem`). A record with a result stays unchanged.
///
/// - The first `Started`, `Posted`, `Accepted` and `Waiting` count. A `Waiting` sets the start, if there is none.
/// - The last `DispatchAgain`, `Leased`, `Postponed`, `Heartbeat` and `Seen` count. The IDs of all `Instances` count.
/// - `Accepted` clears `DispatchAgain`. `Postponed` clears `Started`.
/// - `Accepted`, `DispatchAgain` and `Postponed` end a lease.
#[async_trait]
pub trait UpdateAttemptRecord: Send + Sync {
    /// Returns the record before the update, or the unchanged record if it has a result. Of two concurrent starts, one
    /// sees no start. If its response was lost, both see a start.
    async fn update_attempt(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        update: &AttemptUpdate,
    ) -> StoreResult<AttemptRecord>;
    /// Records acceptances of attempts of one head item in one write. [`ReadRecords::read_accepted`] returns them;
    /// their records stay unchanged.
    async fn record_accepted(
        &self,
        run: &RunId,
        shard: Shard,
        attempts: &[(Unit, Attempt)],
        at: Timestamp,
    ) -> StoreResult<()>;
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

/// Writes the result of an attempt (`UpdateItem`; for a further one another `UpdateItem` and `PutItem`).
#[async_trait]
pub trait PutAttemptResult: Send + Sync {
    /// Stores a result. The first result of an attempt decides (RecordDecides).
    async fn put_result(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        result: &AttemptResult,
    ) -> StoreResult<PutOutcome>;
    /// Marks that the bucket may contain outputs of a run (`PutItem`). The mark is written before the first output, so
    /// that a removal finds outputs that are in no record.
    async fn mark_outputs(&self, run: &RunId) -> StoreResult<()>;
}

/// The bucket folder of outputs, with one folder per run.
pub const OUTPUTS: &str = "outputs";
/// The bucket folder of logs, with one folder per run.
pub const LOGS: &str = "logs";

/// Reads a target (`GetItem`).
#[async_trait]
pub trait ReadTarget: Send + Sync {
    async fn read_target(&self, target: TargetKey<'_>) -> StoreResult<Option<TargetHead>>;
    /// Returns the end of an instance that no target names (a tombstone).
    async fn read_tombstone(&self, instance: &str) -> StoreResult<Option<Timestamp>>;
}

/// Writes a target (`PutItem`; `TransactWriteItems` with a run, a plan, a tombstone or an entry of the history).
#[async_trait]
pub trait MoveTarget: Send + Sync {
    /// Writes a transition. Returns false, and writes nothing, if the target has another version.
    async fn move_target(&self, transition: &TargetTransition) -> StoreResult<bool>;
    /// Writes a transition together with the plan of its instance (`TransactWriteItems`; a large plan goes to the
    /// bucket first). Returns false as [`Self::move_target`].
    async fn begin_instance(&self, transition: &TargetTransition, instance: &str, plan: &[u8]) -> StoreResult<bool>;
    /// Records the end of an instance without a target (`PutItem`). The caller then writes the target of the name. A
    /// concurrent creation reads that target before it reads the tombstone, so its write fails.
    async fn put_tombstone(&self, tombstone: &Tombstone) -> StoreResult<()>;
}

/// Writes entries of the history of a target (`PutItem`). [`MoveTarget`] writes those of changes without a run.
#[async_trait]
pub trait NoteHistory: Send + Sync {
    /// Writes an entry. A repetition changes nothing. Returns false, and writes nothing, if another entry has its id.
    async fn note_history(&self, target: TargetKey<'_>, entry: &HistoryItem) -> StoreResult<bool>;
}

/// A page of the history of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryItems {
    /// The newest first, with the entries of runs that have not begun.
    pub entries: Vec<HistoryItem>,
    /// The id after which the next page begins. `None` on the last page.
    pub next: Option<String>,
}

/// Reads the history of a target, also of earlier instances (`Query`, `GetItem`).
#[async_trait]
pub trait ReadHistory: Send + Sync {
    /// Returns at most `limit` entries after the id `after`.
    async fn list_history(&self, target: TargetKey<'_>, after: Option<&str>, limit: usize)
    -> StoreResult<HistoryItems>;
    /// Returns an entry by its id.
    async fn read_history(&self, target: TargetKey<'_>, id: &str) -> StoreResult<Option<HistoryItem>>;
}

/// An item that `sweep` must process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueItem {
    Run(RunId),
    /// Kind and name of a target.
    Target(String, String),
    /// A desired state that is not applied.
    Desired(DesiredKey),
}

impl DueItem {
    pub fn target(key: TargetKey<'_>) -> Self {
        Self::Target(key.kind.to_owned(), key.name.to_owned())
    }
}

/// Queries the due index (`Query` per index shard).
#[async_trait]
pub trait QueryDue: Send + Sync {
    /// Returns at most `limit` items that are due at `now`, the earliest first. Unreadable entries are skipped.
    async fn query_due(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(Timestamp, DueItem)>>;
}

/// Reads and restores plans (`GetItem`, `PutItem`; large ones in the bucket). [`MoveTarget::begin_instance`] writes
/// them.
#[async_trait]
pub trait PlanStore: Send + Sync {
    /// Stores a lost plan again.
    async fn restore_plan(&self, instance: &str, json: &[u8]) -> StoreResult<()>;
    async fn get_plan(&self, instance: &str) -> StoreResult<Option<Vec<u8>>>;
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

/// Reads published plugins (`GetItem`, `Query`), and the connections that they use.
#[async_trait]
pub trait ReadPlugins: ReadDocuments {
    /// Returns a version, even if it is withdrawn.
    async fn get_plugin(&self, name: &str, version: &str) -> StoreResult<Option<PluginItem>>;
    /// Returns all versions of a plugin, even withdrawn ones, without documents and in no order.
    async fn list_versions(&self, name: &str) -> StoreResult<Vec<PluginItem>>;
    /// Returns all versions of all plugins that are not withdrawn, without documents.
    async fn list_plugins(&self) -> StoreResult<Vec<PluginItem>>;
}

/// Publishes and withdraws plugins (`PutItem`, `UpdateItem`).
#[async_trait]
pub trait WritePlugins: Send + Sync {
    /// Publishes a version, or a withdrawn version again with the same document. Returns false if the version exists.
    async fn put_plugin(&self, plugin: &PluginItem) -> StoreResult<bool>;
    /// Withdraws a version and keeps its document. A repetition keeps the first time. Returns false if the version
    /// does not exist.
    async fn withdraw_plugin(&self, name: &str, version: &str, at: Timestamp) -> StoreResult<bool>;
}

/// Reads and writes the desired states of targets (`GetItem`, `PutItem`).
#[async_trait]
pub trait DesiredTargets: Send + Sync {
    async fn read_desired(&self, key: &DesiredKey) -> StoreResult<Option<DesiredTarget>>;
    /// Writes a state whose version is one more than the one that was read, or 1. Returns false, and writes nothing, if
    /// the item has another version. A repetition of the same write returns true.
    async fn put_desired(&self, desired: &DesiredTarget) -> StoreResult<bool>;
}

/// Reads and writes the rejected events of a source (`GetItem`, `PutItem`).
#[async_trait]
pub trait NoteRejections: Send + Sync {
    async fn read_rejections(&self, source: &str) -> StoreResult<Option<SourceRejections>>;
    /// Writes events whose version is one more than the one that was read, or 1. Returns false, and writes nothing, if
    /// the item has another version. A repetition of the same write returns true. The table removes the item 30 days after
    /// its newest event.
    async fn put_rejections(&self, rejections: &SourceRejections) -> StoreResult<bool>;
}

/// Lists the rejected events of all sources (`Query` on the list index, `BatchGetItem`).
#[async_trait]
pub trait ListRejections: Send + Sync {
    /// Returns the events of each source that has any, in no order. A source can be deleted.
    async fn list_rejections(&self) -> StoreResult<Vec<SourceRejections>>;
}

/// Reads sources, connections and subscriptions (`GetItem`).
#[async_trait]
pub trait ReadDocuments: Send + Sync {
    async fn get_document(&self, kind: NamedKind, name: &str) -> StoreResult<Option<NamedDocument>>;
}

/// Lists documents of a kind (`Query` on the list index, `BatchGetItem`).
#[async_trait]
pub trait ListDocuments: Send + Sync {
    /// Returns all documents of a kind by name. Unreadable ones are skipped and logged.
    async fn list_documents(&self, kind: NamedKind) -> StoreResult<Vec<NamedDocument>>;
    /// Returns at most `limit` notifications that were given up, by the beginning of their names: `SUBSCRIPTION/` or
    /// `SUBSCRIPTION/INSTANCE-`.
    async fn list_undelivered(&self, prefix: &str, limit: usize) -> StoreResult<Vec<NamedDocument>>;
    /// Returns the number of notifications of a subscription that were given up, or `limit` if there are more.
    async fn count_undelivered(&self, subscription: &str, limit: usize) -> StoreResult<usize>;
}

/// Writes notifications that are given up (`PutItem`).
#[async_trait]
pub trait PutUndelivered: Send + Sync {
    /// Creates or replaces a notification of the kind [`NamedKind::Undelivered`].
    async fn put_undelivered(&self, notification: &NamedDocument) -> StoreResult<()>;
}

/// Writes sources, connections and subscriptions (`PutItem`, `DeleteItem`).
#[async_trait]
pub trait WriteDocuments: Send + Sync {
    /// Creates or replaces a document.
    async fn put_document(&self, kind: NamedKind, document: &NamedDocument) -> StoreResult<()>;
    /// Deletes a document. Returns false if it does not exist.
    async fn delete_document(&self, kind: NamedKind, name: &str) -> StoreResult<bool>;
}

/// Reads and writes named API tokens (`GetItem`, `PutItem`, `UpdateItem`; `Query` on the list index, `BatchGetItem`).
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// Returns a token by its id, also one that has expired or was revoked.
    async fn read_token(&self, id: &str) -> StoreResult<Option<TokenItem>>;
    /// Returns all tokens that are not revoked, by name.
    async fn list_tokens(&self) -> StoreResult<Vec<TokenItem>>;
    /// Creates a token. Returns false, and writes nothing, if its name has a token that is valid at its creation.
    async fn create_token(&self, token: &TokenItem) -> StoreResult<bool>;
    /// Revokes the token of a name. A repetition keeps the first time. Returns false if the name has no token.
    async fn revoke_token(&self, name: &str, at: Timestamp) -> StoreResult<bool>;
}

/// Reads and writes sessions of the console (`GetItem`, `PutItem`, `DeleteItem`).
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Returns a session by the digest of its id, also one that has expired.
    async fn read_session(&self, digest: &str) -> StoreResult<Option<SessionItem>>;
    /// Writes a session. The table removes it some time after its end.
    async fn put_session(&self, session: &SessionItem) -> StoreResult<()>;
    /// Deletes a session if it exists.
    async fn delete_session(&self, digest: &str) -> StoreResult<()>;
}

/// Reads the feed of changed targets, and appends to it (`Query`, `UpdateItem`).
#[async_trait]
pub trait NoteChanges: Send + Sync {
    /// Returns the feed as it was a short time ago.
    async fn peek_changes(&self) -> StoreResult<ChangeFeed>;
    /// Appends a change of each target, `KIND/NAME`, to the feed, which was read as `seen`. Returns the feed with the changes.
    /// While many others append, the changes only raise the number of the last one.
    async fn note_changes(&self, seen: &ChangeFeed, targets: &[&str]) -> StoreResult<ChangeFeed>;
}

/// Watches the feed of changed targets (`UpdateItem`), and looks whether a target has changed (`Query`).
#[async_trait]
pub trait WatchChanges: NoteChanges {
    /// Sets the time until which changes are written. A watch that begins sets its start, and raises the number of the last
    /// change: earlier changes may be missing. Returns the feed after the write.
    async fn watch_changes(&self, until: Timestamp, begun: Option<Timestamp>) -> StoreResult<ChangeFeed>;
    /// Returns a target as it was a short time ago, at half the price of [`ReadTarget::read_target`].
    async fn peek_target(&self, target: TargetKey<'_>) -> StoreResult<Option<TargetHead>>;
    /// Returns all head items of a run as they were a short time ago, at half the price of [`ReadRun::read_run`].
    async fn peek_run(&self, run: &RunId) -> StoreResult<Vec<RunHead>>;
}

/// The removal time of the data of an instance, or of the run of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub event: Option<EventRef>,
    pub due: Timestamp,
    /// Consecutive failed removals.
    pub failures: u32,
}

impl InstanceExpiry {
    pub fn target_key(&self) -> TargetKey<'_> {
        TargetKey::new(&self.kind, &self.name)
    }

    pub fn instance_key(&self) -> String {
        self.target_key().instance(&self.uid).key()
    }

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
    /// The instance key.
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
}

/// Schedules the removal of the data of instances (`PutItem`).
#[async_trait]
pub trait PutExpiry: Send + Sync {
    /// Schedules a removal. An instance may have several removal times.
    async fn put_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()>;
}

/// Removes the data of instances (`Query`, `BatchWriteItem`, `PutItem`, `DeleteItem`; S3 `ListObjectsV2`,
/// `DeleteObject`). All operations can be repeated.
#[async_trait]
pub trait RemoveExpired: Send + Sync {
    /// Returns at most `limit` removals that are due at `now`, the oldest first.
    async fn list_expired(&self, now: Timestamp, limit: usize) -> StoreResult<DueExpiries>;
    /// Moves a removal to the time `due` and sets its count of failures.
    async fn postpone_expiry(&self, expiry: &InstanceExpiry, due: Timestamp, failures: u32) -> StoreResult<()>;
    /// Moves an unreadable removal to the time `due`, with its count of failures. Does not create a missing one.
    async fn postpone_damaged(&self, damaged: &DamagedExpiry, due: Timestamp) -> StoreResult<()>;
    async fn delete_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()>;
    /// Removes the root of a run, so that the run does not exist. [`Self::delete_run`] removes the rest. Returns false if
    /// the root exists and its removal is not announced.
    async fn delete_root(&self, run: &RunId) -> StoreResult<bool>;
    /// Removes the objects of a run if a mark says that there are any, then its head items and records.
    async fn delete_run(&self, run: &RunId) -> StoreResult<()>;
    async fn delete_objects(&self, run: &RunId) -> StoreResult<()>;
    async fn delete_plan(&self, instance: &str) -> StoreResult<()>;
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

/// Lists targets (`Query` on the list index, then `BatchGetItem`).
#[async_trait]
pub trait ListTargets: Send + Sync {
    /// Returns targets of a kind, or of all kinds, after the target `after`.
    async fn list_page(
        &self,
        list: TargetList,
        kind: Option<&str>,
        after: Option<TargetKey<'_>>,
        limit: usize,
    ) -> StoreResult<ListPage>;
    async fn list_targets(
        &self,
        list: TargetList,
        kind: Option<&str>,
        after: Option<TargetKey<'_>>,
        limit: usize,
    ) -> StoreResult<Vec<TargetHead>> {
        Ok(self.list_page(list, kind, after, limit).await?.targets)
    }
}

/// Stores large values (S3 `PutObject`, `GetObject`).
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Stores bytes under a key, and replaces an existing object.
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()>;
    /// Opens an object without reading its bytes.
    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>>;
    async fn get_object(&self, key: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.open_object(key).await? {
            None => Ok(None),
            Some(object) => object.read().await.map(Some),
        }
    }
}

/// Concurrent deletions.
const REMOVALS: usize = 16;

/// Removes and lists objects (S3 `DeleteObject`, `ListObjectsV2`).
#[async_trait]
pub trait Bucket: ObjectStore + Debug {
    /// Removes an object if it exists.
    async fn remove(&self, key: &str) -> StoreResult<()>;
    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>>;
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

impl std::fmt::Debug for OpenObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenObject").field("bytes", &self.bytes).finish_non_exhaustive()
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

/// Batch queues of clusters (`PutItem`, `Query`, `UpdateItem`, `GetItem`, `DeleteItem`; large batches and responses in
/// the bucket). All reads are strongly consistent, so a deleted batch is not delivered.
#[async_trait]
pub trait BatchQueue: Send + Sync {
    async fn enqueue_batch(&self, cluster: &str, batch: &QueuedBatch) -> StoreResult<()>;
    /// Lists batches without a response that are valid at `now` and not `in_progress`, the oldest first. Returns at
    /// most `limit` batches and, except for the first one, at most `bytes`. Deletes some of the batches that expired
    /// long before `now`, because their responses are not awaited any more.
    async fn pending_batches(
        &self,
        cluster: &str,
        now: Timestamp,
        in_progress: &[String],
        limit: usize,
        bytes: usize,
    ) -> StoreResult<Vec<QueuedBatch>>;
    /// Stores the response to a batch. Returns false if the batch does not exist or has a response.
    async fn put_reply(&self, cluster: &str, id: &str, response: &[u8]) -> StoreResult<bool>;
    async fn read_reply(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>>;
    /// Deletes a batch and returns its response.
    async fn take_batch(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>>;
}

/// Times of the next orphan scans (`GetItem`, `UpdateItem`), all in one item.
#[async_trait]
pub trait OrphanScans: Send + Sync {
    /// Returns all clusters with any state, also that of [`RelayOutages`], with the time of the next scan. A cluster that
    /// was not scanned has none.
    async fn read_scans(&self) -> StoreResult<BTreeMap<String, Option<Timestamp>>>;
    /// Leases the scan that was read as due at `seen` and schedules the next one. Returns false if another caller has
    /// leased it.
    async fn claim_scan(&self, cluster: &str, seen: Option<Timestamp>, next: Timestamp) -> StoreResult<bool>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageRecord {
    pub since: Timestamp,
    /// The first error, for display.
    pub reason: String,
}

/// Components that write a heartbeat when they work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthMark {
    Table,
    /// A message that was delivered by the queue.
    Queue,
    Schedule,
}

/// Heartbeats of the health check (`PutItem`, `GetItem`).
#[async_trait]
pub trait HealthMarks: Send + Sync {
    async fn put_mark(&self, what: HealthMark, now: Timestamp) -> StoreResult<()>;
    async fn read_mark(&self, what: HealthMark) -> StoreResult<Option<Timestamp>>;
}

/// A poll that was denied, because the relay has another secret than the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialRecord {
    pub at: Timestamp,
    /// The error, for display.
    pub reason: String,
}

impl DenialRecord {
    /// The time for which a later denial of the same cluster is not recorded, in milliseconds.
    pub const INTERVAL_MS: u64 = 60_000;
}

/// A policy that a relay reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRecord {
    /// The time of its first report.
    pub at: Timestamp,
    pub policy: ReportedPolicy,
}

/// Reads and writes registered clusters (`Query`, `PutItem`, `DeleteItem`).
#[async_trait]
pub trait ClusterStore: RelayOutages {
    /// Returns all clusters by name, strongly consistent. Unreadable ones are skipped and logged.
    async fn list_clusters(&self) -> StoreResult<Vec<ClusterItem>>;
    /// Writes a cluster. Returns false, and writes nothing, if the item does not have the version `seen`, or exists
    /// although none was seen. A repetition of the same write returns true.
    async fn put_cluster(&self, cluster: &ClusterItem, seen: Option<u64>) -> StoreResult<bool>;
    /// Deletes a cluster. Returns false if it does not exist.
    async fn delete_cluster(&self, name: &str) -> StoreResult<bool>;
}

/// Reads outages of clusters and denied polls (`GetItem`), all in the item of [`OrphanScans`].
#[async_trait]
pub trait ReadOutages: Send + Sync {
    async fn read_outages(&self) -> StoreResult<BTreeMap<String, OutageRecord>>;
    /// Returns the last recorded denial by cluster.
    async fn read_denials(&self) -> StoreResult<BTreeMap<String, DenialRecord>>;
}

/// Changes outages of clusters and denied polls, and reads and changes reported policies (`GetItem`, `UpdateItem`,
/// `DeleteItem`).
#[async_trait]
pub trait RelayOutages: ReadOutages {
    /// Records an outage. Returns false and changes nothing if one is recorded.
    async fn begin_outage(&self, cluster: &str, since: Timestamp, reason: &str) -> StoreResult<bool>;
    /// Removes an outage. Returns false if none is recorded.
    async fn end_outage(&self, cluster: &str) -> StoreResult<bool>;
    /// Records a denied poll. Returns false and changes nothing if one was recorded within
    /// [`DenialRecord::INTERVAL_MS`].
    async fn note_denial(&self, cluster: &str, at: Timestamp, reason: &str) -> StoreResult<bool>;
    /// Removes a denial. Returns false if none is recorded.
    async fn end_denial(&self, cluster: &str) -> StoreResult<bool>;
    /// Returns the last recorded policy of a cluster.
    async fn read_policy(&self, cluster: &str) -> StoreResult<Option<PolicyRecord>>;
    /// Replaces the policy of a cluster. The caller limits its size.
    async fn note_policy(&self, cluster: &str, record: &PolicyRecord) -> StoreResult<()>;
    /// Removes all state of a cluster: its scan, outage, denial and policy. A cluster without state is not an error.
    async fn forget_cluster(&self, cluster: &str) -> StoreResult<()>;
}
