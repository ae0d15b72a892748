//! Looks that failed. They are repeated after growing waits, so that they delay nothing else.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebb_engine::Millis;
use ebb_store::Due;

/// The wait after the first failed look; it doubles with each further one.
const FIRST_WAIT_MS: u64 = 5_000;
/// The wait where the same look must fail again, such as for a plan of a later format.
const HOPELESS_WAIT_MS: u64 = 60_000;
const LONGEST_WAIT_MS: u64 = 15 * 60 * 1000;
/// Runs and targets that are remembered. A forgotten one begins with the first wait.
const REMEMBERED: usize = 10_000;

/// The failed looks in a row of each run and target, as far as this instance of a function knows.
#[derive(Default)]
pub(crate) struct Failing(Mutex<BTreeMap<Due, u32>>);

impl Failing {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Due, u32>> {
        // A poisoned lock only means that another look panicked; each change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets `due` after a look that succeeded.
    pub(super) fn ended(&self, due: &Due) {
        self.lock().remove(due);
    }

    /// Returns after which wait `due` is looked at again.
    pub(super) fn wait(&self, due: &Due, hopeful: bool) -> Millis {
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
        let failing = Failing::default();
        let [one, other] = ["a", "b"].map(|name| Due::Target("sandbox".to_owned(), name.to_owned()));
        let seconds = |due, hopeful| failing.wait(due, hopeful).0 / 1000;
        assert_eq!([0; 3].map(|_: u32| seconds(&one, true)), [5, 10, 20]);
        assert_eq!([0; 5].map(|_: u32| seconds(&other, false)), [60, 120, 240, 480, 900]);
        failing.ended(&one);
        assert_eq!((seconds(&one, true), seconds(&other, false)), (5, 900));
    }
}
