//! Measurements of `cargo xtask bench` with small sizes.

use std::process::Command;

/// Returns what a measurement prints.
fn bench(arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments.split(' ')).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    stdout.into_owned()
}

#[test]
fn every_size_has_a_row() {
    let stdout = bench("scale --runs 4,8 --units 20,40 --gone 30 --callers 4 --seconds 1");
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    // `numbers` returns `None` for a line with titles.
    let rows: Vec<Vec<f64>> = stdout.lines().filter_map(numbers).collect();
    let shapes: Vec<(f64, usize)> = rows.iter().map(|row| (row[0], row.len())).collect();
    assert_eq!(shapes, [(4.0, 6), (8.0, 6), (20.0, 6), (40.0, 6), (30.0, 2)], "{stdout}");
    assert!(rows.iter().flatten().all(|number| *number > 0.0), "{stdout}");
}

#[test]
fn every_measurement_has_a_value_of_ebb() {
    let stdout = bench("peers --only-ebb --rounds 1 --seconds 1 --callers 4");
    let rows: Vec<&str> = stdout.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert_eq!(rows.len(), 9, "{stdout}");
    for row in rows {
        // TITLE | MEDIAN (LEAST–GREATEST) |
        let cell = row.split(" | ").nth(1).unwrap();
        let median: f64 = cell.split(' ').next().unwrap().parse().unwrap();
        assert!(median > 0.0, "{row}");
    }
}
