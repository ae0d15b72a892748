//! Small sizes of what `cargo xtask bench large` measures.

use std::process::Command;

#[test]
fn invocations_stay_within_their_limits() {
    let output = Command::new(env!("CARGO_BIN_EXE_large"))
        .args(["--units", "300", "--gone", "500", "--living", "150", "--resources", "50"])
        .output()
        .unwrap();
    let (table, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{table}\n{rest}");
    // At most two pages of many targets are read, and only the shown ones of many outputs.
    for (case, most) in [("ready", 40), ("list", 4)] {
        let line = table.lines().find(|line| line.starts_with(case)).unwrap();
        let counts =
            line.split_whitespace().skip(5).filter_map(|word| word.trim_matches(',').parse::<u64>().ok());
        assert!(counts.sum::<u64>() <= most, "{table}");
    }
}
