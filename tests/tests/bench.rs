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
fn invocations_stay_within_their_limits() {
    let table = bench(&["large", "--units", "300", "--gone", "500", "--living", "150", "--resources", "50"]);
    // A list reads at most two pages of targets, a target reads its shown outputs only, and a creation reads a plugin once,
    // however many resources have it.
    for (case, max) in [("ready", 40), ("list", 4), ("create", 80)] {
        let line = table.lines().find(|line| line.starts_with(case)).unwrap();
        let counts = line.split_whitespace().skip(5).filter_map(|word| word.trim_matches(',').parse::<u64>().ok());
        assert!(counts.sum::<u64>() <= max, "{table}");
    }
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
