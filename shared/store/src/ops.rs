//! The operations, one trait each. All reads of heads, targets and records are strongly consistent; the index is
//! not, and only a hint.

use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use ebb_protocol::engine::{Attempt, Patch, Shard, Timestamp, Unit};
use ebb_protocol::id::RunId;
use ebb_protocol::record::{AttemptRecord, AttemptResult};
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::error::StoreError;
use crate::items::{NewRun, PatchResult, RunHead, TargetHead};

/// Result of an operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// Reads the head items of a run (`Query`).
#[async_trait]
pub trait ReadRun: Send + Sync {
    /// All head items that exist, the root first. Empty: no such run.
    async fn read_run(&self, run: &RunId) -> StoreResult<Vec<RunHead>>;
    /// The root alone (`GetItem`).
    async fn read_root(&self, run: &RunId) -> StoreResult<Option<RunHead>>;
}

/// Writes one head item of a run (`UpdateItem`).
#[async_trait]
pub trait PatchRun: Send + Sync {
    /// Makes the changes of `patch` if all its conditions hold.
    async fn patch_run(&self, run: &RunId, patch: &Patch) -> StoreResult<PatchResult>;
}

/// Reads records (`Query`).
#[async_trait]
pub trait ReadRecords: Send + Sync {
    /// The records of all tries of `units`, by unit and try. Units without any record are left out.
    async fn read_records(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>>;
    /// The records of all units, without evidence and outputs: [`OutputStorage::Nothing`] stands for them.
    ///
    /// [`OutputStorage::Nothing`]: ebb_protocol::record::OutputStorage::Nothing
    async fn read_outlines(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>>;
    /// The tries of `units` that [`UpdateAttemptRecord::record_accepted`] has noted, in no order (`Query` per head item).
    async fn read_accepted(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>>;
    /// The records of all units.
    async fn read_all_records(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>>;
}

/// A step of a try short of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptUpdate {
    /// It was seen to be sent.
    Started(Timestamp),
    Accepted(Timestamp),
    /// It is to be asked again then.
    DispatchAgain(Timestamp),
    /// Its request is posted, which may happen only once.
    Posted(Timestamp),
    /// It is being posted again by a sender that waits for the answer until then.
    Leased(Timestamp),
    /// It was not sent after all, and is to begin then.
    Postponed(Timestamp),
    /// It goes on; with a line for people.
    Heartbeat(Timestamp, Option<String>),
    /// One of its callbacks was refused, for this reason.
    Refused(String),
}

/// Writes a step of a try into its record (`UpdateItem`). The first `Started`, `Posted` and `Accepted` stay, later ones change
/// nothing; the last `ResendEffect`, `Leased`, `PutOff` and `Beat` stay; `Accepted` removes an `ResendEffect`, and `PutOff` a `Started`.
/// `Accepted`, `ResendEffect` and `PutOff` end a lease. A record with a result is left as it is.
#[async_trait]
pub trait UpdateAttemptRecord: Send + Sync {
    /// The record as it was before the note, or as it is if it has a result already. Of two that note a start at once,
    /// one finds none; if the reply to its write was lost, neither does.
    async fn update_attempt(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        note: &AttemptUpdate,
    ) -> StoreResult<AttemptRecord>;
    /// Notes with one write that the receivers of several tries will call back. The units belong to one head item. Their
    /// records stay as they are: [`ReadRecords::read_accepted`] returns these notes.
    async fn record_accepted(
        &self,
        run: &RunId,
        shard: Shard,
        tries: &[(Unit, Attempt)],
        at: Timestamp,
    ) -> StoreResult<()>;
}

/// What became of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum PutOutcome {
    /// It is the try's result now.
    Created,
    /// The same result was there already.
    Duplicate(AttemptResult),
    /// Another result was there first, and stays; this one is kept beside it.
    Conflict(AttemptResult),
    /// Another result was there first, and stays. This success is counted and not kept: as many as
    /// [`ebb_protocol::limits::DISTINCT_RESULTS`] distinct ones are.
    Excess(AttemptResult),
}

/// Writes the result of a try (`UpdateItem`, and for a second one another `UpdateItem` and `PutItem`).
#[async_trait]
pub trait PutAttemptResult: Send + Sync {
    /// Keeps `result`; the first one stays the try's result.
    async fn put_result(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        result: &AttemptResult,
    ) -> StoreResult<PutOutcome>;
    /// Notes that the bucket may have outputs of a run (`PutItem`). It comes before the first of them, so that a removal
    /// finds those that no record names.
    async fn mark_outputs(&self, run: &RunId) -> StoreResult<()>;
}

/// Folder of outputs in the bucket; below it, each run has one.
pub const OUTPUTS: &str = "outputs";
/// Folder of logs of scripts in the bucket; below it, each run has one.
pub const LOGS: &str = "logs";

/// Reads a target (`GetItem`).
#[async_trait]
pub trait ReadTarget: Send + Sync {
    /// The target of this kind and name.
    async fn read_target(&self, kind: &str, name: &str) -> StoreResult<Option<TargetHead>>;
    /// Returns when the life of this uid ended, if no target names it any more (a tombstone).
    async fn read_tombstone(&self, uid: &str) -> StoreResult<Option<Timestamp>>;
}

/// A transition of a target, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTransition {
    /// The target after it; its `version` is one more than `seen`, or 1.
    pub target: TargetHead,
    /// The version that was seen; `None`: there was no item.
    pub expected_version: Option<u64>,
    /// A run that begins with it.
    pub run: Option<NewRun>,
    /// The ended life that the target does not name any more.
    pub tombstone: Option<Tombstone>,
}

/// The uid of an ended life that no target names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub uid: String,
    pub ended: Timestamp,
    /// It is kept for 30 days from then.
    pub needed: Timestamp,
}

/// Moves a target (`PutItem` alone, `TransactWriteItems` when a run or a plan begins or a tombstone is put).
#[async_trait]
pub trait MoveTarget: Send + Sync {
    /// False: the target was not as it was seen. Nothing was written then.
    async fn move_target(&self, transition: &TargetTransition) -> StoreResult<bool>;
    /// Moves a target, and keeps with it the plan of a life that begins or waits for the name (`TransactWriteItems`; a large
    /// plan goes to the bucket before that). False: as for [`Self::move_target`], and the plan is not kept.
    async fn begin_instance(&self, transition: &TargetTransition, life: &str, plan: &[u8]) -> StoreResult<bool>;
    /// Remembers that a uid has ended, for one that has no target (`PutItem`). To be
    /// followed by a write of the target of its name: whoever is about to create it has read that target before it
    /// looked for a tombstone.
    async fn put_tombstone(&self, tombstone: &Tombstone) -> StoreResult<()>;
}

/// Something that `sweep` has to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueItem {
    Run(RunId),
    /// A target, by kind and name.
    Target(String, String),
}

/// Asks the index what is due (`Query` per index shard).
#[async_trait]
pub trait QueryDue: Send + Sync {
    /// What is due at `now`, the most urgent first, at most `limit`. Entries that cannot be read are left out.
    async fn query_due(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(Timestamp, DueItem)>>;
}

/// Reads and restores plans (`GetItem`, `PutItem`; large ones in the bucket). Each life has its own: see
/// [`MoveTarget::begin_instance`].
#[async_trait]
pub trait PlanStore: Send + Sync {
    /// Keeps the plan of a life again that was lost.
    async fn restore_plan(&self, life: &str, json: &[u8]) -> StoreResult<()>;
    /// The plan of a life.
    async fn get_plan(&self, life: &str) -> StoreResult<Option<Vec<u8>>>;
}

/// A published plugin version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginItem {
    /// Name without version.
    pub name: String,
    pub version: String,
    /// `signadot` or `ebb`.
    pub dialect: String,
    /// Digest of `document`.
    pub digest: String,
    pub document: String,
    pub created: Timestamp,
    /// When it was withdrawn. New targets do not use a withdrawn version; those that have it keep it.
    pub withdrawn: Option<Timestamp>,
}

/// Reads published plugins (`GetItem`, `Query`).
#[async_trait]
pub trait ReadPlugins: Send + Sync {
    /// One version, also a withdrawn one.
    async fn get_plugin(&self, name: &str, version: &str) -> StoreResult<Option<PluginItem>>;
    /// All versions of one plugin, the withdrawn ones included, without documents, in no order.
    async fn list_versions(&self, name: &str) -> StoreResult<Vec<PluginItem>>;
    /// All versions of all plugins that are not withdrawn, without documents.
    async fn list_plugins(&self) -> StoreResult<Vec<PluginItem>>;
}

/// Publishes and withdraws plugins (`PutItem`, `UpdateItem`).
#[async_trait]
pub trait WritePlugins: Send + Sync {
    /// Publishes a version; false: it exists already, and nothing was written. A withdrawn one is published again if the
    /// document is the same.
    async fn put_plugin(&self, plugin: &PluginItem) -> StoreResult<bool>;
    /// Withdraws a version; false: there is none. A version that is withdrawn stays so, since the first time. The
    /// document stays, because living targets may be compared with it.
    async fn withdraw_plugin(&self, name: &str, version: &str, at: Timestamp) -> StoreResult<bool>;
}

/// The time at which the stored data of an instance is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceExpiry {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub generation: u64,
    pub plan: String,
    pub due: Timestamp,
    /// Looks in a row that failed.
    pub failures: u32,
}

/// An expiry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedExpiry {
    /// The short name of the instance.
    pub instance: String,
    /// The sort key of the item.
    pub key: String,
    /// Looks in a row that failed.
    pub failures: u32,
    /// The reason why it cannot be read.
    pub reason: String,
}

/// Expiries that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueExpiries {
    /// The readable ones, the oldest first.
    pub readable: Vec<InstanceExpiry>,
    pub damaged: Vec<DamagedExpiry>,
}

/// Schedules the removal of the stored data of instances (`PutItem`).
#[async_trait]
pub trait PutExpiry: Send + Sync {
    /// Writes an expiry of an instance. The instance may have others, at other times.
    async fn put_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()>;
}

/// Removes the stored data of instances (`Query`, `BatchWriteItem`, `PutItem`, `DeleteItem`; S3 `ListObjectsV2`, `DeleteObject`). All
/// may be repeated.
#[async_trait]
pub trait RemoveExpired: Send + Sync {
    /// Returns the oldest expiries that are due at `now`, at most `limit`.
    async fn list_expired(&self, now: Timestamp, limit: usize) -> StoreResult<DueExpiries>;
    /// Makes `expiry` due at `due`, with this count of failed looks.
    async fn postpone_expiry(&self, expiry: &InstanceExpiry, due: Timestamp, failures: u32) -> StoreResult<()>;
    /// Makes an expiry that cannot be read due at `due`, with its count of failures. One that does not exist is not
    /// created.
    async fn postpone_damaged(&self, damaged: &DamagedExpiry, due: Timestamp) -> StoreResult<()>;
    /// Removes this expiry.
    async fn delete_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()>;
    /// Removes the head items and records of a run, and before them its objects, if an item says that there are any.
    async fn delete_run(&self, run: &RunId) -> StoreResult<()>;
    /// Removes the objects of a run.
    async fn delete_objects(&self, run: &RunId) -> StoreResult<()>;
    /// Removes the plan of a life.
    async fn delete_plan(&self, life: &str) -> StoreResult<()>;
}

/// One of the two lists of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetList {
    /// Those that live, and those that are gone and wait for something: see [`TargetHead::list`].
    Active,
    /// Those that are gone, wait for nothing, and are still remembered.
    Gone,
}

/// A page of a list of targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The targets, by kind and name.
    pub targets: Vec<TargetHead>,
    /// Targets that cannot be read, with the reasons.
    pub damaged: Vec<String>,
    /// The kind and the name after which the next page begins; `None` on the last page. A page ends when it is full, or has
    /// met many targets of the other list.
    pub next: Option<(String, String)>,
}

/// Lists targets (`Query` on the list index, then `BatchGetItem`).
#[async_trait]
pub trait ListTargets: Send + Sync {
    /// Returns targets of a kind, or of all kinds; `after` is the last one of the page before.
    async fn list_page(
        &self,
        list: TargetList,
        kind: Option<&str>,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> StoreResult<ListPage>;
    /// Returns the targets of [`Self::list_page`].
    async fn list_targets(
        &self,
        list: TargetList,
        kind: Option<&str>,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> StoreResult<Vec<TargetHead>> {
        Ok(self.list_page(list, kind, after, limit).await?.targets)
    }
}

/// Keeps large things (S3 `PutObject`, `GetObject`).
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Keeps bytes under a key, replacing what was there.
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()>;
    /// The object of a key; its bytes are still to be read.
    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>>;
    /// The bytes of a key.
    async fn get_object(&self, key: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.open_object(key).await? {
            None => Ok(None),
            Some(object) => object.read().await.map(Some),
        }
    }
}

/// Objects that are removed at once.
const REMOVALS: usize = 16;

/// All that is done with a bucket (S3 `DeleteObject` and `ListObjectsV2`, beside [`ObjectStore`]).
#[async_trait]
pub trait Bucket: ObjectStore + Debug {
    /// Removes what is under a key, if there is anything.
    async fn remove(&self, key: &str) -> StoreResult<()>;
    /// Returns all keys that begin with `prefix`.
    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>>;
    /// Removes everything whose key begins with `prefix`.
    async fn remove_all(&self, prefix: &str) -> StoreResult<()> {
        let keys = futures::stream::iter(self.list(prefix).await?);
        let removals = keys.map(|key| async move { self.remove(&key).await });
        removals.buffer_unordered(REMOVALS).try_collect().await
    }
}

/// An object whose size is known and whose bytes have not been read.
pub struct OpenObject {
    /// Its size in bytes; `None`: the service did not send it.
    pub bytes: Option<usize>,
    body: BoxFuture<'static, StoreResult<Vec<u8>>>,
}

impl OpenObject {
    /// An object of this size whose bytes `body` gives.
    pub fn new(bytes: Option<usize>, body: impl Future<Output = StoreResult<Vec<u8>>> + Send + 'static) -> Self {
        Self { bytes, body: Box::pin(body) }
    }

    /// Reads its bytes.
    ///
    /// # Errors
    /// The service's.
    pub async fn read(self) -> StoreResult<Vec<u8>> {
        self.body.await
    }
}

impl std::fmt::Debug for OpenObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenObject").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A batch that waits for a relay that polls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedBatch {
    /// Sorts by the time at which it was queued.
    pub id: String,
    pub posted: Timestamp,
    /// The time until which a relay can get it.
    pub expires: Timestamp,
    pub body: Vec<u8>,
}

/// The batch queues of clusters (`PutItem`, `Query`, `UpdateItem`, `GetItem`, `DeleteItem`; large batches and responses in
/// the bucket). All reads are strongly consistent: a batch that was taken back is not delivered.
#[async_trait]
pub trait BatchQueue: Send + Sync {
    /// Queues a batch for a cluster.
    async fn enqueue_batch(&self, cluster: &str, batch: &QueuedBatch) -> StoreResult<()>;
    /// Lists the batches of a cluster that wait at `now` for a response, the oldest first, without those that are
    /// `in_progress`: at most `limit`, and of large ones no more than fill `bytes`, or one.
    async fn pending_batches(
        &self,
        cluster: &str,
        now: Timestamp,
        in_progress: &[String],
        limit: usize,
        bytes: usize,
    ) -> StoreResult<Vec<QueuedBatch>>;
    /// Stores the response to a batch; false: there is no such batch, or it has a response.
    async fn put_reply(&self, cluster: &str, id: &str, response: &[u8]) -> StoreResult<bool>;
    /// Reads the response to a batch, if it has one.
    async fn read_reply(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>>;
    /// Takes a batch back, so that it is not delivered any more. Returns the response if one came before.
    async fn take_batch(&self, cluster: &str, id: &str) -> StoreResult<Option<Vec<u8>>>;
}

/// The times of the next orphan scans of the clusters (`GetItem`, `UpdateItem`); all in one item.
#[async_trait]
pub trait OrphanScans: Send + Sync {
    /// Returns the time of the next scan of each cluster that was scanned before.
    async fn read_scans(&self) -> StoreResult<BTreeMap<String, Timestamp>>;
    /// Claims the scan that was read as due at `seen`; the one after it is due at `next`. False: another caller has claimed
    /// it.
    async fn claim_scan(&self, cluster: &str, seen: Option<Timestamp>, next: Timestamp) -> StoreResult<bool>;
}

/// An outage of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageRecord {
    pub since: Timestamp,
    /// The first error, for people.
    pub reason: String,
}

/// What leaves a mark, by which it is seen that it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthMark {
    /// Who looks whether the table works.
    Table,
    /// A message that came through the queue.
    Queue,
    Schedule,
}

/// Marks with the time at which they were made (`PutItem`, `GetItem`); items of their own, which mean nothing else.
#[async_trait]
pub trait HealthMarks: Send + Sync {
    /// Makes a mark.
    async fn put_mark(&self, what: HealthMark, now: Timestamp) -> StoreResult<()>;
    /// The last one, if there is any.
    async fn read_mark(&self, what: HealthMark) -> StoreResult<Option<Timestamp>>;
}

/// The outages of clusters (`GetItem`, `UpdateItem`); all in the item of [`OrphanScans`].
#[async_trait]
pub trait RelayOutages: Send + Sync {
    /// Returns the outages by cluster.
    async fn read_outages(&self) -> StoreResult<BTreeMap<String, OutageRecord>>;
    /// Records an outage. False: one is recorded already, and stays unchanged.
    async fn begin_outage(&self, cluster: &str, since: Timestamp, reason: &str) -> StoreResult<bool>;
    /// Removes the outage of a cluster. False: none is recorded.
    async fn end_outage(&self, cluster: &str) -> StoreResult<bool>;
}
