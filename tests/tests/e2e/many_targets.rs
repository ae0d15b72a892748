//! `cargo xtask bench many-targets` with few targets.

use std::process::Command;

#[test]
fn many_targets_are_created_and_deleted_twice() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(["many-targets", "--targets", "60"]);
    let output = bench.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    println!("{stdout}");
}
