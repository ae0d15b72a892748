//! Other attempts of a unit, and another relay. The locks of one relay keep its own tasks apart; what they do not see is held by
//! the records: somebody who starts by mistake a second relay on one namespace gets neither two attempts at once nor objects
//! that nobody knows.

use std::sync::Arc;

use ebb_protocol::relay::TaskId;

use crate::error::ReconcileError;
use crate::record::TaskPhase;
use crate::relay::Reconciler;
use crate::store::VersionedRecord;

/// What stands against a task that would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptConflict {
    None,
    /// A higher attempt of its unit: it is too late for this one.
    Higher,
    Lower,
}

impl Reconciler {
    /// What stands against a task whose record is there: of two attempts that were asked for at the same time one at least
    /// sees the other. Ends lower ones.
    ///
    /// # Errors
    /// When the API server does not answer, or somebody else ends one: look again.
    pub(crate) async fn attempt_conflict(self: &Arc<Self>, name: &TaskId) -> Result<AttemptConflict, ReconcileError> {
        let mut rival = AttemptConflict::None;
        for other in self.store.list(&name.unit).await? {
            if other.name.attempt > name.attempt {
                return Ok(AttemptConflict::Higher);
            }
            if other.name.attempt < name.attempt && other.phase.is_open() {
                self.begin_stop(&other.name).await?;
                rival = AttemptConflict::Lower;
            }
        }
        Ok(rival)
    }

    /// Removes what was applied while somebody else ended the task: what its record does not have nobody would remove.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn remove_unrecorded(&self, seen: &VersionedRecord) -> Result<(), ReconcileError> {
        let name = &seen.record.name;
        let now = self.store.get(name).await?;
        let (phase, spec) = now.map_or((None, None), |held| (Some(held.record.phase), held.record.spec));
        // Whoever goes on finds it by its labels.
        if phase == Some(TaskPhase::Starting) {
            return Ok(());
        }
        let known = spec.map(|spec| spec.applied).unwrap_or_default();
        let applied = seen.record.spec.iter().flat_map(|spec| &spec.applied);
        for unknown in applied.filter(|applied| !known.contains(applied)) {
            tracing::warn!(unit = name.unit, attempt = name.attempt, object = %unknown.object_ref, "ended meanwhile");
            self.delete(name, unknown).await?;
        }
        Ok(())
    }
}
