//! `cargo xtask bench scale` with small sizes.

use std::process::Command;

#[test]
fn every_size_has_a_row() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(["scale", "--runs", "4,8", "--units", "20,40", "--gone", "30", "--callers", "4", "--seconds", "1"]);
    let output = bench.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    // `numbers` returns `None` for a line with titles.
    let rows: Vec<Vec<f64>> = stdout.lines().filter_map(numbers).collect();
    let shapes: Vec<(f64, usize)> = rows.iter().map(|row| (row[0], row.len())).collect();
    assert_eq!(shapes, [(4.0, 6), (8.0, 6), (20.0, 6), (40.0, 6), (30.0, 2)], "{stdout}");
    assert!(rows.iter().flatten().all(|number| *number > 0.0), "{stdout}");
}
