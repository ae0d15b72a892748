//! Counts requests to the table and their cost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts requests, capacity and sizes. Attached with [`crate::Store::metered`].
#[derive(Debug, Default)]
pub struct Meter {
    usage: Mutex<TableUsage>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableUsage {
    /// Requests with a response by AWS operation, including failed conditions.
    pub requests: BTreeMap<&'static str, u64>,
    /// Read units as reported by the table.
    pub read_units: f64,
    /// Write units as reported by the table, including indexes. A failed condition reports none.
    pub write_units: f64,
    /// Write units of failed conditions by our own calculation, in steps of 1 KiB of the present item.
    pub refused_write_units: u64,
    /// Bytes of the largest head item that a write returned.
    pub largest_head: usize,
    /// Unreadable entries of the due index that were skipped.
    pub unreadable: u64,
}

impl Meter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counts.
    pub fn usage(&self) -> TableUsage {
        self.lock().clone()
    }

    /// Returns the counts and resets them.
    pub fn take(&self) -> TableUsage {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, TableUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn request(&self, operation: &'static str) {
        *self.lock().requests.entry(operation).or_default() += 1;
    }

    pub(crate) fn read(&self, units: f64) {
        self.lock().read_units += units;
    }

    pub(crate) fn write(&self, units: f64) {
        self.lock().write_units += units;
    }

    /// Counts a write with a failed condition. `bytes` is the size of the present item.
    pub(crate) fn refused(&self, bytes: usize) {
        self.lock().refused_write_units += bytes.div_ceil(1024).max(1) as u64;
    }

    pub(crate) fn unreadable(&self) {
        self.lock().unreadable += 1;
    }

    pub(crate) fn head(&self, bytes: usize) {
        let mut usage = self.lock();
        usage.largest_head = usage.largest_head.max(bytes);
    }
}
