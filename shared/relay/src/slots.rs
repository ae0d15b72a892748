//! Slots of tasks: a task that starts containers needs one until its containers have ended.

use crate::clock::now_ms;
use crate::error::{ReconcileError, status};
use crate::fair_queue::SlotGrant;
use crate::reconciler::Reconciler;
use crate::store::VersionedRecord;
use crate::wait_container::is_stuck;
use ebb_protocol::relay::{SecretDocument, TaskId};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

impl Reconciler {
    /// Returns true if a starting task has a slot and may apply objects. Otherwise its documents are stored, because
    /// they are not sent again. The timeout of the task begins with its slot.
    pub(crate) async fn acquire_slot(
        &self,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<bool, ReconcileError> {
        if !held.record.is_queued() {
            return Ok(true);
        }
        let Some(spec) = &mut held.record.spec else { return Ok(true) };
        if self.queue.acquire(&held.record.name, &spec.objects.instance) == SlotGrant::Queued {
            self.save_queued_documents(held, documents).await?;
            return Ok(false);
        }
        spec.start_clock(now_ms());
        self.store.save(held).await?;
        Ok(true)
    }

    /// Stores the documents of a queued task, once.
    pub(crate) async fn save_queued_documents(
        &self,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<(), ReconcileError> {
        if held.document_parts == 0 && !documents.is_empty() {
            self.store.save_documents(held, documents).await?;
        }
        Ok(())
    }

    /// Releases the slot of a task, or removes the task from the queue.
    pub(crate) fn release_slot(self: &Arc<Self>, name: &TaskId) {
        for next in self.queue.release(name) {
            self.reconcile(&next);
        }
    }

    /// Releases the slot of a task with a result when none of its containers runs.
    pub(crate) async fn release_slot_once_over(self: &Arc<Self>, held: &VersionedRecord) -> Result<(), ReconcileError> {
        let name = &held.record.name;
        let Some(spec) = held.record.spec.as_ref().filter(|_| self.queue.has_slot(name)) else {
            return Ok(());
        };
        let namespace = spec.manifests().next().and_then(|job| job.object_ref.namespace.as_deref());
        if let Some(kind) = self.discovery.find(&self.client, "v1", "Pod").await? {
            self.watch(&kind, Some(namespace.unwrap_or(&spec.namespace)));
        }
        let pods = match self.pods(spec).await {
            // The namespace and the rights in it are gone. The relay can start nothing there.
            Err(ReconcileError::Api(error)) if matches!(status(&error), Some(403 | 404)) => Vec::new(),
            pods => pods?,
        };
        if pods.iter().all(|pod| is_over(pod) || is_stuck(pod)) {
            self.release_slot(name);
        }
        Ok(())
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
