//! A conditional write to one head item.
//!
//! The store converts a patch to one `UpdateItem`, and the model applies it to a table in memory. All values are
//! absolute, except additions to sets and the version. If a write is repeated because its response was lost, its
//! condition is therefore false, or it changes only the version.

use crate::state::{Attempt, Epoch, HeadState, LateMark, RunPhase, Shard};
use crate::time::Timestamp;

/// A condition on the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchCondition {
    /// The item is in this epoch. A missing item is in every epoch, except the root.
    EpochIs(Epoch),
    /// The unit in this slot has this attempt.
    AttemptIs(u32, Attempt),
    NotDone(u32),
    NotFailed(u32),
    DueIs(Timestamp),
    /// The wake-up is later than this.
    DueAfter(Timestamp),
    VersionIs(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchChange {
    AddDone(u32),
    /// Removes the slot from the done and the failed ones.
    Reopen(u32),
    AddFailed(u32),
    AddLate(LateMark),
    /// Records that the undo of this slot begins to read.
    AddSealed(u32),
    SetAttempt(u32, Attempt),
    SetEpoch(Epoch),
    SetPhase(RunPhase),
    /// Sets the time from which every item has the epoch of the cancel.
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

/// A conditional write to one head item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    pub shard: Shard,
    pub conditions: Vec<PatchCondition>,
    pub changes: Vec<PatchChange>,
}

impl PatchCondition {
    /// Returns true if the condition holds. `None` is a missing item.
    pub fn holds(self, shard: Shard, head: Option<&HeadState>) -> bool {
        let Some(head) = head else {
            return match self {
                Self::EpochIs(_) => shard != Shard::ROOT,
                Self::AttemptIs(_, attempt) => attempt == Attempt::FIRST,
                Self::NotDone(_) | Self::NotFailed(_) => true,
                Self::DueIs(_) | Self::DueAfter(_) | Self::VersionIs(_) => false,
            };
        };
        match self {
            Self::EpochIs(epoch) => head.epoch == epoch,
            Self::AttemptIs(slot, attempt) => head.attempt(slot) == attempt,
            Self::NotDone(slot) => !head.done.contains(&slot),
            Self::NotFailed(slot) => !head.failed.contains(&slot),
            Self::DueIs(due) => head.due == Some(due),
            Self::DueAfter(due) => head.due.is_some_and(|at| at > due),
            Self::VersionIs(version) => head.version == version,
        }
    }
}

impl Patch {
    /// Returns the item after the write, or `None` if a condition does not hold. Used by tables in memory.
    pub fn apply(&self, head: Option<&HeadState>, epoch: Epoch) -> Option<HeadState> {
        if !self.conditions.iter().all(|condition| condition.holds(self.shard, head)) {
            return None;
        }
        let mut after = head.cloned().unwrap_or_else(|| HeadState::new(epoch));
        for &change in &self.changes {
            match change {
                PatchChange::AddDone(slot) => {
                    after.done.insert(slot);
                }
                PatchChange::Reopen(slot) => {
                    after.done.remove(&slot);
                    after.failed.remove(&slot);
                }
                PatchChange::AddFailed(slot) => {
                    after.failed.insert(slot);
                }
                PatchChange::AddLate(late) => {
                    after.late.insert(late);
                }
                PatchChange::AddSealed(slot) => {
                    after.sealed.insert(slot);
                }
                PatchChange::SetAttempt(slot, attempt) => {
                    after.attempts.insert(slot, attempt);
                }
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

    /// Conditions on existing items are tested with their events, in `accept`.
    #[test]
    fn conditions_on_a_missing_item() {
        use PatchCondition as C;
        let (first, second, due) = (Attempt::FIRST, Attempt(2), Timestamp(0));
        for (condition, of_root, of_others) in [
            (C::EpochIs(Epoch(1)), false, true),
            (C::EpochIs(Epoch(7)), false, true),
            (C::AttemptIs(0, first), true, true),
            (C::AttemptIs(0, second), false, false),
            (C::NotDone(0), true, true),
            (C::NotFailed(0), true, true),
            (C::DueIs(due), false, false),
            (C::DueAfter(due), false, false),
            (C::VersionIs(0), false, false),
        ] {
            let holds = [Shard::ROOT, Shard(1)].map(|shard| condition.holds(shard, None));
            assert_eq!(holds, [of_root, of_others], "{condition:?}");
        }
    }

    #[test]
    fn all_conditions_must_hold_before_all_changes_are_made() {
        let patch = |conditions: &[PatchCondition]| Patch {
            shard: Shard(3),
            conditions: conditions.to_vec(),
            changes: vec![PatchChange::AddDone(1), PatchChange::BumpVersion, PatchChange::BumpVersion],
        };
        let (holds, not) = (PatchCondition::NotDone(1), PatchCondition::VersionIs(0));
        for conditions in [[holds, not], [not, holds]] {
            assert_eq!(patch(&conditions).apply(None, Epoch(4)), None);
        }
        let after = HeadState { done: [1].into(), version: 2, ..HeadState::new(Epoch(4)) };
        assert_eq!(patch(&[holds]).apply(None, Epoch(4)), Some(after));
    }
}
