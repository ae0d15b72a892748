//! `cargo xtask bench peers` with Ebb alone.

use std::process::Command;

#[test]
fn every_measurement_has_a_value_of_ebb() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(["peers", "--only", "ebb", "--rounds", "1", "--seconds", "1", "--callers", "4"]);
    let output = bench.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let rows: Vec<&str> = stdout.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert_eq!(rows.len(), 9, "{stdout}");
    for row in rows {
        // TITLE | MEDIAN (LEAST–GREATEST) |
        let cell = row.split(" | ").nth(1).unwrap();
        let median: f64 = cell.split(' ').next().unwrap().parse().unwrap();
        assert!(median > 0.0, "{row}");
    }
}
