//! Maps events of a run to conditional writes, and explains why a write was refused.

use crate::graph::Unit;
use crate::patch::{Patch, PatchChange, PatchCondition};
use crate::state::{Attempt, Epoch, HeadState, LateMark, RunPhase};
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
    /// An undo of `unit`, or of another unit of the run, is about to read records (SealBeforeRead).
    Sealed { unit: Unit },
    /// The run is cancelled.
    Cancelled { epoch: Epoch, now: Timestamp },
    /// The run has the epoch of the cancel at `now`, which is after that write.
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
    let patch = |conditions, changes| Patch { conditions, changes };
    match event {
        RunEvent::Succeeded { unit, attempt, epoch } => open(unit, attempt, epoch, vec![PatchChange::AddDone(unit)]),
        // The new attempt must prevent a concurrent sweep from postponing the wake-up (VersionGuardsReschedule).
        RunEvent::Retried { unit, attempt, epoch, to } => {
            open(unit, attempt, epoch, vec![PatchChange::SetAttempt(unit, to), BumpVersion])
        }
        RunEvent::Failed { unit, attempt, epoch } => open(unit, attempt, epoch, vec![PatchChange::AddFailed(unit)]),
        RunEvent::SucceededLate { unit, attempt, mark } => {
            patch(vec![], vec![PatchChange::AddLate(LateMark { unit, attempt, mark })])
        }
        RunEvent::Sealed { unit } => patch(vec![], vec![PatchChange::AddSealed(unit)]),
        RunEvent::Cancelled { epoch, now } => {
            let changes =
                vec![PatchChange::SetEpoch(epoch.next()), SetPhase(RunPhase::Cancelling), SetDue(now), BumpVersion];
            patch(vec![EpochIs(epoch)], changes)
        }
        RunEvent::Stopped { now, epoch } => patch(vec![EpochIs(epoch)], vec![PatchChange::SetStopped(now)]),
        RunEvent::Reopened { unit, attempt, epoch, to } => {
            let changes = vec![PatchChange::Reopen(unit), PatchChange::SetAttempt(unit, to)];
            patch(vec![EpochIs(epoch), AttemptIs(unit, attempt)], changes)
        }
        RunEvent::WakeupAdvanced { due } => patch(vec![DueAfter(due)], vec![SetDue(due), BumpVersion]),
        RunEvent::VersionBumped => patch(vec![], vec![BumpVersion]),
        RunEvent::EpochFenced { epoch } => {
            patch(vec![EpochIs(epoch)], vec![PatchChange::SetEpoch(epoch.next()), BumpVersion])
        }
        RunEvent::RunReopened { due, version, epoch } => {
            let changes = vec![SetPhase(RunPhase::Running), SetNotified(None), SetDue(due), BumpVersion];
            patch(vec![VersionIs(version), EpochIs(epoch)], changes)
        }
        RunEvent::Rescheduled { seen, version, next } => {
            patch(vec![DueIs(seen), VersionIs(version)], vec![SetDue(next)])
        }
        RunEvent::Postponed { seen, next } => patch(vec![DueIs(seen)], vec![SetDue(next)]),
        RunEvent::SweepAdvanced { due } => patch(vec![DueAfter(due)], vec![SetDue(due)]),
        RunEvent::Closed { version, notified } => {
            let mut changes = vec![SetPhase(RunPhase::Closed), ClearDue];
            changes.extend(notified.map(|at| SetNotified(Some(at))));
            patch(vec![VersionIs(version)], changes)
        }
        RunEvent::RemovalAnnounced { at } => patch(vec![], vec![PatchChange::AnnounceRemoval(at)]),
        RunEvent::RemovalWithdrawn => patch(vec![], vec![PatchChange::WithdrawRemoval]),
    }
}

/// Returns the write for an event together with an earlier wake-up. Its condition is false if the run is due before
/// `due`.
pub fn accept_with_wakeup(event: RunEvent, due: Timestamp) -> Patch {
    let mut patch = accept(event);
    patch.conditions.push(PatchCondition::DueAfter(due));
    patch.changes.push(PatchChange::SetDue(due));
    if !patch.changes.contains(&PatchChange::BumpVersion) {
        patch.changes.push(PatchChange::BumpVersion);
    }
    patch
}

/// Returns a write under the condition `OPEN` of the protocol: this epoch, this attempt, neither done nor failed.
fn open(unit: Unit, attempt: Attempt, epoch: Epoch, changes: Vec<PatchChange>) -> Patch {
    use PatchCondition::{AttemptIs, EpochIs, NotDone, NotFailed};
    Patch { conditions: vec![EpochIs(epoch), AttemptIs(unit, attempt), NotDone(unit), NotFailed(unit)], changes }
}

/// The reason why a result was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchRefusal {
    /// The same attempt is done. Its writer may have crashed before it dispatched the successors.
    AlreadyDone,
    /// The same attempt has failed.
    AlreadyFailed,
    /// Another attempt runs, or the run is cancelled. A success is a late result.
    Superseded,
    /// All conditions of the result hold. Only the condition on the wake-up was false.
    StillOpen,
}

/// Explains the refusal of a result by the image of the item.
pub fn refusal(unit: Unit, attempt: Attempt, epoch: Epoch, head: &HeadState) -> PatchRefusal {
    // A done unit of the same attempt stays done after a cancel, so this is a repetition.
    match head.attempt(unit) == attempt {
        true if head.done.contains(&unit) => PatchRefusal::AlreadyDone,
        true if head.failed.contains(&unit) => PatchRefusal::AlreadyFailed,
        true if head.epoch == epoch => PatchRefusal::StillOpen,
        _ => PatchRefusal::Superseded,
    }
}

#[cfg(test)]
mod tests;
