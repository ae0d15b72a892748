//! Combines table and bucket.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ebb_protocol::engine::{Attempt, Patch, Shard, Timestamp, Unit};
use ebb_protocol::id::RunId;
use ebb_protocol::record::{AttemptRecord, AttemptResult};

use crate::dynamo::{BodyStorage, DynamoTable, pack};
use crate::error::StoreError;
use crate::items::{PatchResult, RunHead, TargetHead};
use crate::meter::Meter;
use crate::ops::{
    AttemptUpdate, Bucket, DamagedExpiry, DueExpiries, DueItem, HealthMark, HealthMarks, InstanceExpiry, LOGS,
    ListPage, ListTargets, MoveTarget, OUTPUTS, ObjectStore, OpenObject, OrphanScans, OutageRecord, PatchRun,
    PlanStore, PluginItem, PutAttemptResult, PutExpiry, PutOutcome, QueryDue, ReadPlugins, ReadRecords, ReadRun,
    ReadTarget, RelayOutages, RemoveExpired, StoreResult, TargetList, TargetTransition, Tombstone, UpdateAttemptRecord,
    WritePlugins,
};

/// Bytes of a plan that fit into the table. A larger plan is compressed, and stored in the bucket if it is still
/// larger.
pub const PLAN_INLINE: usize = 1 << 10;
/// Bytes of a plugin document that fit into the table. An item may have 400 KB.
pub const DOCUMENT_INLINE: usize = 100 << 10;

#[derive(Clone, Debug)]
pub struct Store {
    pub dynamo: DynamoTable,
    pub bucket: Arc<dyn Bucket>,
}

impl Store {
    pub fn new(dynamo: DynamoTable, bucket: Arc<dyn Bucket>) -> Self {
        Self { dynamo, bucket }
    }

    /// Counts requests to the table with `meter`.
    #[must_use]
    pub fn metered(self, meter: Arc<Meter>) -> Self {
        Self { dynamo: self.dynamo.metered(meter), ..self }
    }

    async fn store_document(
        &self,
        folder: &str,
        digest: &str,
        bytes: &[u8],
        inline: usize,
    ) -> StoreResult<BodyStorage> {
        if bytes.len() <= inline {
            return Ok(BodyStorage::Inline(bytes.to_vec()));
        }
        let key = format!("{folder}/{digest}");
        self.bucket.put_object(&key, bytes.to_vec()).await?;
        Ok(BodyStorage::Object(key))
    }

    /// Stores a large plan in the bucket. Each object has a unique key, so a refused writer does not remove the object
    /// of another one.
    async fn store_plan(&self, instance: &str, json: &[u8]) -> StoreResult<BodyStorage> {
        if json.len() <= PLAN_INLINE || pack(json).len() <= PLAN_INLINE {
            return Ok(BodyStorage::Inline(json.to_vec()));
        }
        let key = format!("{}{:016x}", plan_objects(instance), rand::random::<u64>());
        self.bucket.put_object(&key, json.to_vec()).await?;
        Ok(BodyStorage::Object(key))
    }

    /// Removes the object of a refused plan, unless the item names it because of a lost response. A failure is only
    /// logged.
    async fn remove_unnamed(&self, instance: &str, key: &str) {
        let removal = async {
            match self.dynamo.get_plan_item(instance).await? {
                Some(BodyStorage::Object(named)) if named == key => Ok(()),
                _ => self.bucket.remove(key).await,
            }
        };
        if let Err(error) = removal.await {
            tracing::warn!(%error, key, "cannot delete the plan of a refused instance");
        }
    }

    async fn read_body(&self, body: BodyStorage) -> StoreResult<Vec<u8>> {
        match body {
            BodyStorage::Inline(bytes) => Ok(bytes),
            BodyStorage::Object(key) => {
                let reason = format!("object {key} is missing in the bucket");
                let bytes = self.bucket.get_object(&key).await?;
                bytes.ok_or(StoreError::Broken { operation: "GetObject", reason })
            }
        }
    }
}

fn plan_objects(instance: &str) -> String {
    format!("plans/{instance}/")
}

#[async_trait]
impl PlanStore for Store {
    async fn restore_plan(&self, instance: &str, json: &[u8]) -> StoreResult<()> {
        let body = self.store_plan(instance, json).await?;
        self.dynamo.put_plan_item(instance, &body).await
    }

    async fn get_plan(&self, instance: &str) -> StoreResult<Option<Vec<u8>>> {
        match self.dynamo.get_plan_item(instance).await? {
            None => Ok(None),
            Some(body) => self.read_body(body).await.map(Some),
        }
    }
}

#[async_trait]
impl ReadPlugins for Store {
    async fn get_plugin(&self, name: &str, version: &str) -> StoreResult<Option<PluginItem>> {
        let Some((plugin, body)) = self.dynamo.get_plugin_item(name, version).await? else { return Ok(None) };
        let document = String::from_utf8(self.read_body(body).await?).map_err(|error| StoreError::Broken {
            operation: "GetItem",
            reason: format!("document of {name}@{version}: {error}"),
        })?;
        Ok(Some(PluginItem { document, ..plugin }))
    }

    async fn list_versions(&self, name: &str) -> StoreResult<Vec<PluginItem>> {
        self.dynamo.list_version_items(name).await
    }

    async fn list_plugins(&self) -> StoreResult<Vec<PluginItem>> {
        self.dynamo.list_plugin_items().await
    }
}

#[async_trait]
impl WritePlugins for Store {
    async fn put_plugin(&self, plugin: &PluginItem) -> StoreResult<bool> {
        let body = self.store_document("plugins", &plugin.digest, plugin.document.as_bytes(), DOCUMENT_INLINE).await?;
        self.dynamo.put_plugin_item(plugin, &body).await
    }

    async fn withdraw_plugin(&self, name: &str, version: &str, at: Timestamp) -> StoreResult<bool> {
        self.dynamo.withdraw_plugin_item(name, version, at).await
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        self.bucket.put_object(key, bytes).await
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        self.bucket.open_object(key).await
    }
}

#[async_trait]
impl ReadRun for Store {
    async fn read_run(&self, run: &RunId) -> StoreResult<Vec<RunHead>> {
        self.dynamo.read_run(run).await
    }

    async fn read_root(&self, run: &RunId) -> StoreResult<Option<RunHead>> {
        self.dynamo.read_root(run).await
    }
}

#[async_trait]
impl PatchRun for Store {
    async fn patch_run(&self, run: &RunId, patch: &Patch) -> StoreResult<PatchResult> {
        self.dynamo.patch_run(run, patch).await
    }
}

#[async_trait]
impl ReadRecords for Store {
    async fn read_records(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        self.dynamo.read_records(run, units).await
    }

    async fn read_outlines(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        self.dynamo.read_outlines(run).await
    }

    async fn read_accepted(&self, run: &RunId, units: &[Unit]) -> StoreResult<Vec<(Unit, Attempt, Timestamp)>> {
        self.dynamo.read_accepted(run, units).await
    }

    async fn read_all_records(&self, run: &RunId) -> StoreResult<Vec<(Unit, Attempt, AttemptRecord)>> {
        self.dynamo.read_all_records(run).await
    }
}

#[async_trait]
impl UpdateAttemptRecord for Store {
    async fn update_attempt(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        update: &AttemptUpdate,
    ) -> StoreResult<AttemptRecord> {
        self.dynamo.update_attempt(run, unit, attempt, update).await
    }

    async fn record_accepted(
        &self,
        run: &RunId,
        shard: Shard,
        attempts: &[(Unit, Attempt)],
        at: Timestamp,
    ) -> StoreResult<()> {
        self.dynamo.record_accepted_attempts(run, shard, attempts, at).await
    }
}

#[async_trait]
impl PutAttemptResult for Store {
    async fn put_result(
        &self,
        run: &RunId,
        unit: Unit,
        attempt: Attempt,
        result: &AttemptResult,
    ) -> StoreResult<PutOutcome> {
        self.dynamo.put_result(run, unit, attempt, result).await
    }

    async fn mark_outputs(&self, run: &RunId) -> StoreResult<()> {
        self.dynamo.mark_outputs(run).await
    }
}

#[async_trait]
impl ReadTarget for Store {
    async fn read_target(&self, kind: &str, name: &str) -> StoreResult<Option<TargetHead>> {
        self.dynamo.read_target(kind, name).await
    }

    async fn read_tombstone(&self, uid: &str) -> StoreResult<Option<Timestamp>> {
        self.dynamo.read_tombstone(uid).await
    }
}

#[async_trait]
impl MoveTarget for Store {
    async fn move_target(&self, transition: &TargetTransition) -> StoreResult<bool> {
        self.dynamo.move_target(transition, None).await
    }

    async fn begin_instance(&self, transition: &TargetTransition, instance: &str, plan: &[u8]) -> StoreResult<bool> {
        let body = self.store_plan(instance, plan).await?;
        let is_moved = self.dynamo.move_target(transition, Some((instance, &body))).await?;
        if let (false, BodyStorage::Object(key)) = (is_moved, body) {
            self.remove_unnamed(instance, &key).await;
        }
        Ok(is_moved)
    }

    async fn put_tombstone(&self, tombstone: &Tombstone) -> StoreResult<()> {
        self.dynamo.put_tombstone(tombstone).await
    }
}

#[async_trait]
impl QueryDue for Store {
    async fn query_due(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(Timestamp, DueItem)>> {
        self.dynamo.query_due(now, limit).await
    }
}

#[async_trait]
impl OrphanScans for Store {
    async fn read_scans(&self) -> StoreResult<BTreeMap<String, Timestamp>> {
        self.dynamo.read_scans().await
    }

    async fn claim_scan(&self, cluster: &str, seen: Option<Timestamp>, next: Timestamp) -> StoreResult<bool> {
        self.dynamo.claim_scan(cluster, seen, next).await
    }
}

#[async_trait]
impl HealthMarks for Store {
    async fn put_mark(&self, what: HealthMark, now: Timestamp) -> StoreResult<()> {
        self.dynamo.put_mark(what, now).await
    }

    async fn read_mark(&self, what: HealthMark) -> StoreResult<Option<Timestamp>> {
        self.dynamo.read_mark(what).await
    }
}

#[async_trait]
impl RelayOutages for Store {
    async fn read_outages(&self) -> StoreResult<BTreeMap<String, OutageRecord>> {
        self.dynamo.read_outages().await
    }

    async fn begin_outage(&self, cluster: &str, since: Timestamp, why: &str) -> StoreResult<bool> {
        self.dynamo.begin_outage(cluster, since, why).await
    }

    async fn end_outage(&self, cluster: &str) -> StoreResult<bool> {
        self.dynamo.end_outage(cluster).await
    }
}

#[async_trait]
impl PutExpiry for Store {
    async fn put_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        self.dynamo.put_expiry(expiry).await
    }
}

#[async_trait]
impl RemoveExpired for Store {
    async fn list_expired(&self, now: Timestamp, limit: usize) -> StoreResult<DueExpiries> {
        self.dynamo.list_expired(now, limit).await
    }

    async fn postpone_expiry(&self, expiry: &InstanceExpiry, due: Timestamp, failures: u32) -> StoreResult<()> {
        self.dynamo.postpone_expiry(expiry, due, failures).await
    }

    async fn postpone_damaged(&self, damaged: &DamagedExpiry, due: Timestamp) -> StoreResult<()> {
        self.dynamo.postpone_damaged(damaged, due).await
    }

    async fn delete_expiry(&self, expiry: &InstanceExpiry) -> StoreResult<()> {
        self.dynamo.delete_expiry(expiry).await
    }

    async fn delete_run(&self, run: &RunId) -> StoreResult<()> {
        loop {
            let page = self.dynamo.page_of_run(run).await?;
            // Objects are removed before items, so that an interrupted removal is found and repeated.
            if page.has_objects {
                self.delete_objects(run).await?;
            }
            self.dynamo.delete_items(page.keys).await?;
            if page.is_last {
                return Ok(());
            }
        }
    }

    async fn delete_objects(&self, run: &RunId) -> StoreResult<()> {
        for folder in [OUTPUTS, LOGS] {
            self.bucket.remove_all(&format!("{folder}/{run}/")).await?;
        }
        Ok(())
    }

    async fn delete_plan(&self, instance: &str) -> StoreResult<()> {
        match self.dynamo.delete_plan_item(instance).await? {
            Some(BodyStorage::Inline(_)) => Ok(()),
            // An earlier removal may have been interrupted after it removed the item.
            Some(BodyStorage::Object(_)) | None => self.bucket.remove_all(&plan_objects(instance)).await,
        }
    }
}

#[async_trait]
impl ListTargets for Store {
    async fn list_page(
        &self,
        list: TargetList,
        kind: Option<&str>,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> StoreResult<ListPage> {
        self.dynamo.list_page(list, kind, after, limit).await
    }
}
