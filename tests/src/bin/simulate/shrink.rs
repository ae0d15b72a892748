//! A failing simulation with as few kinds of faults as it takes.

use ebb_tests::sim::many_targets::{TraceMode, simulate};
use ebb_tests::sim::{ExcludedFaults, FaultKind};

/// Leaves out one kind after the other as long as the simulation still fails; gives the command that shows it then.
pub(crate) fn command(seed: u64, excluded: &ExcludedFaults) -> String {
    let mut least = excluded.clone();
    let reached = simulate(seed, excluded, TraceMode::Off).injected;
    for (kind, reached) in FaultKind::ALL.iter().zip(reached) {
        let without = least.and(*kind);
        if reached > 0 && !simulate(seed, &without, TraceMode::Off).violations.is_empty() {
            least = without;
        }
    }
    let names: Vec<&str> = least.kinds().iter().map(|kind| kind.name()).collect();
    let without = if names.is_empty() { String::new() } else { format!(" --without {}", names.join(",")) };
    format!("cargo xtask verify simulation -- --seed {seed} --trace{without}")
}
