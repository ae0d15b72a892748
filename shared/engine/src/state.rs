//! What the table holds of a run, as values.
//!
//! A run's state is one small head item. A head holds at most [`SHARD`] units, which keeps it below one kilobyte
//! and its update at one write unit; the units of a larger run are spread over several items by range, with
//! positions relative to the item. Shard 0 is the root: it alone has a phase, a wake-up time and a plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Graph, Unit};
use crate::time::Timestamp;

pub const SHARD: u32 = 256;

#[cfg(feature = "switches")]
thread_local! {
    static UNITS_PER_ITEM: std::cell::Cell<u32> = const { std::cell::Cell::new(SHARD) };
}

/// Sets the units per head item on this thread, for the model: small runs spread over several items then.
#[cfg(feature = "switches")]
pub fn set_units_per_item(units: u32) {
    UNITS_PER_ITEM.set(units.max(1));
}

#[cfg(feature = "switches")]
fn units_per_item() -> u32 {
    UNITS_PER_ITEM.get()
}

#[cfg(not(feature = "switches"))]
const fn units_per_item() -> u32 {
    SHARD
}

/// Counts the tries of one unit, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The try that every unit begins with; the head stores only later ones.
    pub const FIRST: Self = Self(1);

    /// The try after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Counts the cancellations of a run, from 1. A message of an earlier epoch changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch that every run begins in.
    pub const FIRST: Self = Self(1);

    /// The epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunPhase {
    /// Units start as they become ready.
    Running,
    /// Cancelled: nothing new starts; what may be running is being settled.
    Cancelling,
    /// Nothing moves any more.
    Closed,
}

/// A success that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LateMark {
    /// The unit's position in its item.
    pub slot: u32,
    pub attempt: Attempt,
    /// Tells different results of one try apart: a part of the result's digest.
    pub mark: u32,
}

/// One head item's share of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadState {
    pub epoch: Epoch,
    /// Where the run stands. Meaningful in the root only.
    pub phase: RunPhase,
    /// Later tries, by position in the shard; a unit that is not named is at [`Attempt::FIRST`].
    pub attempts: BTreeMap<u32, Attempt>,
    /// Positions that have succeeded or were skipped.
    pub done: BTreeSet<u32>,
    /// Positions that have failed for good.
    pub failed: BTreeSet<u32>,
    /// Successes that came too late to count as progress.
    pub late: BTreeSet<LateMark>,
    /// Positions whose undo has begun to read.
    pub sealed: BTreeSet<u32>,
    /// When `sweep` has to look. Root only; `None` once closed.
    pub due: Option<Timestamp>,
    /// When every item of the run had entered the epoch that stopped it; from then on nothing new is decided. Root only.
    pub stopped: Option<Timestamp>,
    /// Rises whenever `due` is set to an earlier time.
    pub version: u64,
}

impl HeadState {
    /// The head of a run that has just begun; also what stands for a shard that nothing was written to yet.
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
            version: 0,
        }
    }

    /// The try that the unit at `slot` is at.
    pub fn attempt(&self, slot: u32) -> Attempt {
        self.attempts.get(&slot).copied().unwrap_or(Attempt::FIRST)
    }
}

/// Names one head item of a run: 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u32);

impl Shard {
    /// The item that holds the run's phase, wake-up time and plan.
    pub const ROOT: Self = Self(0);

    /// The item that holds `unit`, and the unit's position in it.
    pub fn of(unit: Unit) -> (Self, u32) {
        (Self(unit.0 / units_per_item()), unit.0 % units_per_item())
    }

    /// The unit at a position of this item.
    pub fn unit(self, slot: u32) -> Unit {
        Unit(self.0.saturating_mul(units_per_item()).saturating_add(slot))
    }

    /// How many items a run of `units` has; at least the root.
    pub fn count(units: usize) -> u32 {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        units.div_ceil(units_per_item()).max(1)
    }
}

/// Where a unit stands, as far as a [`RunView`] can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitProgress {
    Done,
    Failed,
    Open(Attempt),
    /// In an item that was not read.
    Unknown,
}

/// The items of a run that were read or returned by a write.
///
/// Invariant: what a view says was true at one point in time per item. Units only ever move towards done or
/// failed within an epoch, so "done" stays true however old the view is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    heads: Vec<Option<HeadState>>,
    implied: BTreeSet<Unit>,
}

impl RunView {
    /// The view of a run of `graph` that knows only what `heads` say. Items beyond the graph are ignored.
    pub fn new(graph: &Graph, heads: impl IntoIterator<Item = (Shard, HeadState)>) -> Self {
        let count = Shard::count(graph.len());
        let mut view = Self { heads: vec![None; count as usize], implied: BTreeSet::new() };
        for (shard, head) in heads {
            if let Some(place) = view.heads.get_mut(shard.0 as usize) {
                *place = Some(head);
            }
        }
        if !view.is_complete() {
            view.implied = view.implied(graph);
        }
        view
    }

    /// A view of a whole run: an item that is not among `heads` was never written to and counts as untouched.
    pub fn whole(graph: &Graph, heads: impl IntoIterator<Item = (Shard, HeadState)>) -> Self {
        let mut view = Self::new(graph, heads);
        let epoch = view.root().map_or(Epoch::FIRST, |head| head.epoch);
        for place in &mut view.heads {
            place.get_or_insert_with(|| HeadState::new(epoch));
        }
        view
    }

    /// What must be done because something that waits for it is.
    fn implied(&self, graph: &Graph) -> BTreeSet<Unit> {
        let known = self.heads.iter().enumerate().filter_map(|(n, head)| Some((shard(n), head.as_ref()?)));
        known
            .flat_map(|(shard, head)| head.done.iter().map(move |&slot| shard.unit(slot)))
            .flat_map(|unit| graph.dependencies(unit).iter().copied())
            .collect()
    }

    /// Returns true if every item of the run is known.
    pub fn is_complete(&self) -> bool {
        self.heads.iter().all(Option::is_some)
    }

    /// The root item, if known.
    pub fn root(&self) -> Option<&HeadState> {
        self.heads.first()?.as_ref()
    }

    /// The item of `shard`, if known.
    pub fn head(&self, shard: Shard) -> Option<&HeadState> {
        self.heads.get(shard.0 as usize)?.as_ref()
    }

    /// Where `unit` stands.
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

    /// Returns true if the undo of `unit` has begun to read.
    pub fn is_sealed(&self, unit: Unit) -> bool {
        let (shard, slot) = Shard::of(unit);
        self.head(shard).is_some_and(|head| head.sealed.contains(&slot))
    }

    /// How many late successes of `unit` are marked, over all its attempts.
    pub fn late_marks(&self, unit: Unit) -> usize {
        let (shard, slot) = Shard::of(unit);
        self.head(shard).map_or(0, |head| head.late.iter().filter(|late| late.slot == slot).count())
    }

    /// Returns true if this success of `unit` is known to have come too late.
    pub fn is_late(&self, unit: Unit, attempt: Attempt, mark: u32) -> bool {
        let (shard, slot) = Shard::of(unit);
        self.head(shard).is_some_and(|head| head.late.contains(&LateMark { slot, attempt, mark }))
    }

    /// Returns true if any known unit has failed for good.
    pub fn any_failed(&self) -> bool {
        self.heads.iter().flatten().any(|head| !head.failed.is_empty())
    }

    /// The units of the known items, in ascending order. Looks at these items alone: a completion in a large run must
    /// not cost a walk over the whole plan.
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
    fn units_lie_in_items_by_range() {
        for (unit, shard, slot) in [(0, 0, 0), (255, 0, 255), (256, 1, 0), (515, 2, 3), (9_999, 39, 15)] {
            assert_eq!(Shard::of(Unit(unit)), (Shard(shard), slot));
            assert_eq!(Shard(shard).unit(slot), Unit(unit));
        }
        assert_eq!([0, 1, 256, 257, 10_000].map(Shard::count), [1, 1, 1, 2, 40]);
        assert_eq!([1, 7, u32::MAX].map(|n| Attempt(n).next().0), [2, 8, u32::MAX]);
        assert_eq!([1, 7, u32::MAX].map(|n| Epoch(n).next().0), [2, 8, u32::MAX]);
    }

    /// 600 units, of which 300 waits for 3 and 520.
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
    fn a_view_says_what_its_items_say_and_what_follows_for_others() {
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
    fn items_that_were_never_written_are_in_the_epoch_of_the_root() {
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
