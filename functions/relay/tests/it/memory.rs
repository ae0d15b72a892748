//! The memory of a relay, from one round of tasks to the next. Pages of the program's file do not count: the kernel takes
//! them back when it needs room.

use crate::fixture::*;

/// MiB that the relay may take at most for tasks.
const MOST: f64 = 64.0;
/// MiB that a round may take more than an earlier one and a tenth: what is freed is not all given back at once.
const UNEVEN: f64 = 3.0;

/// MiB of each round: the most of all looks, and when nothing was left of its tasks.
#[derive(Default)]
pub(crate) struct MemoryRounds(Vec<(f64, f64)>);

impl MemoryRounds {
    pub(crate) fn begin(&mut self) {
        self.0.push((0.0, 0.0));
    }

    pub(crate) fn look(&mut self, fixture: &RelayFixture) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let now = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0;
        let round = self.0.last_mut().unwrap();
        *round = (round.0.max(now), now);
    }

    /// A round takes what the one before took: nothing stays of a task that is gone. The first round warms up.
    pub(crate) fn judge(&self) {
        println!("MiB at most and in the end of each round: {:.1?}", self.0);
        assert!(self.0.iter().all(|(most, _)| 0.0 < *most && *most <= MOST));
        let [_, second, .., last] = &self.0[..] else { return };
        for (first, now) in [(second.0, last.0), (second.1, last.1)] {
            assert!(now <= first * 1.1 + UNEVEN, "the relay grows");
        }
    }
}
