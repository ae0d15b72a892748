//! Counts the requests of a store and their cost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::observed::{RequestPlace, StoreObserver, TableRequest};
use crate::{WriteOutcome, item_size};

/// Counts requests, capacity and sizes, as the observer of [`crate::Store::observed`].
#[derive(Debug, Default)]
pub struct Meter {
    usage: Mutex<TableUsage>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableUsage {
    /// Requests with a response by AWS operation, including failed conditions.
    pub requests: BTreeMap<&'static str, u64>,
    /// Requests to the bucket by AWS operation.
    pub objects: BTreeMap<&'static str, u64>,
    /// Read units as reported by the table.
    pub read_units: f64,
    /// Write units as reported by the table, including indexes. A failed condition reports none.
    pub write_units: f64,
    /// Write units of failed conditions by our own calculation, in steps of 1 KiB of the present item.
    pub refused_write_units: u64,
    /// Bytes of the largest head of a run that a write returned.
    pub largest_head: usize,
}

impl Meter {
    /// Returns the counts and resets them.
    pub fn take(&self) -> TableUsage {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, TableUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_head(place: &RequestPlace) -> bool {
    let RequestPlace::Items(keys) = place else { return false };
    keys.iter().all(|key| key.partition.starts_with("r#") && key.sort == "h")
}

impl StoreObserver for Meter {
    fn table(&self, request: &TableRequest<'_>) {
        let mut usage = self.lock();
        *usage.requests.entry(request.operation).or_default() += 1;
        match request.operation {
            "GetItem" | "BatchGetItem" | "Query" => usage.read_units += request.units,
            _ => usage.write_units += request.units,
        }
        match request.outcome {
            Some(WriteOutcome::Refused(item)) => {
                usage.refused_write_units += item_size(item).div_ceil(1024).max(1) as u64;
            }
            Some(WriteOutcome::Written(item)) if is_head(&request.place) => {
                usage.largest_head = usage.largest_head.max(item_size(item));
            }
            _ => {}
        }
    }

    fn bucket(&self, operation: &'static str, _: &str) {
        *self.lock().objects.entry(operation).or_default() += 1;
    }
}
