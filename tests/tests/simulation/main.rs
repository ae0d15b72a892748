//! Simulations: random targets and faults, every order of two invocations, a fault at every injection point.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod crash_points;
mod every_injection_point;
mod fairness;
mod properties;
mod regressions;
mod schedules;
mod stored;

use ebb_tests::simulation::{SimReport, TraceMode, simulate};

/// Instances of the known simulations. `cargo xtask verify simulation` simulates 3,000.
const INSTANCES: u64 = 200;

fn simulation(seed: u64, trace: TraceMode) -> SimReport {
    simulate(seed, &[], trace)
}

#[test]
fn instances_of_known_simulations_leave_nothing() {
    let mut instances = 0;
    for seed in 1.. {
        let report = simulation(seed, TraceMode::Off);
        assert_eq!(report.violations, Vec::<String>::new(), "cargo xtask verify simulation -- --seed {seed} --trace");
        instances += report.instances;
        if instances >= INSTANCES {
            return;
        }
    }
}

#[test]
fn a_simulation_is_the_same_each_time() {
    let (one, other) = (simulation(7, TraceMode::Kept).trace, simulation(7, TraceMode::Kept).trace);
    assert!(one.lines().count() > 50, "{one}");
    assert_eq!(one, other);
}
