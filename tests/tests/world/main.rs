//! Lives of targets in worlds where anything may go wrong.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod every_chance;
mod fair;
mod found;
mod looks;
mod polled;
mod stops;

use std::process::Command;

/// Lives that every run of the tests sees.
const FIXED: &str = "2500";
/// Lives that differ from run to run.
const FRESH: &str = "500";

fn world(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_world")).args(arguments).output().unwrap();
    let (said, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{rest}");
    said.into_owned()
}

#[test]
fn lives_of_known_worlds_leave_nothing() {
    world(&["--lives", FIXED, "--seed", "1"]);
}

/// A failure prints the seed.
#[test]
fn lives_of_worlds_that_nobody_has_seen_leave_nothing() {
    world(&["--lives", FRESH]);
}

#[test]
fn a_world_is_the_same_each_time() {
    let arguments = ["--seed", "7", "--trace"];
    let told = |text: String| {
        text.lines().filter(|line| !line.starts_with("world ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (one, other) = (told(world(&arguments)), told(world(&arguments)));
    assert!(one.len() > 50, "{one:?}");
    assert_eq!(one, other);
}
