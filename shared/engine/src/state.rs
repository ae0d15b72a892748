//! The stored state of a run.
//!
//! A run has one or more head items. A head item holds at most [`SHARD`] units, which keeps it below 1 KiB and its
//! update at one write unit. Larger runs are split by ranges of units, with slots relative to the item. Shard 0 is the
//! root. Only the root has a phase, a wake-up and facts.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Graph, Unit};
use crate::time::Timestamp;

pub const SHARD: u32 = 256;

#[cfg(feature = "units-per-item")]
thread_local! {
    static UNITS_PER_ITEM: std::cell::Cell<u32> = const { std::cell::Cell::new(SHARD) };
}

/// Sets the units per head item on this thread, so that small runs of the model have several items.
#[cfg(feature = "units-per-item")]
pub fn set_units_per_item(units: u32) {
    UNITS_PER_ITEM.set(units.max(1));
}

#[cfg(feature = "units-per-item")]
fn units_per_item() -> u32 {
    UNITS_PER_ITEM.get()
}

#[cfg(not(feature = "units-per-item"))]
const fn units_per_item() -> u32 {
    SHARD
}

/// The number of an attempt of a unit, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first attempt. Heads store only later ones.
    pub const FIRST: Self = Self(1);

    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The number of cancels of a run plus 1. Messages of an earlier epoch change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    pub const FIRST: Self = Self(1);

    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunPhase {
    /// Units start when they are ready.
    Running,
    /// Cancelled: no unit starts, and running units are stopped.
    Cancelling,
    /// No unit can run.
    Closed,
}

/// A success whose attempt was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LateMark {
    pub slot: u32,
    pub attempt: Attempt,
    /// A part of the digest of the result, which distinguishes results of one attempt.
    pub mark: u32,
}

/// The state of one head item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadState {
    pub epoch: Epoch,
    /// The phase of the run. Only in the root.
    pub phase: RunPhase,
    /// Attempts by slot. A missing slot has [`Attempt::FIRST`].
    pub attempts: BTreeMap<u32, Attempt>,
    /// Slots that succeeded or were skipped.
    pub done: BTreeSet<u32>,
    /// Slots that failed.
    pub failed: BTreeSet<u32>,
    /// Successes whose attempts were given up.
    pub late: BTreeSet<LateMark>,
    /// Slots that were sealed before the first undo of the item read records (SealBeforeRead). The undo of another slot may
    /// not have begun.
    pub sealed: BTreeSet<u32>,
    /// The next wake-up. Only in the root; `None` once closed.
    pub due: Option<Timestamp>,
    /// The time from which every item has the epoch of the cancel. Only in the root.
    pub stopped: Option<Timestamp>,
    /// The time from which no run of the instance takes results, because its data may be removed. Only in the root.
    pub removal_announced: Option<Timestamp>,
    /// The platform accepted the notification for which the run stayed open at this time. Only in the root, for display.
    pub notified: Option<Timestamp>,
    /// Increases whenever `due` is set to an earlier time.
    pub version: u64,
}

impl HeadState {
    /// Returns the head of a new run, or of a shard without a write.
    pub fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            phase: RunPhase::Running,
            attempts: BTreeMap::new(),
            done: BTreeSet::new(),
            failed: BTreeSet::new(),
            late: BTreeSet::new(),
            sealed: BTreeSet::new(),
            due: None,
            stopped: None,
            removal_announced: None,
            notified: None,
            version: 0,
        }
    }

    pub fn attempt(&self, slot: u32) -> Attempt {
        self.attempts.get(&slot).copied().unwrap_or(Attempt::FIRST)
    }
}

/// A head item of a run. 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u32);

impl Shard {
    /// The item with phase, wake-up and facts.
    pub const ROOT: Self = Self(0);

    /// Returns the item of a unit and its slot there.
    pub fn of(unit: Unit) -> (Self, u32) {
        (Self(unit.0 / units_per_item()), unit.0 % units_per_item())
    }

    pub fn unit(self, slot: u32) -> Unit {
        Unit(self.0.saturating_mul(units_per_item()).saturating_add(slot))
    }

    /// Returns the number of items for a number of units, at least 1.
    pub fn count(units: usize) -> u32 {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        units.div_ceil(units_per_item()).max(1)
    }
}

/// The progress of a unit in a [`RunView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitProgress {
    Done,
    Failed,
    Open(Attempt),
    /// The item of the unit was not read.
    Unknown,
}

/// Items of a run from reads and writes.
///
/// Invariant: each item was in this state at one point in time. Within an epoch, a unit that is done stays done,
/// however old the view is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    heads: Vec<Option<HeadState>>,
    implied: BTreeSet<Unit>,
}

impl RunView {
    /// Returns a view of some items. Items beyond the graph are ignored.
    pub fn new(graph: &Graph, heads: impl IntoIterator<Item = (Shard, HeadState)>) -> Self {
        let count = Shard::count(graph.len());
        let mut view = Self { heads: vec![None; count as usize], implied: BTreeSet::new() };
        for (shard, head) in heads {
            if let Some(item) = view.heads.get_mut(shard.0 as usize) {
                *item = Some(head);
            }
        }
        if !view.is_complete() {
            view.implied = view.implied(graph);
        }
        view
    }

    /// Returns a view of all items. An item that is not in `heads` was never written.
    pub fn whole(graph: &Graph, heads: impl IntoIterator<Item = (Shard, HeadState)>) -> Self {
        let mut view = Self::new(graph, heads);
        let epoch = view.root().map_or(Epoch::FIRST, |head| head.epoch);
        for item in &mut view.heads {
            item.get_or_insert_with(|| HeadState::new(epoch));
        }
        view
    }

    /// Returns the units that must be done because a unit that depends on them is done.
    fn implied(&self, graph: &Graph) -> BTreeSet<Unit> {
        let known = self.heads.iter().enumerate().filter_map(|(n, head)| Some((shard(n), head.as_ref()?)));
        known
            .flat_map(|(shard, head)| head.done.iter().map(move |&slot| shard.unit(slot)))
            .flat_map(|unit| graph.dependencies(unit).iter().copied())
            .collect()
    }

    pub fn is_complete(&self) -> bool {
        self.heads.iter().all(Option::is_some)
    }

    pub fn root(&self) -> Option<&HeadState> {
        self.heads.first()?.as_ref()
    }

    pub fn head(&self, shard: Shard) -> Option<&HeadState> {
        self.heads.get(shard.0 as usize)?.as_ref()
    }

    pub fn status(&self, unit: Unit) -> UnitProgress {
        let (shard, slot) = Shard::of(unit);
        match self.head(shard) {
            Some(head) if head.done.contains(&slot) => UnitProgress::Done,
            Some(head) if head.failed.contains(&slot) => UnitProgress::Failed,
            Some(head) => UnitProgress::Open(head.attempt(slot)),
            None if self.implied.contains(&unit) => UnitProgress::Done,
            None => UnitProgress::Unknown,
        }
    }

    /// Returns true if an undo of `unit`, or of another unit in its item, has sealed the unit before it read records.
    pub fn is_sealed(&self, unit: Unit) -> bool {
        let (shard, slot) = Shard::of(unit);
        self.head(shard).is_some_and(|head| head.sealed.contains(&slot))
    }

    /// Returns the number of late results of `unit`, over all attempts.
    pub fn late_marks(&self, unit: Unit) -> usize {
        let (shard, slot) = Shard::of(unit);
        self.head(shard).map_or(0, |head| head.late.iter().filter(|late| late.slot == slot).count())
    }

    /// Returns true if this late result is marked.
    pub fn is_late(&self, unit: Unit, attempt: Attempt, mark: u32) -> bool {
        let (shard, slot) = Shard::of(unit);
        self.head(shard).is_some_and(|head| head.late.contains(&LateMark { slot, attempt, mark }))
    }

    pub fn any_failed(&self) -> bool {
        self.heads.iter().flatten().any(|head| !head.failed.is_empty())
    }

    /// Returns the units of the known items in ascending order, without a walk over the whole plan.
    pub(crate) fn known_units(&self, graph: &Graph) -> impl Iterator<Item = Unit> + use<'_> {
        let size = u32::try_from(graph.len()).unwrap_or(u32::MAX);
        let known = self.heads.iter().enumerate().filter(|(_, head)| head.is_some());
        known
            .map(|(position, _)| shard(position))
            .flat_map(move |shard| (shard.unit(0).0..shard.unit(units_per_item()).0.min(size)).map(Unit))
    }
}

fn shard(position: usize) -> Shard {
    Shard(u32::try_from(position).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_in_items_by_range() {
        for (unit, shard, slot) in [(0, 0, 0), (255, 0, 255), (256, 1, 0), (515, 2, 3), (9_999, 39, 15)] {
            assert_eq!(Shard::of(Unit(unit)), (Shard(shard), slot));
            assert_eq!(Shard(shard).unit(slot), Unit(unit));
        }
        assert_eq!([0, 1, 256, 257, 10_000].map(Shard::count), [1, 1, 1, 2, 40]);
        assert_eq!([1, 7, u32::MAX].map(|n| Attempt(n).next().0), [2, 8, u32::MAX]);
        assert_eq!([1, 7, u32::MAX].map(|n| Epoch(n).next().0), [2, 8, u32::MAX]);
    }

    /// 600 units, of which 300 depends on 3 and 520.
    fn wide() -> Graph {
        let mut lists = vec![vec![]; 600];
        lists[300] = vec![Unit(3), Unit(520)];
        Graph::new(lists).unwrap()
    }

    fn middle() -> HeadState {
        HeadState {
            attempts: [(46, Attempt(3))].into(),
            done: [44].into(),
            failed: [45].into(),
            late: [LateMark { slot: 47, attempt: Attempt(2), mark: 9 }].into(),
            sealed: [48].into(),
            ..HeadState::new(Epoch(2))
        }
    }

    #[test]
    fn a_view_derives_the_progress_of_units_in_other_items() {
        let graph = wide();
        let view = RunView::new(&graph, [(Shard(1), middle()), (Shard(3), HeadState::new(Epoch::FIRST))]);
        assert_eq!((view.is_complete(), view.root(), view.head(Shard(0))), (false, None, None));
        assert_eq!((view.head(Shard(1)), view.head(Shard(3))), (Some(&middle()), None));
        for (unit, status) in [
            (299, UnitProgress::Open(Attempt::FIRST)),
            (300, UnitProgress::Done),
            (301, UnitProgress::Failed),
            (302, UnitProgress::Open(Attempt(3))),
            (3, UnitProgress::Done),
            (520, UnitProgress::Done),
            (2, UnitProgress::Unknown),
            (521, UnitProgress::Unknown),
            (9_999, UnitProgress::Unknown),
        ] {
            assert_eq!(view.status(Unit(unit)), status, "{unit}");
        }
        let sealed: Vec<u32> = (0..600).filter(|&unit| view.is_sealed(Unit(unit))).collect();
        assert_eq!(sealed, [304]);
        let late = [(303, 2, 9), (303, 1, 9), (303, 2, 8), (304, 2, 9), (47, 2, 9)]
            .map(|(unit, attempt, mark)| view.is_late(Unit(unit), Attempt(attempt), mark));
        assert_eq!(late, [true, false, false, false, false]);
        assert_eq!([303, 304, 47].map(|unit| view.late_marks(Unit(unit))), [1, 0, 0]);
        assert!(view.known_units(&graph).eq((256..512).map(Unit)));
        let last = RunView::new(&graph, [(Shard(2), HeadState::new(Epoch::FIRST))]);
        assert!(last.known_units(&graph).eq((512..600).map(Unit)));
        assert_eq!([&view, &last].map(RunView::any_failed), [true, false]);
    }

    #[test]
    fn missing_items_have_the_epoch_of_the_root() {
        let graph = wide();
        let root = HeadState { due: Some(Timestamp(7)), ..HeadState::new(Epoch(5)) };
        let view = RunView::whole(&graph, [(Shard::ROOT, root.clone()), (Shard(1), middle())]);
        assert_eq!((view.is_complete(), view.root()), (true, Some(&root)));
        assert_eq!(view.head(Shard(1)), Some(&middle()));
        assert_eq!(view.head(Shard(2)), Some(&HeadState::new(Epoch(5))));
        assert!(view.known_units(&graph).eq(graph.units()));
        assert_eq!(RunView::whole(&graph, []).root(), Some(&HeadState::new(Epoch::FIRST)));
    }
}
