//! Anonymous memory of a relay over several rounds of tasks. Pages of the executable file do not count, because the kernel
//! can reclaim them.

use crate::fixture::*;

/// Maximum memory of the relay in MiB.
const LIMIT: f64 = 64.0;
/// MiB that a round may use in addition to 110 % of an earlier one. The allocator returns freed memory with a delay.
const TOLERANCE: f64 = 3.0;

/// MiB of each round: the maximum of all samples, and the last sample.
#[derive(Default)]
pub(crate) struct MemoryRounds(pub(crate) Vec<(f64, f64)>);

impl MemoryRounds {
    pub(crate) fn sample(&mut self, fixture: &RelayFixture) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let now = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0;
        let round = self.0.last_mut().unwrap();
        *round = (round.0.max(now), now);
    }

    /// Checks that the last round used as much memory as the second one. The first round fills caches.
    pub(crate) fn assert_constant(&self) {
        println!("MiB of each round, maximum and end: {:.1?}", self.0);
        assert!(self.0.iter().all(|(most, _)| 0.0 < *most && *most <= LIMIT));
        let [_, second, .., last] = &self.0[..] else { return };
        for (first, now) in [(second.0, last.0), (second.1, last.1)] {
            assert!(now <= first * 1.1 + TOLERANCE, "the relay grows");
        }
    }
}
