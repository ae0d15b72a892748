//! Deletes the objects of other tasks.

use std::sync::Arc;

use ebb_protocol::relay::TaskId;

use crate::error::{ReconcileError, error_message};
use crate::objects::DeleteOutcome;
use crate::reconciler::Reconciler;
use crate::record::TaskPhase;
use crate::store::VersionedRecord;
use crate::terminate::GRACE_MS;

impl Reconciler {
    /// Deletes the objects of all attempts of these units. Returns the reason if one still exists.
    pub(crate) async fn remove_units(
        self: &Arc<Self>,
        name: &TaskId,
        units: &[String],
    ) -> Result<Option<String>, ReconcileError> {
        self.registry.subscribe(name, units);
        let mut remaining = None;
        for unit in units {
            for record in self.store.list(unit).await? {
                if record.name == *name {
                    continue;
                }
                if record.phase.is_open() {
                    self.begin_stop(&record.name).await?;
                    remaining = Some(format!("attempt {} of {unit} is still terminating", record.name.attempt));
                } else if record.spec.is_some_and(|spec| !spec.applied.is_empty())
                    && let Some(mut held) = self.store.get(&record.name).await?
                    && let Some(why) = self.remove_objects(&mut held).await?
                {
                    remaining = Some(why);
                }
            }
        }
        Ok(remaining)
    }

    /// Stops a task and deletes its objects without a request of its owner. Returns the reason if one still exists.
    pub(crate) async fn delete_unmanaged_task(
        self: &Arc<Self>,
        name: &TaskId,
    ) -> Result<Option<String>, ReconcileError> {
        let Some(mut held) = self.store.get(name).await? else { return Ok(None) };
        if held.record.phase.is_open() {
            self.begin_stop(name).await?;
            return Ok(Some("the task is still terminating".to_owned()));
        }
        match held.record.spec.as_ref().is_some_and(|spec| !spec.applied.is_empty()) {
            true => self.remove_objects(&mut held).await,
            false => Ok(None),
        }
    }

    /// Stops a running task. Needs no lock, because the write is conditional on the version of the record.
    pub(crate) async fn begin_stop(self: &Arc<Self>, name: &TaskId) -> Result<(), ReconcileError> {
        let Some(mut held) = self.store.get(name).await? else { return Ok(()) };
        if matches!(held.record.phase, TaskPhase::Starting | TaskPhase::Running) {
            self.begin_termination(&mut held, GRACE_MS, None).await?;
            self.reconcile(name);
        }
        Ok(())
    }

    async fn remove_objects(self: &Arc<Self>, held: &mut VersionedRecord) -> Result<Option<String>, ReconcileError> {
        let Some(spec) = held.record.spec.clone() else { return Ok(None) };
        let mut remaining = None;
        for applied in spec.applied.iter().rev() {
            if let Some(kind) =
                self.discovery.find(&self.client, &applied.object_ref.api_version, &applied.object_ref.kind).await?
            {
                self.watch(&kind, applied.object_ref.namespace.as_deref());
            }
            match self.delete(&held.record.name, applied).await {
                Ok(DeleteOutcome::Gone) => {}
                Ok(DeleteOutcome::Pending(why)) => remaining = Some(why),
                // Rights may be granted, and policies changed, until the deadline.
                Err(ReconcileError::Api(error @ kube::Error::Api(_))) => {
                    remaining = Some(format!("{}: {}", applied.object_ref, error_message(&error)));
                }
                Err(error) => return Err(error),
            }
        }
        if remaining.is_none() {
            if let Some(spec) = &mut held.record.spec {
                spec.applied.clear();
            }
            if held.record.phase.is_over() {
                held.make_tombstone();
            }
            self.store.save(held).await?;
        }
        Ok(remaining)
    }
}
