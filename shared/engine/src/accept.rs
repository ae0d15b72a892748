//! Which conditional write an event asks for, and what a refusal of it means.

use crate::graph::Unit;
use crate::patch::{Change, Condition, Patch};
use crate::state::{Attempt, Epoch, Head, Late, RunPhase, Shard};
use crate::time::Timestamp;

/// Something that happened to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
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
    Late {
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
    Hastened { due: Timestamp },
    /// The run is due earlier than somebody wanted: whoever looks then must not put it off without another look.
    Noticed,
    /// The run, closed or not, has something to do again from `due` on.
    Reawoken { due: Timestamp, version: u64, epoch: Epoch },
    /// A run that is closed already is not to be opened again by whoever has seen it in this epoch.
    Outdated { epoch: Epoch },
    /// `sweep` has acted and wants to look again at `next`.
    Rearmed {
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
    Advanced { due: Timestamp },
    /// Nothing moves any more. A wake-up that was only put off since is no reason to stay open.
    Closed { version: u64 },
}

/// The write that `event` asks for.
///
/// Every event is safe to accept twice: the second write finds its condition false, or changes nothing but the
/// version.
pub fn accept(event: Event) -> Patch {
    match event {
        Event::Succeeded { unit, attempt, epoch } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: open(slot, attempt, epoch), changes: vec![Change::AddDone(slot)] }
        }
        Event::Retried { unit, attempt, epoch, to } => {
            let (shard, slot) = Shard::of(unit);
            let mut changes = vec![Change::SetAttempt(slot, to)];
            // Whoever is about to put the wake-up off has not seen this try.
            if shard == Shard::ROOT {
                changes.push(Change::BumpVersion);
            }
            Patch { shard, conditions: open(slot, attempt, epoch), changes }
        }
        Event::Failed { unit, attempt, epoch } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: open(slot, attempt, epoch), changes: vec![Change::AddFailed(slot)] }
        }
        Event::Late { unit, attempt, mark } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: vec![], changes: vec![Change::AddLate(Late { slot, attempt, mark })] }
        }
        Event::Sealed { unit } => {
            let (shard, slot) = Shard::of(unit);
            Patch { shard, conditions: vec![], changes: vec![Change::AddSealed(slot)] }
        }
        Event::Cancelled { shard, epoch, now } => {
            let mut changes = vec![Change::SetEpoch(epoch.next())];
            if shard == Shard::ROOT {
                changes.extend([
                    Change::SetPhase(RunPhase::Stopping),
                    Change::SetDue(now),
                    Change::BumpVersion,
                ]);
            }
            Patch { shard, conditions: vec![Condition::EpochIs(epoch)], changes }
        }
        Event::Stopped { now, epoch } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::EpochIs(epoch)],
            changes: vec![Change::SetStopped(now)],
        },
        Event::Reopened { unit, attempt, epoch, to } => {
            let (shard, slot) = Shard::of(unit);
            Patch {
                shard,
                conditions: vec![Condition::EpochIs(epoch), Condition::AttemptIs(slot, attempt)],
                changes: vec![Change::Reopen(slot), Change::SetAttempt(slot, to)],
            }
        }
        Event::Hastened { due } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::DueAfter(due)],
            changes: vec![Change::SetDue(due), Change::BumpVersion],
        },
        Event::Noticed => {
            Patch { shard: Shard::ROOT, conditions: vec![], changes: vec![Change::BumpVersion] }
        }
        Event::Outdated { epoch } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::EpochIs(epoch)],
            changes: vec![Change::SetEpoch(epoch.next()), Change::BumpVersion],
        },
        Event::Reawoken { due, version, epoch } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::VersionIs(version), Condition::EpochIs(epoch)],
            changes: vec![Change::SetPhase(RunPhase::Running), Change::SetDue(due), Change::BumpVersion],
        },
        Event::Rearmed { seen, version, next } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::DueIs(seen), Condition::VersionIs(version)],
            changes: vec![Change::SetDue(next)],
        },
        Event::Postponed { seen, next } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::DueIs(seen)],
            changes: vec![Change::SetDue(next)],
        },
        Event::Advanced { due } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::DueAfter(due)],
            changes: vec![Change::SetDue(due)],
        },
        Event::Closed { version } => Patch {
            shard: Shard::ROOT,
            conditions: vec![Condition::VersionIs(version)],
            changes: vec![Change::SetPhase(RunPhase::Closed), Change::ClearDue],
        },
    }
}

/// `event`'s write together with an earlier wake-up at `due`, as one write; it is refused where the run is due sooner.
/// `None` where another item than the root holds the unit: the wake-up has to be set first, by [`Event::Hastened`].
pub fn accept_waking(event: Event, due: Timestamp) -> Option<Patch> {
    let mut patch = accept(event);
    if patch.shard != Shard::ROOT {
        return None;
    }
    patch.conditions.push(Condition::DueAfter(due));
    patch.changes.push(Change::SetDue(due));
    if !patch.changes.contains(&Change::BumpVersion) {
        patch.changes.push(Change::BumpVersion);
    }
    Some(patch)
}

/// `OPEN` of the protocol: this epoch, this try, neither done nor failed.
fn open(slot: u32, attempt: Attempt, epoch: Epoch) -> Vec<Condition> {
    vec![
        Condition::EpochIs(epoch),
        Condition::AttemptIs(slot, attempt),
        Condition::NotDone(slot),
        Condition::NotFailed(slot),
    ]
}

/// What it means that a result was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This very try is done already: whoever wrote it may have died before sending the successors.
    AlreadyDone,
    /// This very try has failed for good already.
    AlreadyFailed,
    /// Another try is under way, or the run was cancelled, or it is not there any more. A success is late.
    Late,
    /// Everything that the result depends on holds; only the wake-up condition can have been false.
    StillOpen,
}

/// What the image of the item says to a refused result of `unit` at `attempt` in `epoch`.
pub fn refusal(unit: Unit, attempt: Attempt, epoch: Epoch, image: Option<&Head>) -> Refusal {
    let (shard, slot) = Shard::of(unit);
    let Some(head) = image else {
        return if shard == Shard::ROOT { Refusal::Late } else { Refusal::StillOpen };
    };
    if head.attempt(slot) != attempt || head.epoch != epoch {
        // A done unit of this try stays done after a cancel: a repeated callback is a repetition, not news.
        let same = head.attempt(slot) == attempt;
        return match () {
            () if same && head.done.contains(&slot) => Refusal::AlreadyDone,
            () if same && head.failed.contains(&slot) => Refusal::AlreadyFailed,
            () => Refusal::Late,
        };
    }
    match () {
        () if head.done.contains(&slot) => Refusal::AlreadyDone,
        () if head.failed.contains(&slot) => Refusal::AlreadyFailed,
        () => Refusal::StillOpen,
    }
}

#[cfg(test)]
mod tests;
