//! The stored state of a run.
//!
//! A run has one head item, which one conditional write changes at a time. With all its units and marks it stays below the
//! limit of an item, because a run has at most [`MAX_UNITS`](crate::graph::MAX_UNITS) units.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Timestamp, Unit};

/// The number of an attempt of a unit, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first attempt. Heads store only later ones.
    pub const FIRST: Self = Self(1);

    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The number of cancels of a run plus 1. Messages of an earlier epoch change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u32);

impl Default for Epoch {
    fn default() -> Self {
        Self::FIRST
    }
}

impl Epoch {
    pub const FIRST: Self = Self(1);

    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RunPhase {
    /// Units start when they are ready.
    #[default]
    Running,
    /// Cancelled: no unit starts, and running units are stopped.
    Cancelling,
    /// No unit can run.
    Closed,
}

/// Identifies an attempt and the epoch in which it was dispatched.
///
/// A result from an older epoch belongs to a cancelled run and cannot advance it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRef {
    pub unit: Unit,
    pub number: Attempt,
    pub epoch: Epoch,
}

/// A success whose attempt was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LateMark {
    pub unit: Unit,
    pub attempt: Attempt,
    /// A part of the digest of the result, which distinguishes results of one attempt.
    pub mark: u32,
}

/// The progress of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitProgress {
    Done,
    Failed,
    Open(Attempt),
}

/// The state of the head item of a run.
///
/// A unit that is done stays done until it is reopened, which also sets its next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadState {
    pub epoch: Epoch,
    pub phase: RunPhase,
    /// Later attempts. A missing unit has [`Attempt::FIRST`].
    pub attempts: BTreeMap<Unit, Attempt>,
    /// Units that succeeded or were skipped.
    pub done: BTreeSet<Unit>,
    pub failed: BTreeSet<Unit>,
    /// Successes whose attempts were given up.
    pub late: BTreeSet<LateMark>,
    /// Units that were sealed before the first undo of the run read records (SealBeforeRead). The undo of another unit may
    /// not have begun.
    pub sealed: BTreeSet<Unit>,
    /// The next wake-up. `None` once closed.
    pub due: Option<Timestamp>,
    /// A time at which the run certainly had the epoch of the cancel.
    pub stopped: Option<Timestamp>,
    /// The time from which no run of the instance takes results, because its data may be removed.
    pub removal_announced: Option<Timestamp>,
    /// The platform accepted the notification for which the run stayed open at this time, for display.
    pub notified: Option<Timestamp>,
    /// Increases whenever `due` is set to an earlier time.
    pub version: u64,
}

impl HeadState {
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Returns the present or last attempt of `unit`.
    pub fn attempt(&self, unit: Unit) -> Attempt {
        self.attempts.get(&unit).copied().unwrap_or(Attempt::FIRST)
    }

    pub fn status(&self, unit: Unit) -> UnitProgress {
        if self.done.contains(&unit) {
            UnitProgress::Done
        } else if self.failed.contains(&unit) {
            UnitProgress::Failed
        } else {
            UnitProgress::Open(self.attempt(unit))
        }
    }

    /// Returns the number of late results of `unit`, over all attempts.
    pub fn late_marks(&self, unit: Unit) -> usize {
        self.late.iter().filter(|late| late.unit == unit).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_epochs_and_late_results_are_counted() {
        assert_eq!([1, 7, u32::MAX].map(|n| Attempt(n).next().0), [2, 8, u32::MAX]);
        assert_eq!([1, 7, u32::MAX].map(|n| Epoch(n).next().0), [2, 8, u32::MAX]);
        let late = [LateMark { unit: Unit(4), attempt: Attempt(2), mark: 9 }].into();
        let head = HeadState { late, ..HeadState::new(Epoch(2)) };
        assert_eq!([4, 5].map(|unit| head.late_marks(Unit(unit))), [1, 0]);
    }
}
