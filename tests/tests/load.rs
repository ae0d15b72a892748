//! A few of the runs of `cargo xtask load`.

use std::process::Command;

#[test]
fn nothing_is_lost_and_siblings_do_not_meet() {
    // Enough faults that both kinds are there for sure.
    let arguments = ["--runs", "30", "--callers", "64", "--failing", "2", "--lost", "2"];
    let output = Command::new(env!("CARGO_BIN_EXE_load")).args(arguments).output().unwrap();
    let (figures, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{figures}\n{rest}");
    println!("{figures}");
}
