//! Random numbers that are derived from a seed.

use super::*;

/// A stream of random numbers (SplitMix64). The same seed results in the same numbers.
pub struct SimRandom(Mutex<u64>);

impl SimRandom {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    pub fn bits(&self) -> u64 {
        let mut state = lock(&self.0);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }
}

impl ebb_flow::ports::RandomSource for SimRandom {
    fn next(&self) -> u64 {
        self.bits()
    }
}
