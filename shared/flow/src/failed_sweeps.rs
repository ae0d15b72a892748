//! Keeps failed sweeps of runs and targets in memory. Their waits grow, so that they do not delay others.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ebb_engine::{Backoff, Millis};
use ebb_store::DueItem;

use crate::lock::lock;

/// The wait after the first failure. It doubles with each further one.
const FIRST_WAIT_MS: u64 = 5_000;
/// The first wait after an error that a repetition cannot fix, such as a plan of a later format.
const FIRST_PERMANENT_WAIT_MS: u64 = 60_000;
const MAX_WAIT_MS: u64 = 15 * 60 * 1000;
/// Maximum runs and targets in memory. One that was dropped begins with the first wait.
const MAX_ENTRIES: usize = 10_000;

/// The number of consecutive failures of each run and target, in this function instance.
#[derive(Default)]
pub(crate) struct FailedSweeps(Mutex<BTreeMap<DueItem, u32>>);

impl FailedSweeps {
    pub(crate) fn clear(&self, due: &DueItem) {
        lock(&self.0).remove(due);
    }

    pub(crate) fn next_wait(&self, due: &DueItem, is_retryable: bool) -> Millis {
        let mut failures_of = lock(&self.0);
        if failures_of.len() >= MAX_ENTRIES && !failures_of.contains_key(due) {
            failures_of.clear();
        }
        let failures = failures_of.entry(due.clone()).or_default();
        let first = if is_retryable { FIRST_WAIT_MS } else { FIRST_PERMANENT_WAIT_MS };
        *failures = failures.saturating_add(1);
        Backoff { base: Millis(first), max: Millis(MAX_WAIT_MS) }.bound(*failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_a_sweep_succeeds() {
        let failures_of = FailedSweeps::default();
        let [one, other] = ["a", "b"].map(|name| DueItem::Target("sandbox".to_owned(), name.to_owned()));
        let seconds = |due, is_retryable| failures_of.next_wait(due, is_retryable).0 / 1000;
        assert_eq!([0; 3].map(|_: u32| seconds(&one, true)), [5, 10, 20]);
        assert_eq!([0; 5].map(|_: u32| seconds(&other, false)), [60, 120, 240, 480, 900]);
        failures_of.clear(&one);
        assert_eq!((seconds(&one, true), seconds(&other, false)), (5, 900));
    }
}
