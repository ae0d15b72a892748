//! Simulations that take minutes: `cargo xtask verify simulation`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod every_injection_point;
mod fair;

use ebb_tests::sim::fleet::BUSY;
use ebb_tests::sim::many_targets::TargetScenario;

/// Designs of the random simulations, small ones.
#[test]
fn small_graphs() {
    for seed in 1..=4 {
        let design = TargetScenario::random(seed);
        if design.plugins.iter().all(|(_, _, document)| document.len() < 4_000) {
            every_injection_point::survives(&format!("graph {seed}"), &design, "t");
        }
    }
}

/// Its API server hangs, and the relay says so. Its circuit stays closed, and two looks at a time wait for it.
#[test]
fn a_cluster_that_is_slow_to_say_not_now_delays_nothing_else() {
    fair::others_are_served_beside(BUSY, 200);
}
