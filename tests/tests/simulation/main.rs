//! Simulated worlds: random targets and faults, every order of two invocations, a fault at every write.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod crash_points;
mod every_injection_point;
mod fair;
mod looks;
mod polled;
mod properties;
mod races;
mod regressions;
mod stops;
mod stored;

use ebb_tests::sim::ExcludedFaults;
use ebb_tests::sim::many_targets::{SimReport, TraceMode, simulate};

/// Lives of the known worlds. `cargo xtask verify simulation` lives 3,000.
const INSTANCES: u64 = 200;

fn world(seed: u64, trace: TraceMode) -> SimReport {
    simulate(seed, &ExcludedFaults::default(), trace)
}

#[test]
fn lives_of_known_worlds_leave_nothing() {
    let mut lives = 0;
    for seed in 1.. {
        let report = world(seed, TraceMode::Off);
        assert_eq!(
            report.violations,
            Vec::<String>::new(),
            "cargo xtask verify simulation -- --seed {seed} --trace"
        );
        lives += report.instances;
        if lives >= INSTANCES {
            return;
        }
    }
}

#[test]
fn a_world_is_the_same_each_time() {
    let (one, other) = (world(7, TraceMode::Kept).trace, world(7, TraceMode::Kept).trace);
    assert!(one.len() > 50, "{one:?}");
    assert_eq!(one, other);
}
