//! Backoff, and blocks of attempts.

use crate::state::Attempt;
use crate::time::Millis;

/// Exponential backoff with full jitter: the wait before attempt `n + 1` is a random part of `base · 2ⁿ⁻¹`, at most
/// `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait before the second attempt.
    pub base: Millis,
    pub max: Millis,
}

impl Backoff {
    /// Returns the longest wait after `failures` failed attempts (at least one).
    pub fn bound(self, failures: u32) -> Millis {
        Millis(self.base.0.saturating_mul(1 << failures.saturating_sub(1).min(63)).min(self.max.0))
    }

    /// Returns the wait after `failures` failed attempts: `random` of 2⁶⁴ equal parts of [`Self::bound`].
    pub fn wait(self, failures: u32, random: u64) -> Millis {
        let bound = u128::from(self.bound(failures).0);
        let wait = ((bound + 1) * u128::from(random)) >> 64;
        Millis(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

/// Returns how many of the `max_attempts` of its block a unit has used with this attempt, from 1. A reopened unit
/// starts the next block ([`next_block`]), and numbers continue.
pub fn attempts_used(attempt: Attempt, max_attempts: u32) -> u32 {
    attempt.0.saturating_sub(1) % max_attempts.max(1) + 1
}

/// Returns the first attempt of the next block. A reopened unit has all its attempts again.
pub fn next_block(attempt: Attempt, max_attempts: u32) -> Attempt {
    let max_attempts = max_attempts.max(1);
    Attempt(attempt.0.div_ceil(max_attempts).saturating_mul(max_attempts).saturating_add(1))
}

/// Returns the number of the block of `attempt`, from 0.
pub fn attempt_block(attempt: Attempt, max_attempts: u32) -> u32 {
    attempt.0.saturating_sub(1) / max_attempts.max(1)
}

/// Returns the first attempt of an undo that is reopened after `attempt`. It skips one block: the blocks of one pass
/// are consecutive, so the gap separates it from the next pass.
pub fn next_pass(attempt: Attempt, max_attempts: u32) -> Attempt {
    next_block(next_block(attempt, max_attempts), max_attempts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_maximum_and_jitter_is_full() {
        let backoff = Backoff { base: Millis(2_000), max: Millis(30_000) };
        let bounds: Vec<u64> = [1, 2, 3, 4, 5, 6, 64, u32::MAX].map(|n| backoff.bound(n).0).to_vec();
        assert_eq!(bounds, [2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000]);
        let backoff = Backoff { base: Millis(10), max: Millis(1_000) };
        assert_eq!(backoff.wait(1, 0), Millis(0));
        assert_eq!(backoff.wait(1, u64::MAX), Millis(10));
        assert_eq!(backoff.wait(1, u64::MAX / 2), Millis(5));
    }

    #[test]
    fn a_reopened_unit_has_all_its_attempts_again_and_two_passes_a_block_between_them() {
        let used: Vec<u32> = (1..=7).map(|n| attempts_used(Attempt(n), 3)).collect();
        assert_eq!(used, [1, 2, 3, 1, 2, 3, 1]);
        let blocks: Vec<u32> = [1, 2, 3, 4].map(|n| next_block(Attempt(n), 3).0).to_vec();
        assert_eq!(blocks, [4, 4, 4, 7]);
        assert_eq!(next_block(Attempt(1), 1), Attempt(2));
        let blocks: Vec<u32> = (1..=7).map(|n| attempt_block(Attempt(n), 3)).collect();
        assert_eq!(blocks, [0, 0, 0, 1, 1, 1, 2]);
        let passes: Vec<u32> = [1, 2, 3, 4].map(|n| next_pass(Attempt(n), 3).0).to_vec();
        assert_eq!(passes, [7, 7, 7, 10]);
        assert_eq!(next_pass(Attempt(1), 1), Attempt(3));
    }
}
