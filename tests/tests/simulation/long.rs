//! Simulations that take minutes: `cargo xtask verify simulation`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod every_injection_point;
mod fairness;

use ebb_tests::simulation::{BUSY, TargetScenario, UnitBehavior};

/// Small targets of the random simulations. A unit of InfraKit whose own timeout is hardly longer than its processing
/// time fails if its request is lost after the intent.
#[test]
fn small_graphs() {
    for seed in 1..=12 {
        let target = TargetScenario { behavior: UnitBehavior::Steady, ..TargetScenario::random(seed) };
        let expires = |unit: &str| unit.contains("\n    timeout: ") && unit.contains("infrakit:");
        // A unit whose request is sent once fails if nothing can tell its outcome. If the response to a deletion is lost, the
        // next answer is 404, which is no evidence.
        let is_told = |document: &str| !document.contains("idempotent: false}") && !document.contains("\nevidence: ");
        let is_small =
            |document: &str| document.len() < 4_000 && !document.split("outputs:").any(expires) && is_told(document);
        if target.plugins.iter().all(|(_, _, document)| is_small(document)) {
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
