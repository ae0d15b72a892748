//! Maps events of a run to conditional writes, and explains why a write was refused.

use crate::graph::Unit;
use crate::patch::{Patch, PatchChange, PatchCondition};
use crate::state::{Attempt, Epoch, HeadState, LateMark, RunPhase, Shard};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// An attempt succeeded, or the unit was skipped.
    Succeeded {
        unit: Unit,
        attempt: Attempt,
        /// The epoch of the attempt.
        epoch: Epoch,
    },
    /// An attempt ended, and another one follows: after a failure, or for further results of an undo.
    Retried {
        unit: Unit,
        attempt: Attempt,
        /// The epoch of the attempt.
        epoch: Epoch,
        /// The next attempt. Higher than `attempt`.
        to: Attempt,
    },
    /// The last attempt of a unit failed.
    Failed {
        unit: Unit,
        attempt: Attempt,
        /// The epoch of the attempt.
        epoch: Epoch,
    },
    /// A success arrived after its attempt was given up. Its record is written already.
    SucceededLate {
        unit: Unit,
        attempt: Attempt,
        /// A part of the digest of the result.
        mark: u32,
    },
    /// An undo of `unit`, or of another unit in its item, is about to read records (SealBeforeRead).
    Sealed { unit: Unit },
    /// The run is cancelled. Applies to every shard, the root first.
    Cancelled { shard: Shard, epoch: Epoch, now: Timestamp },
    /// Every item of the run has the epoch of the cancel.
    Stopped { now: Timestamp, epoch: Epoch },
    /// A complete unit runs once more: an undo after a late success, or a retry by an operator.
    Reopened {
        unit: Unit,
        /// The attempt that was read.
        attempt: Attempt,
        /// The epoch that was read.
        epoch: Epoch,
        /// The next attempt. Higher than `attempt`.
        to: Attempt,
    },
    /// The run must be swept at `due` or earlier, which is before its current wake-up.
    WakeupAdvanced { due: Timestamp },
    /// The run is due before the requested wake-up. A sweep that has not read this write must not reschedule.
    VersionBumped,
    /// The run has further work from `due` on, even if it is closed.
    RunReopened { due: Timestamp, version: u64, epoch: Epoch },
    /// A closed run must not be reopened by a writer that read it in this epoch.
    EpochFenced { epoch: Epoch },
    /// A sweep has acted, and the next one is at `next`.
    Rescheduled {
        /// The wake-up of this sweep.
        seen: Timestamp,
        version: u64,
        next: Timestamp,
    },
    /// A sweep failed. The next one is at `next`, regardless of other writes (FailedSweepIsDue).
    Postponed {
        /// The wake-up of this sweep.
        seen: Timestamp,
        next: Timestamp,
    },
    /// A sweep whose wake-up was postponed by another sweep needs the next one at `due`.
    SweepAdvanced { due: Timestamp },
    /// The run is complete. A wake-up that was only postponed does not prevent this. If the run stayed
    /// open for a notification, `notified` is the time of its acceptance by the platform.
    Closed { version: u64, notified: Option<Timestamp> },
    /// The data of the instance may be removed some time after `at`, so that no run of it takes results.
    RemovalAnnounced { at: Timestamp },
    /// The data of the instance is kept.
    RemovalWithdrawn,
}

/// Returns the write for an event.
///
/// Every write can be repeated: its condition is then false, or it changes only the version.
pub fn accept(event: RunEvent) -> Patch {
    use PatchChange::{BumpVersion, ClearDue, SetDue, SetNotified, SetPhase};
    use PatchCondition::{AttemptIs, DueAfter, DueIs, EpochIs, VersionIs};
    let root = |conditions, changes| Patch { shard: Shard::ROOT, conditions, changes };
    match event {
        RunEvent::Succeeded { unit, attempt, epoch } => open(unit, attempt, epoch, PatchChange::AddDone),
        RunEvent::Retried { unit, attempt, epoch, to } => {
            let mut patch = open(unit, attempt, epoch, |slot| PatchChange::SetAttempt(slot, to));
            // The new attempt must prevent a concurrent sweep from postponing the wake-up (VersionGuardsReschedule).
            patch.changes.extend((patch.shard == Shard::ROOT).then_some(BumpVersion));
            patch
        }
        RunEvent::Failed { unit, attempt, epoch } => open(unit, attempt, epoch, PatchChange::AddFailed),
        RunEvent::SucceededLate { unit, attempt, mark } => {
            of_unit(unit, |slot| (vec![], vec![PatchChange::AddLate(LateMark { slot, attempt, mark })]))
        }
        RunEvent::Sealed { unit } => of_unit(unit, |slot| (vec![], vec![PatchChange::AddSealed(slot)])),
        RunEvent::Cancelled { shard, epoch, now } => {
            let mut changes = vec![PatchChange::SetEpoch(epoch.next())];
            if shard == Shard::ROOT {
                changes.extend([SetPhase(RunPhase::Cancelling), SetDue(now), BumpVersion]);
            }
            Patch { shard, conditions: vec![EpochIs(epoch)], changes }
        }
        RunEvent::Stopped { now, epoch } => root(vec![EpochIs(epoch)], vec![PatchChange::SetStopped(now)]),
        RunEvent::Reopened { unit, attempt, epoch, to } => {
            let changes = |slot| vec![PatchChange::Reopen(slot), PatchChange::SetAttempt(slot, to)];
            of_unit(unit, |slot| (vec![EpochIs(epoch), AttemptIs(slot, attempt)], changes(slot)))
        }
        RunEvent::WakeupAdvanced { due } => root(vec![DueAfter(due)], vec![SetDue(due), BumpVersion]),
        RunEvent::VersionBumped => root(vec![], vec![BumpVersion]),
        RunEvent::EpochFenced { epoch } => {
            root(vec![EpochIs(epoch)], vec![PatchChange::SetEpoch(epoch.next()), BumpVersion])
        }
        RunEvent::RunReopened { due, version, epoch } => {
            let changes = vec![SetPhase(RunPhase::Running), SetNotified(None), SetDue(due), BumpVersion];
            root(vec![VersionIs(version), EpochIs(epoch)], changes)
        }
        RunEvent::Rescheduled { seen, version, next } => {
            root(vec![DueIs(seen), VersionIs(version)], vec![SetDue(next)])
        }
        RunEvent::Postponed { seen, next } => root(vec![DueIs(seen)], vec![SetDue(next)]),
        RunEvent::SweepAdvanced { due } => root(vec![DueAfter(due)], vec![SetDue(due)]),
        RunEvent::Closed { version, notified } => {
            let mut changes = vec![SetPhase(RunPhase::Closed), ClearDue];
            changes.extend(notified.map(|at| SetNotified(Some(at))));
            root(vec![VersionIs(version)], changes)
        }
        RunEvent::RemovalAnnounced { at } => root(vec![], vec![PatchChange::AnnounceRemoval(at)]),
        RunEvent::RemovalWithdrawn => root(vec![], vec![PatchChange::WithdrawRemoval]),
    }
}

/// Returns the write for an event together with an earlier wake-up. Its condition is false if the run is due before
/// `due`. Returns `None` if the unit is not in the root item: then write [`RunEvent::WakeupAdvanced`] first.
pub fn accept_with_wakeup(event: RunEvent, due: Timestamp) -> Option<Patch> {
    let mut patch = accept(event);
    if patch.shard != Shard::ROOT {
        return None;
    }
    patch.conditions.push(PatchCondition::DueAfter(due));
    patch.changes.push(PatchChange::SetDue(due));
    if !patch.changes.contains(&PatchChange::BumpVersion) {
        patch.changes.push(PatchChange::BumpVersion);
    }
    Some(patch)
}

fn of_unit(unit: Unit, write: impl Fn(u32) -> (Vec<PatchCondition>, Vec<PatchChange>)) -> Patch {
    let (shard, slot) = Shard::of(unit);
    let (conditions, changes) = write(slot);
    Patch { shard, conditions, changes }
}

/// Returns a write under the condition `OPEN` of the protocol: this epoch, this attempt, neither done nor failed.
fn open(unit: Unit, attempt: Attempt, epoch: Epoch, change: impl Fn(u32) -> PatchChange) -> Patch {
    use PatchCondition::{AttemptIs, EpochIs, NotDone, NotFailed};
    of_unit(unit, |slot| {
        (vec![EpochIs(epoch), AttemptIs(slot, attempt), NotDone(slot), NotFailed(slot)], vec![change(slot)])
    })
}

/// The reason why a result was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchRefusal {
    /// The same attempt is done. Its writer may have crashed before it dispatched the successors.
    AlreadyDone,
    /// The same attempt has failed.
    AlreadyFailed,
    /// Another attempt runs, or the run is cancelled or missing. A success is a late result.
    Superseded,
    /// All conditions of the result hold. Only the condition on the wake-up was false.
    StillOpen,
}

/// Explains the refusal of a result by the image of the item.
pub fn refusal(unit: Unit, attempt: Attempt, epoch: Epoch, image: Option<&HeadState>) -> PatchRefusal {
    let (shard, slot) = Shard::of(unit);
    let Some(head) = image else {
        return if shard == Shard::ROOT { PatchRefusal::Superseded } else { PatchRefusal::StillOpen };
    };
    // A done unit of the same attempt stays done after a cancel, so this is a repetition.
    match head.attempt(slot) == attempt {
        true if head.done.contains(&slot) => PatchRefusal::AlreadyDone,
        true if head.failed.contains(&slot) => PatchRefusal::AlreadyFailed,
        true if head.epoch == epoch => PatchRefusal::StillOpen,
        _ => PatchRefusal::Superseded,
    }
}

#[cfg(test)]
mod tests;
