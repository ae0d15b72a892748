//! The figures that the design promises, for small runs of every shape.

use std::process::Command;

#[test]
fn small_runs_cost_what_is_promised() {
    let output = Command::new(env!("CARGO_BIN_EXE_counts"))
        .args(["--check", "--sizes", "10,100", "--answers", "at-once,later"])
        .output()
        .unwrap();
    let (table, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{table}\n{rest}");
}
