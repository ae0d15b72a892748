//! What a relay has in memory, from one round of tasks to the next.
//!
//! Of the pages that the kernel counts, those of the program's file are told apart: they come as code is run for the first
//! time, and the kernel takes them back when it needs room.

use std::fmt;

use crate::fixture::*;

/// MiB that the relay may take at most for tasks.
const MOST: f64 = 64.0;
/// MiB that a round may take more than an earlier one and a tenth: what is freed is not all given back at once.
const UNEVEN: f64 = 3.0;

/// MiB at a moment.
#[derive(Clone, Copy)]
struct MemoryUse {
    own: f64,
    program: f64,
}

impl MemoryUse {
    /// What the kernel says of the relay.
    fn of(world: &RelayFixture) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{}/status", world.pid())).unwrap();
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
        };
        Self { own: mib("RssAnon:"), program: mib("RssFile:") }
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} + {:.1} of its program", self.own, self.program)
    }
}

/// What was measured of each round.
#[derive(Default)]
pub(crate) struct MemoryRounds(Vec<MemoryRound>);

struct MemoryRound {
    works: usize,
    /// The most of its own at any time that was looked at.
    most: f64,
    /// When nothing was left of the tasks.
    after: f64,
}

impl MemoryRounds {
    /// A round of so many tasks begins.
    pub(crate) fn begin(&mut self, world: &RelayFixture, works: usize) {
        println!("round {}: {works} works; the relay has {} MiB", self.0.len() + 1, MemoryUse::of(world));
        self.0.push(MemoryRound { works, most: 0.0, after: 0.0 });
    }

    /// A moment of the round.
    pub(crate) fn look(&mut self, world: &RelayFixture) {
        let round = self.0.last_mut().unwrap();
        round.most = round.most.max(MemoryUse::of(world).own);
    }

    /// All tasks are over, and gone.
    pub(crate) fn end(&mut self, world: &RelayFixture) {
        let (number, memory) = (self.0.len(), MemoryUse::of(world));
        let round = self.0.last_mut().unwrap();
        round.after = memory.own;
        println!("round {number}: {:.1} MiB at most, {memory} MiB when all works were gone", round.most);
    }

    /// A round takes what the one before took: nothing stays of a task that is gone. The first round warms up.
    pub(crate) fn judge(&self) {
        assert!(self.0.iter().all(|round| 0.0 < round.most && round.most <= MOST));
        let [_, second, .., last] = &self.0[..] else { return };
        assert_eq!(second.works, last.works);
        for (what, first, now) in [("most", second.most, last.most), ("in the end", second.after, last.after)] {
            println!("{what}: {first:.1} MiB in the second round, {now:.1} MiB in the last of {}", self.0.len());
            assert!(now <= first * 1.1 + UNEVEN, "the relay grows");
        }
    }
}
