//! Deletes objects of ended tasks, sensitive outputs, and old tombstones. Continues tasks of a relay that was killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::{ObjectRemoval, TaskId, TaskWait};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PartialObjectMeta};

use crate::names::{self, INSTANCE, OUTPUT, PART};
use crate::objects::delete_uid;
use crate::reconcile::{DELETION_PAUSE, ReconcileAction};
use crate::task::task_waits;
use crate::{
    ReconcileError, Reconciler, Result, TaskPhase, TaskRecord, VersionedRecord, error_message, millis, now_ms,
};

/// The pause between two reviews of all records.
const REVIEW_INTERVAL: Duration = Duration::from_secs(300);
/// The retention of a tombstone. It exceeds the longest time for which a request can be in transit.
const TOMBSTONE_RETENTION: Duration = Duration::from_secs(3600);
/// The retention of a tombstone that says that a task has applied no object. Without it, a removal some days later could not
/// tell such a task from one whose records were lost.
const EMPTY_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl Reconciler {
    /// Deletes the objects of all attempts of units. Returns the waits for those that exist, or the evidence.
    pub(crate) async fn remove_units(
        self: &Arc<Self>,
        name: &TaskId,
        units: &[String],
    ) -> Result<(Vec<TaskWait>, ObjectRemoval)> {
        self.registry.subscribe(name, units);
        let (mut remaining, mut without_record) = (Vec::new(), Vec::new());
        let mut removal = ObjectRemoval::default();
        for unit in units {
            let records = self.store.list(unit).await?;
            if !records.iter().any(TaskRecord::names_objects) {
                without_record.push(unit.as_str());
                continue;
            }
            let named = records.iter().map(|record| record.removed.unwrap_or_default() + record.applied().len());
            removal.objects.insert(unit.clone(), named.sum());
            for record in records {
                if record.name != *name && (record.phase.is_open() || !record.applied().is_empty()) {
                    remaining.extend(self.remove_task(&record.name).await?);
                }
            }
        }
        // This lists all kinds, so it comes last and succeeds once.
        if remaining.is_empty() && !without_record.is_empty() {
            if let Some(unlisted) = self.registry.searched(name) {
                removal.unlisted = unlisted;
            } else {
                (remaining, removal.unlisted) = Box::pin(self.unmanaged_waits(&without_record)).await?;
                if remaining.is_empty() {
                    self.registry.mark_searched(name, &removal.unlisted);
                }
            }
        }
        Ok((remaining, removal))
    }

    /// Returns the waits for unmanaged objects of a unit if the unit has no record.
    pub(crate) async fn unmanaged_of(&self, unit: &str) -> Result<Vec<TaskWait>> {
        if self.store.list(unit).await?.iter().any(TaskRecord::names_objects) {
            return Ok(Vec::new());
        }
        Ok(Box::pin(self.unmanaged_waits(&[unit])).await?.0)
    }

    /// Stops a task and deletes its objects. Returns the waits for those that still exist.
    pub(crate) async fn remove_task(self: &Arc<Self>, name: &TaskId) -> Result<Vec<TaskWait>> {
        let Some(mut held) = self.store.get(name).await? else { return self.unmanaged_of(&name.unit).await };
        if held.record.phase.is_open() {
            self.stop(&mut held).await?;
            return Ok(vec![task_waits::termination(name)]);
        }
        let applied = held.record.applied().to_vec();
        if applied.is_empty() {
            return Ok(Vec::new());
        }
        for object_ref in applied.iter().map(|applied| &applied.object_ref) {
            self.watch(&object_ref.api_version, &object_ref.kind, object_ref.namespace.as_deref()).await?;
        }
        let remaining = self.delete_all(name, applied.iter()).await?;
        if remaining.is_empty() {
            self.record_removal(&mut held).await?;
        }
        Ok(remaining)
    }

    /// Records that the objects of a task are gone. A task whose result is acknowledged becomes a tombstone.
    async fn record_removal(&self, held: &mut VersionedRecord) -> Result<()> {
        let spec = held.record.spec.clone();
        held.record.clear_applied();
        if held.record.phase.is_over() {
            held.make_tombstone();
        }
        self.store.save(held).await?;
        if let Some(spec) = spec {
            self.publish(&held.record.name, &spec, "Removed", "Remove", None);
        }
        Ok(())
    }

    /// Deletes the objects of an acknowledged task. A tombstone remains, because a repeated request may still arrive.
    pub(crate) async fn cleanup(&self, held: &mut VersionedRecord) -> Result<ReconcileAction> {
        if !held.record.needs_reconcile() {
            return Ok(ReconcileAction::Done);
        }
        let mut remaining = false;
        for applied in held.record.applied().iter().rev() {
            remaining |= self.delete(&held.record.name, applied).await?.is_some();
        }
        if remaining {
            return Ok(ReconcileAction::Requeue(DELETION_PAUSE));
        }
        self.record_removal(held).await?;
        Ok(ReconcileAction::Done)
    }

    /// Deletes objects that were applied while another relay ended the task, because no record names them.
    pub(crate) async fn remove_unrecorded(&self, seen: &VersionedRecord) -> Result<()> {
        let name = &seen.record.name;
        let now = self.store.get(name).await?.map(|held| held.record);
        // The relay that continues the start finds the object by its labels.
        if now.as_ref().is_some_and(|record| record.phase == TaskPhase::Starting) {
            return Ok(());
        }
        let known = now.as_ref().map_or(&[][..], TaskRecord::applied);
        for unknown in seen.record.applied().iter().filter(|applied| !known.contains(applied)) {
            tracing::warn!(unit = name.unit, attempt = name.attempt, object = %unknown.object_ref, "deleting an object of a task that was ended by another relay");
            self.delete(name, unknown).await?;
        }
        Ok(())
    }

    /// Returns the Secrets with sensitive outputs of an instance, and the errors of namespaces that were not listed.
    pub(crate) async fn output_secrets(
        &self,
        instance: &str,
    ) -> (Vec<(Api<Secret>, PartialObjectMeta<Secret>)>, Vec<(String, kube::Error)>) {
        let selector = format!("{INSTANCE}={instance},{PART}={OUTPUT}");
        let (mut all, mut errors) = (Vec::new(), Vec::new());
        for namespace in &self.namespaces {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
            match api.list_metadata(&ListParams::default().labels(&selector)).await {
                Ok(found) => all.extend(found.items.into_iter().map(|secret| (api.clone(), secret))),
                Err(error) => {
                    if !self.is_namespace_missing(Some(namespace), &error).await {
                        errors.push((namespace.clone(), error));
                    }
                }
            }
        }
        (all, errors)
    }

    /// Adds namespaces of former policies that have sensitive outputs, before any task runs. Forgets those without.
    pub(crate) async fn find_output_namespaces(&mut self) -> Result<()> {
        for namespace in self.store.output_namespaces().await? {
            if self.policy.namespaces.contains_key(&namespace) {
                continue;
            }
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            let outputs = ListParams::default().labels(&format!("{PART}={OUTPUT}")).limit(1);
            let is_empty = match api.list_metadata(&outputs).await {
                Ok(found) => found.items.is_empty(),
                Err(error @ kube::Error::Api(_)) => self.is_namespace_missing(Some(&namespace), &error).await,
                Err(error) => return Err(error.into()),
            };
            match is_empty {
                // No task runs yet.
                true => self.store.delete_part(&names::namespace_name(&namespace)).await?,
                false => self.namespaces.extend([namespace]),
            }
        }
        Ok(())
    }

    /// Deletes all Secrets with sensitive outputs of an instance. Continues after an error and returns all of them.
    pub(crate) async fn release(&self, instance: &str) -> Result<()> {
        let (all, errors) = self.output_secrets(instance).await;
        let unread = |(namespace, error): &(String, kube::Error)| match self.has_lost_right(namespace, error) {
            true => format!(
                "the relay has no rights in the namespace `{namespace}` any more, so sensitive outputs may remain \
                 there; the operator of the cluster can grant the rights again, or delete the Secrets with the label \
                 {PART}={OUTPUT} there and the Secret {} of the relay, and restart the relay",
                names::namespace_name(namespace)
            ),
            false => error_message(error),
        };
        let mut messages: BTreeSet<String> = errors.iter().map(unread).collect();
        for (api, secret) in all {
            let uid = secret.uid().unwrap_or_default();
            let deleted = delete_uid(&api, &secret.name_any(), uid, DeleteParams::default()).await;
            messages.extend(deleted.err().as_ref().map(error_message));
        }
        if messages.is_empty() {
            return Ok(());
        }
        Err(ReconcileError::Internal(messages.into_iter().collect::<Vec<_>>().join("; ")))
    }

    pub(crate) async fn review_loop(self: Arc<Self>) {
        loop {
            if let Err(error) = self.review_records().await {
                tracing::warn!(%error, "cannot review the records");
            }
            tokio::time::sleep(REVIEW_INTERVAL).await;
        }
    }

    /// Continues tasks without a loop, and deletes old tombstones. Another relay that had these tasks was killed.
    async fn review_records(self: &Arc<Self>) -> Result<()> {
        let now_ms = now_ms();
        // A record with a task may still name objects to delete.
        let is_old = |record: &TaskRecord| {
            let retention = if record.removed == Some(0) { EMPTY_RETENTION } else { TOMBSTONE_RETENTION };
            let oldest = now_ms.saturating_sub(millis(retention));
            matches!(record.phase, TaskPhase::Tombstone { since_ms } if since_ms < oldest) && record.spec.is_none()
        };
        let review = |record: TaskRecord| {
            if record.needs_reconcile() && !self.registry.has_loop(&record.name) {
                self.reconcile(&record.name);
            }
            is_old(&record).then_some(record.name)
        };
        for name in self.store.collect(None, review).await? {
            if let Some(held) = self.store.get(&name).await?
                && is_old(&held.record)
            {
                self.store.remove(&held).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::task::record::TaskSpec;
    use crate::test_api::TestApi;

    /// Another relay has started a task and was killed.
    #[tokio::test]
    async fn a_task_without_a_loop_is_continued() {
        let server = TestApi::silent();
        let relay = server.relay().await;
        let record = |attempt: u32, phase: TaskPhase| {
            let record = TaskRecord::new(TaskId { unit: "unit".to_owned(), attempt }, phase, Some(TaskSpec::example()));
            let data = ByteString(serde_json::to_vec(&record).unwrap());
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"record": data}})
        };
        let tombstone = TaskPhase::Tombstone { since_ms: now_ms() };
        let records = json!([record(1, tombstone), record(2, TaskPhase::Running)]);
        server.objects.lock().unwrap().get_mut("secrets").unwrap()["items"] = records;
        for _ in 0..2 {
            relay.inner.review_records().await.unwrap();
            assert_eq!(relay.inner.registry.count(), 1);
        }
    }
}
