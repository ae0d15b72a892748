//! Simulations that take minutes: `cargo xtask verify simulation`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod every_injection_point;
mod fairness;

use ebb_tests::simulation::{BUSY, TargetScenario, UnitBehavior};

/// Small targets of the random simulations.
#[test]
fn small_graphs() {
    for seed in 1..=4 {
        let target = TargetScenario { behavior: UnitBehavior::Steady, ..TargetScenario::random(seed) };
        if target.plugins.iter().all(|(_, _, document)| document.len() < 4_000) {
            every_injection_point::check_every_fault(&format!("graph {seed}"), &target, "t");
        }
    }
}

/// The API server of the cluster hangs, and the relay responds that it is busy. The circuit breaker of the cluster stays
/// closed, and at most two sweeps wait for it at once.
#[test]
fn a_busy_cluster_does_not_delay_other_targets() {
    fairness::check_delays(BUSY, 200);
}
