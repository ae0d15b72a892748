//! Looks that failed. They are repeated after growing waits, so that they delay nothing else.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebb_engine::Millis;
use ebb_store::DueItem;

/// The wait after the first failed look; it doubles with each further one.
const FIRST_WAIT_MS: u64 = 5_000;
/// The wait where the same look must fail again, such as for a plan of a later format.
const HOPELESS_WAIT_MS: u64 = 60_000;
const LONGEST_WAIT_MS: u64 = 15 * 60 * 1000;
/// Runs and targets that are remembered. A forgotten one begins with the first wait.
const REMEMBERED: usize = 10_000;

/// The failed looks in a row of each run and target, as far as this instance of a function knows.
#[derive(Default)]
pub(crate) struct FailedSweeps(Mutex<BTreeMap<DueItem, u32>>);

impl FailedSweeps {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<DueItem, u32>> {
        // A poisoned lock only means that another look panicked; each change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets `due` after a look that succeeded.
    pub(super) fn clear(&self, due: &DueItem) {
        self.lock().remove(due);
    }

    /// Returns after which wait `due` is looked at again.
    pub(super) fn next_wait(&self, due: &DueItem, hopeful: bool) -> Millis {
        let mut failing = self.lock();
        if failing.len() >= REMEMBERED && !failing.contains_key(due) {
            failing.clear();
        }
        let failures = failing.entry(due.clone()).or_default();
        let first = if hopeful { FIRST_WAIT_MS } else { HOPELESS_WAIT_MS };
        let doubled = 1_u64.checked_shl(*failures).unwrap_or(u64::MAX);
        *failures = failures.saturating_add(1);
        Millis(first.saturating_mul(doubled).min(LONGEST_WAIT_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_a_look_ends_well() {
        let failing = FailedSweeps::default();
        let [one, other] = ["a", "b"].map(|name| DueItem::Target("sandbox".to_owned(), name.to_owned()));
        let seconds = |due, hopeful| failing.next_wait(due, hopeful).0 / 1000;
        assert_eq!([0; 3].map(|_: u32| seconds(&one, true)), [5, 10, 20]);
        assert_eq!([0; 5].map(|_: u32| seconds(&other, false)), [60, 120, 240, 480, 900]);
        failing.clear(&one);
        assert_eq!((seconds(&one, true), seconds(&other, false)), (5, 900));
    }
}
