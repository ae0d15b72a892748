//! Which conditional write an event asks for, and what a refusal of it means.

use crate::graph::Unit;
use crate::patch::{Patch, PatchChange, PatchCondition};
use crate::state::{Attempt, Epoch, HeadState, LateMark, RunPhase, Shard};
use crate::time::Timestamp;

/// Something that happened to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// A try of a unit succeeded, or the unit was skipped.
    Succeeded {
        unit: Unit,
        attempt: Attempt,
        /// The epoch in which the try was started.
        epoch: Epoch,
    },
    /// A try is over and another one is to start: it failed, or there is more to do.
    Retried {
        unit: Unit,
        attempt: Attempt,
        /// The epoch in which the try was started.
        epoch: Epoch,
        /// The try that is to start; higher than `attempt`.
        to: Attempt,
    },
    /// A try failed and there is no other.
    Failed {
        unit: Unit,
        attempt: Attempt,
        /// The epoch in which the try was started.
        epoch: Epoch,
    },
    /// A success arrived that no longer counts as progress. Its record is written already.
    SucceededLate {
        unit: Unit,
        attempt: Attempt,
        /// A part of the result's digest.
        mark: u32,
    },
    /// The undo of `unit` is about to read what the unit left.
    Sealed { unit: Unit },
    /// The run is to stop. Goes to every shard, the root first.
    Cancelled { shard: Shard, epoch: Epoch, now: Timestamp },
    /// Every item of the run has entered the epoch that stops it.
    Stopped { now: Timestamp, epoch: Epoch },
    /// A unit that is over has to run once more: an undo after a late success, or an operator's retry.
    Reopened {
        unit: Unit,
        /// The try that it was seen at.
        attempt: Attempt,
        /// The epoch of the run that it belongs to.
        epoch: Epoch,
        /// The try that is to start; higher than `attempt`.
        to: Attempt,
    },
    /// `sweep` has to look at `due` at the latest, which is earlier than what it knows of.
    WakeupAdvanced { due: Timestamp },
    /// The run is due earlier than somebody wanted: whoever looks then must not put it off without another look.
    VersionBumped,
    /// The run, closed or not, has something to do again from `due` on.
    RunReopened { due: Timestamp, version: u64, epoch: Epoch },
    /// A run that is closed already is not to be opened again by whoever has seen it in this epoch.
    EpochFenced { epoch: Epoch },
    /// `sweep` has acted and wants to look again at `next`.
    Rescheduled {
        /// The wake-up time that made it look.
        seen: Timestamp,
        version: u64,
        next: Timestamp,
    },
    /// A look came to no end: another one follows at `next`, whatever has happened since.
    Postponed {
        /// The wake-up time that is over.
        seen: Timestamp,
        next: Timestamp,
    },
    /// A look whose time was put off by another one wants the next one at `due`.
    SweepAdvanced { due: Timestamp },
    /// Nothing moves any more. A wake-up that was only put off since is no reason to stay open.
    Closed { version: u64 },
}

/// The write that `event` asks for.
///
/// Every event is safe to accept twice: the second write finds its condition false, or changes nothing but the
/// version.
pub fn accept(event: RunEvent) -> Patch {
    match event {
        RunEvent::Succeeded { unit, attempt, epoch } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: open(slot, attempt, epoch), changes: vec![PatchChange::AddDone(slot)] }
        }
        RunEvent::Retried { unit, attempt, epoch, to } => {
            let (shard, slot) = Shard::of(unit);
            let mut changes = vec![PatchChange::SetAttempt(slot, to)];
            // Whoever is about to put the wake-up off has not seen this try.
            if shard == Shard::ROOT {
                changes.push(PatchChange::BumpVersion);
            }
            Patch { shard, conditions: open(slot, attempt, epoch), changes }
        }
        RunEvent::Failed { unit, attempt, epoch } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: open(slot, attempt, epoch), changes: vec![PatchChange::AddFailed(slot)] }
        }
        RunEvent::SucceededLate { unit, attempt, mark } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: vec![], changes: vec![PatchChange::AddLate(LateMark { slot, attempt, mark })] }
        }
        RunEvent::Sealed { unit } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: vec![], changes: vec![PatchChange::AddSealed(slot)] }
        }
        RunEvent::Cancelled { shard, epoch, now } => {
            let mut changes = vec![PatchChange::SetEpoch(epoch.next())];
            if shard == Shard::ROOT {
                changes.extend([
                    PatchChange::SetPhase(RunPhase::Cancelling),
                    PatchChange::SetDue(now),
                    PatchChange::BumpVersion,
                ]);
            }
            Patch { shard, conditions: vec![PatchCondition::EpochIs(epoch)], changes }
        }
        RunEvent::Stopped { now, epoch } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::EpochIs(epoch)],
            changes: vec![PatchChange::SetStopped(now)],
        },
        RunEvent::Reopened { unit, attempt, epoch, to } => {
            let (shard, slot) = Shard::of(unit);
            Patch {
                shard,
                conditions: vec![PatchCondition::EpochIs(epoch), PatchCondition::AttemptIs(slot, attempt)],
                changes: vec![PatchChange::Reopen(slot), PatchChange::SetAttempt(slot, to)],
            }
        }
        RunEvent::WakeupAdvanced { due } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::DueAfter(due)],
            changes: vec![PatchChange::SetDue(due), PatchChange::BumpVersion],
        },
        RunEvent::VersionBumped => {
            Patch { shard: Shard::ROOT, conditions: vec![], changes: vec![PatchChange::BumpVersion] }
        }
        RunEvent::EpochFenced { epoch } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::EpochIs(epoch)],
            changes: vec![PatchChange::SetEpoch(epoch.next()), PatchChange::BumpVersion],
        },
        RunEvent::RunReopened { due, version, epoch } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::VersionIs(version), PatchCondition::EpochIs(epoch)],
            changes: vec![PatchChange::SetPhase(RunPhase::Running), PatchChange::SetDue(due), PatchChange::BumpVersion],
        },
        RunEvent::Rescheduled { seen, version, next } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::DueIs(seen), PatchCondition::VersionIs(version)],
            changes: vec![PatchChange::SetDue(next)],
        },
        RunEvent::Postponed { seen, next } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::DueIs(seen)],
            changes: vec![PatchChange::SetDue(next)],
        },
        RunEvent::SweepAdvanced { due } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::DueAfter(due)],
            changes: vec![PatchChange::SetDue(due)],
        },
        RunEvent::Closed { version } => Patch {
            shard: Shard::ROOT,
            conditions: vec![PatchCondition::VersionIs(version)],
            changes: vec![PatchChange::SetPhase(RunPhase::Closed), PatchChange::ClearDue],
        },
    }
}

/// `event`'s write together with an earlier wake-up at `due`, as one write; it is refused where the run is due sooner.
/// `None` where another item than the root holds the unit: the wake-up has to be set first, by [`RunEvent::WakeupAdvanced`].
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

/// `OPEN` of the protocol: this epoch, this try, neither done nor failed.
fn open(slot: u32, attempt: Attempt, epoch: Epoch) -> Vec<PatchCondition> {
    vec![
        PatchCondition::EpochIs(epoch),
        PatchCondition::AttemptIs(slot, attempt),
        PatchCondition::NotDone(slot),
        PatchCondition::NotFailed(slot),
    ]
}

/// What it means that a result was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchRefusal {
    /// This very try is done already: whoever wrote it may have died before sending the successors.
    AlreadyDone,
    /// This very try has failed for good already.
    AlreadyFailed,
    /// Another try is under way, or the run was cancelled, or it is not there any more. A success is late.
    Superseded,
    /// Everything that the result depends on holds; only the wake-up condition can have been false.
    StillOpen,
}

/// What the image of the item says to a refused result of `unit` at `attempt` in `epoch`.
pub fn refusal(unit: Unit, attempt: Attempt, epoch: Epoch, image: Option<&HeadState>) -> PatchRefusal {
    let (shard, slot) = Shard::of(unit);
    let Some(head) = image else {
        return if shard == Shard::ROOT { PatchRefusal::Superseded } else { PatchRefusal::StillOpen };
    };
    if head.attempt(slot) != attempt || head.epoch != epoch {
        // A done unit of this try stays done after a cancel: a repeated callback is a repetition, not news.
        let same = head.attempt(slot) == attempt;
        return match () {
            () if same && head.done.contains(&slot) => PatchRefusal::AlreadyDone,
            () if same && head.failed.contains(&slot) => PatchRefusal::AlreadyFailed,
            () => PatchRefusal::Superseded,
        };
    }
    match () {
        () if head.done.contains(&slot) => PatchRefusal::AlreadyDone,
        () if head.failed.contains(&slot) => PatchRefusal::AlreadyFailed,
        () => PatchRefusal::StillOpen,
    }
}

#[cfg(test)]
mod tests;
