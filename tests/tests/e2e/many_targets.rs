//! A few of the many targets that `cargo xtask bench many-targets` asks for at once.

use std::process::Command;

#[test]
fn all_are_made_and_all_are_taken_away_twice() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(["many-targets", "--targets", "60"]);
    let output = bench.output().unwrap();
    let (figures, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{figures}\n{rest}");
    println!("{figures}");
}
