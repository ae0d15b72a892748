//! Counts what the table is asked and what that costs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_sdk_dynamodb::types::ConsumedCapacity;

/// Counts requests, capacity and sizes. Shared by everything that is given it; attached with
/// [`crate::DynamoTable::metered`].
#[derive(Debug, Default)]
pub struct Meter {
    figures: Mutex<TableUsage>,
}

/// What a [`Meter`] has counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableUsage {
    /// Requests that got an answer, refused conditions included, by AWS operation.
    pub requests: BTreeMap<&'static str, u64>,
    /// Read units, as the table reports them.
    pub read_units: f64,
    /// Write units, as the table reports them, indexes included. A refused condition reports none.
    pub write_units: f64,
    /// Write units by our own sizing: 1 KiB steps, doubled in transactions, one per index entry made or removed (a
    /// wake-up time that is set counts as one of each). A refused condition counts one.
    pub sized_write_units: u64,
    /// Those of them that are of refused conditions.
    pub refused_write_units: u64,
    /// Bytes of the largest head of a run that a write returned.
    pub largest_head: usize,
    /// Entries of the index of due things that could not be read and were passed over.
    pub unreadable: u64,
}

/// What a request does to the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapacityKind {
    Read,
    Write,
}

impl Meter {
    /// A meter that has counted nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted so far.
    pub fn usage(&self) -> TableUsage {
        self.lock().clone()
    }

    /// What was counted so far; begins anew.
    pub fn take(&self) -> TableUsage {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, TableUsage> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn request(&self, operation: &'static str) {
        *self.lock().requests.entry(operation).or_default() += 1;
    }

    pub(crate) fn capacity(&self, direction: CapacityKind, consumed: &[ConsumedCapacity]) {
        let units: f64 = consumed.iter().filter_map(|one| one.capacity_units).sum();
        let mut figures = self.lock();
        match direction {
            CapacityKind::Read => figures.read_units += units,
            CapacityKind::Write => figures.write_units += units,
        }
    }

    /// Counts a write of an item of `bytes` and of `index_entries`.
    pub(crate) fn written(&self, bytes: usize, index_entries: u64) {
        self.lock().sized_write_units += units(bytes) + index_entries;
    }

    /// Counts a write whose condition was refused, of an item of `bytes`.
    pub(crate) fn refused(&self, bytes: usize) {
        self.lock().refused_write_units += units(bytes);
        self.written(bytes, 0);
    }

    /// Counts an item of `bytes` in a transaction, and its `index_entries`.
    pub(crate) fn transacted(&self, bytes: usize, index_entries: u64) {
        self.lock().sized_write_units += 2 * units(bytes) + index_entries;
    }

    pub(crate) fn unreadable(&self) {
        self.lock().unreadable += 1;
    }

    pub(crate) fn head(&self, bytes: usize) {
        let mut figures = self.lock();
        figures.largest_head = figures.largest_head.max(bytes);
    }
}

fn units(bytes: usize) -> u64 {
    bytes.div_ceil(1024).max(1) as u64
}
