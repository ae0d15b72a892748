//! Runs the measurements of `cargo xtask bench` with small sizes and checks their limits.

use std::process::Command;

/// Runs a measurement, which must succeed, and returns its output.
fn bench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().unwrap();
    let (printed, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{rest}");
    printed.into_owned()
}

#[test]
fn small_runs_stay_within_their_costs() {
    bench(&["counts", "--check", "--sizes", "10,100", "--answers", "at-once,later"]);
    // The state of this run takes two items of the table.
    bench(&["counts", "--check", "--sizes", "300", "--shapes", "diamond", "--answers", "later"]);
}

#[test]
fn a_million_units_stay_within_their_price() {
    bench(&["prices"]);
}

#[test]
fn an_hour_of_waiting_stays_within_its_costs() {
    bench(&["polling"]);
}

#[test]
fn an_engine_that_does_not_start_is_named_with_the_reason() {
    let empty = tempfile::tempdir().unwrap();
    let tools = empty.path().to_str().unwrap();
    let printed =
        bench(&["peers", "--only", "restate,dbos,temporal", "--tools", tools, "--missing", "dbos=no registry"]);
    for line in
        ["Restate: not started: cannot start", "DBOS: not started: no registry", "Temporal: not started: cannot"]
    {
        assert!(printed.lines().any(|printed| printed.starts_with(line)), "{printed}");
    }
    // A table without an engine would be a made-up one.
    assert!(!printed.contains('|'), "{printed}");
}
