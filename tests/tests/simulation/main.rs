//! Simulated worlds: random targets and faults, every order of two invocations, a fault at every write.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod every_chance;
mod fair;
mod found;
mod looks;
mod points;
mod polled;
mod properties;
mod races;
mod stops;
mod stored;

use ebb_tests::sim::Spared;
use ebb_tests::sim::crowd::{Report, Trace, happen};

/// Lives of the known worlds. `cargo xtask verify simulation` lives 3,000.
const LIVES: u64 = 200;

fn world(seed: u64, trace: Trace) -> Report {
    happen(seed, &Spared::default(), trace)
}

#[test]
fn lives_of_known_worlds_leave_nothing() {
    let mut lives = 0;
    for seed in 1.. {
        let report = world(seed, Trace::Off);
        assert_eq!(
            report.wrong,
            Vec::<String>::new(),
            "cargo xtask verify simulation -- --seed {seed} --trace"
        );
        lives += report.lives;
        if lives >= LIVES {
            return;
        }
    }
}

#[test]
fn a_world_is_the_same_each_time() {
    let (one, other) = (world(7, Trace::Kept).story, world(7, Trace::Kept).story);
    assert!(one.len() > 50, "{one:?}");
    assert_eq!(one, other);
}
