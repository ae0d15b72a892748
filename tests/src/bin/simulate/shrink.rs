//! Reduces the kinds of faults of a failing simulation.

use ebb_tests::simulation::{FaultKind, TraceMode, simulate};

/// Excludes kinds of faults as long as the simulation still fails. Returns the command that repeats it.
pub(crate) fn command(seed: u64, excluded: &[FaultKind]) -> String {
    let mut least = excluded.to_vec();
    let reached = simulate(seed, excluded, TraceMode::Off).injected;
    for (kind, reached) in FaultKind::ALL.iter().zip(reached) {
        let without = [least.clone(), vec![*kind]].concat();
        if reached > 0 && !simulate(seed, &without, TraceMode::Off).violations.is_empty() {
            least = without;
        }
    }
    let names: Vec<&str> = least.iter().map(|kind| kind.name()).collect();
    let without = if names.is_empty() { String::new() } else { format!(" --without {}", names.join(",")) };
    format!("cargo xtask verify simulation -- --seed {seed} --trace{without}")
}
