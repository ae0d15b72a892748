//! Protects a unit against other attempts and against a second relay on the same namespace.
//!
//! The locks of a relay order only its own tasks. The records prevent two attempts at the same time and unrecorded
//! objects if a second relay is started by mistake.

use std::sync::Arc;

use ebb_protocol::relay::TaskId;

use crate::error::ReconcileError;
use crate::reconciler::Reconciler;
use crate::record::TaskPhase;
use crate::store::VersionedRecord;

/// Another attempt that prevents a task from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptConflict {
    None,
    /// A higher attempt of the unit exists. This one must not start.
    Higher,
    Lower,
}

impl Reconciler {
    /// Looks for other attempts of a task that already has a record, and stops lower ones. Of two concurrent attempts,
    /// at least one sees the other.
    pub(crate) async fn attempt_conflict(self: &Arc<Self>, name: &TaskId) -> Result<AttemptConflict, ReconcileError> {
        let mut conflict = AttemptConflict::None;
        for other in self.store.list(&name.unit).await? {
            if other.name.attempt > name.attempt {
                return Ok(AttemptConflict::Higher);
            }
            if other.name.attempt < name.attempt && other.phase.is_open() {
                self.begin_stop(&other.name).await?;
                conflict = AttemptConflict::Lower;
            }
        }
        Ok(conflict)
    }

    /// Deletes objects that were applied while another relay ended the task, because no record names them.
    pub(crate) async fn remove_unrecorded(&self, seen: &VersionedRecord) -> Result<(), ReconcileError> {
        let name = &seen.record.name;
        let now = self.store.get(name).await?;
        let (phase, spec) = now.map_or((None, None), |held| (Some(held.record.phase), held.record.spec));
        // The relay that continues the start finds the object by its labels.
        if phase == Some(TaskPhase::Starting) {
            return Ok(());
        }
        let known = spec.map(|spec| spec.applied).unwrap_or_default();
        let applied = seen.record.spec.iter().flat_map(|spec| &spec.applied);
        for unknown in applied.filter(|applied| !known.contains(applied)) {
            tracing::warn!(unit = name.unit, attempt = name.attempt, object = %unknown.object_ref, "deleting an object of a task that was ended by another relay");
            self.delete(name, unknown).await?;
        }
        Ok(())
    }
}
