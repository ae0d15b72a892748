//! A conditional write to the head item of a run.
//!
//! The store converts a patch to one `UpdateItem`, and the model applies it to a table in memory. All values are
//! absolute, except additions to sets and the version. If a write is repeated because its response was lost, its
//! condition is therefore false, or it changes only the version.

use crate::graph::Unit;
use crate::{Attempt, Epoch, HeadState, LateMark, RunPhase, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchCondition {
    EpochIs(Epoch),
    AttemptIs(Unit, Attempt),
    NotDone(Unit),
    NotFailed(Unit),
    DueIs(Timestamp),
    /// The wake-up is later than this.
    DueAfter(Timestamp),
    VersionIs(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchChange {
    AddDone(Unit),
    /// Removes the unit from the done and the failed ones.
    Reopen(Unit),
    AddFailed(Unit),
    AddLate(LateMark),
    /// Records that the undo of this unit begins to read.
    AddSealed(Unit),
    SetAttempt(Unit, Attempt),
    SetEpoch(Epoch),
    SetPhase(RunPhase),
    /// Sets a time at which the run certainly has the epoch of the cancel.
    SetStopped(Timestamp),
    SetDue(Timestamp),
    /// Removes the wake-up and the index entry.
    ClearDue,
    AnnounceRemoval(Timestamp),
    WithdrawRemoval,
    /// Sets or removes the time at which the platform accepted the notification.
    SetNotified(Option<Timestamp>),
    BumpVersion,
}

/// A conditional write to the head item of a run. It does not create the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    pub conditions: Vec<PatchCondition>,
    pub changes: Vec<PatchChange>,
}

impl PatchCondition {
    pub fn holds(self, head: &HeadState) -> bool {
        match self {
            Self::EpochIs(epoch) => head.epoch == epoch,
            Self::AttemptIs(unit, attempt) => head.attempt(unit) == attempt,
            Self::NotDone(unit) => !head.done.contains(&unit),
            Self::NotFailed(unit) => !head.failed.contains(&unit),
            Self::DueIs(due) => head.due == Some(due),
            Self::DueAfter(due) => head.due.is_some_and(|at| at > due),
            Self::VersionIs(version) => head.version == version,
        }
    }
}

impl Patch {
    /// Returns the head after the write, or `None` if a condition does not hold. Used by tables in memory.
    pub fn apply(&self, head: &HeadState) -> Option<HeadState> {
        if !self.conditions.iter().all(|condition| condition.holds(head)) {
            return None;
        }
        let mut after = head.clone();
        for &change in &self.changes {
            match change {
                PatchChange::AddDone(unit) => after.done.extend([unit]),
                PatchChange::Reopen(unit) => {
                    after.done.remove(&unit);
                    after.failed.remove(&unit);
                }
                PatchChange::AddFailed(unit) => after.failed.extend([unit]),
                PatchChange::AddLate(late) => after.late.extend([late]),
                PatchChange::AddSealed(unit) => after.sealed.extend([unit]),
                PatchChange::SetAttempt(unit, attempt) => after.attempts.extend([(unit, attempt)]),
                PatchChange::SetEpoch(epoch) => after.epoch = epoch,
                PatchChange::SetPhase(phase) => after.phase = phase,
                PatchChange::SetStopped(at) => after.stopped = Some(at),
                PatchChange::SetDue(due) => after.due = Some(due),
                PatchChange::ClearDue => after.due = None,
                PatchChange::AnnounceRemoval(at) => after.removal_announced = Some(at),
                PatchChange::WithdrawRemoval => after.removal_announced = None,
                PatchChange::SetNotified(at) => after.notified = at,
                PatchChange::BumpVersion => after.version += 1,
            }
        }
        Some(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each condition is tested with its events, in `accept`.
    #[test]
    fn all_conditions_must_hold_before_all_changes_are_made() {
        let patch = |conditions: &[PatchCondition]| Patch {
            conditions: conditions.to_vec(),
            changes: vec![PatchChange::AddDone(Unit(1)), PatchChange::BumpVersion, PatchChange::BumpVersion],
        };
        let head = HeadState::new(Epoch(4));
        let (holds, not) = (PatchCondition::NotDone(Unit(1)), PatchCondition::VersionIs(1));
        for conditions in [[holds, not], [not, holds]] {
            assert_eq!(patch(&conditions).apply(&head), None);
        }
        let after = HeadState { done: [Unit(1)].into(), version: 2, ..head.clone() };
        assert_eq!(patch(&[holds]).apply(&head), Some(after));
    }
}
