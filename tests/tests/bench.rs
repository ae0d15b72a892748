//! Runs the measurements of `cargo xtask bench` with small sizes and checks their limits.

use std::process::Command;

/// Runs a measurement, which must succeed.
fn bench(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().unwrap();
    let (printed, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{rest}");
}

#[test]
fn small_runs_stay_within_their_costs() {
    bench(&["counts", "--check", "--sizes", "10,100", "--answers", "at-once,later"]);
    // The last completions of this run cost two write units.
    bench(&["counts", "--check", "--sizes", "500", "--shapes", "diamond", "--answers", "later"]);
}

#[test]
fn a_million_units_stay_within_their_price() {
    bench(&["prices"]);
}

#[test]
fn an_hour_of_waiting_and_lists_stay_within_their_costs() {
    bench(&["polling"]);
    bench(&["lists"]);
}
