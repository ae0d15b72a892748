//! Maps events of a run to conditional writes, and explains why a write was refused.

use crate::patch::{Patch, PatchChange, PatchCondition};
use crate::{Attempt, AttemptRef, Epoch, HeadState, LateMark, RunPhase, Timestamp, UnitProgress};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// An attempt succeeded, or the unit was skipped.
    Succeeded(AttemptRef),
    /// An attempt ended, and another one follows: after a failure, or for further results of an undo.
    Retried {
        ended: AttemptRef,
        /// The next attempt. Its number is higher.
        to: Attempt,
    },
    /// The last attempt of a unit failed.
    Failed(AttemptRef),
    /// A success arrived after its attempt was given up. Its record is written already.
    SucceededLate(LateMark),
    Cancelled {
        epoch: Epoch,
        now: Timestamp,
    },
    /// The run has the epoch of the cancel at `now`, which is after that write.
    Stopped {
        now: Timestamp,
        epoch: Epoch,
    },
    /// A complete unit runs once more: an undo after a late success, or a retry by an operator.
    Reopened {
        /// The attempt and the epoch that were read.
        seen: AttemptRef,
        /// The next attempt. Its number is higher.
        to: Attempt,
    },
    /// The run must be swept at `due` or earlier, which is before its current wake-up.
    WakeupAdvanced {
        due: Timestamp,
    },
    /// The run is due before the requested wake-up. A sweep that has not read this write must not reschedule.
    VersionBumped,
    /// The run has further work from `due` on, even if it is closed.
    RunReopened {
        due: Timestamp,
        version: u64,
        epoch: Epoch,
    },
    /// A closed run must not be reopened by a writer that read it in this epoch.
    EpochFenced {
        epoch: Epoch,
    },
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
    SweepAdvanced {
        due: Timestamp,
    },
    /// The run is complete. A wake-up that was only postponed does not prevent this. If the run stayed
    /// open for a notification, `notified` is the time of its acceptance by the platform.
    Closed {
        version: u64,
        notified: Option<Timestamp>,
    },
    /// The data of the instance may be removed some time after `at`, so that no run of it takes results.
    RemovalAnnounced {
        at: Timestamp,
    },
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
        RunEvent::Succeeded(attempt) => open(attempt, vec![PatchChange::AddDone(attempt.unit)]),
        // The new attempt must prevent a concurrent sweep from postponing the wake-up (VersionGuardsReschedule).
        RunEvent::Retried { ended, to } => open(ended, vec![PatchChange::SetAttempt(ended.unit, to), BumpVersion]),
        RunEvent::Failed(attempt) => open(attempt, vec![PatchChange::AddFailed(attempt.unit)]),
        RunEvent::SucceededLate(mark) => patch(vec![], vec![PatchChange::AddLate(mark)]),
        RunEvent::Cancelled { epoch, now } => {
            let changes =
                vec![PatchChange::SetEpoch(epoch.next()), SetPhase(RunPhase::Cancelling), SetDue(now), BumpVersion];
            patch(vec![EpochIs(epoch)], changes)
        }
        RunEvent::Stopped { now, epoch } => patch(vec![EpochIs(epoch)], vec![PatchChange::SetStopped(now)]),
        RunEvent::Reopened { seen: AttemptRef { unit, number, epoch }, to } => {
            let changes = vec![PatchChange::Reopen(unit), PatchChange::SetAttempt(unit, to)];
            patch(vec![EpochIs(epoch), AttemptIs(unit, number)], changes)
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
fn open(AttemptRef { unit, number, epoch }: AttemptRef, changes: Vec<PatchChange>) -> Patch {
    use PatchCondition::{AttemptIs, EpochIs, NotDone, NotFailed};
    Patch { conditions: vec![EpochIs(epoch), AttemptIs(unit, number), NotDone(unit), NotFailed(unit)], changes }
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
pub fn refusal(AttemptRef { unit, number, epoch }: AttemptRef, head: &HeadState) -> PatchRefusal {
    // A done unit of the same attempt stays done after a cancel, so this is a repetition.
    match head.status(unit) {
        _ if head.attempt(unit) != number => PatchRefusal::Superseded,
        UnitProgress::Done => PatchRefusal::AlreadyDone,
        UnitProgress::Failed => PatchRefusal::AlreadyFailed,
        UnitProgress::Open(_) if head.epoch == epoch => PatchRefusal::StillOpen,
        UnitProgress::Open(_) => PatchRefusal::Superseded,
    }
}

#[cfg(test)]
mod tests;
