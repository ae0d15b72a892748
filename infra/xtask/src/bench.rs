//! `cargo xtask bench`: runs the program `bench` of `ebb-tests`.

use std::ffi::OsString;

use crate::run::{cargo, command, folder, root, run};
use crate::tools;

/// Runs a measurement: its name and its options, which `bench --help` lists. Fails if a bound does not hold.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
    match arguments.first().and_then(|measurement| measurement.to_str()) {
        Some("peers") => {
            if !arguments.contains(&"--only-ebb".into()) {
                tools::node(&root().join("tests/peers/restate"), &root().join("target/peers/restate"))?;
            }
            released(arguments)
        }
        Some("scale") => released(arguments),
        _ => program(arguments),
    }
}

/// Builds `bench` and `ebb` like a release and runs the measurement.
fn released(arguments: &[OsString]) -> anyhow::Result<()> {
    run(cargo().args(["build", "--release", "--quiet", "-p", "ebb-tests", "--bin", "bench"]))?;
    // Alone, because the features of the tests change what `ebb` contains.
    run(cargo().args(["build", "--release", "--quiet", "-p", "ebb", "--bin", "ebb"]))?;
    run(command(folder().join("release/bench")).args(arguments))
}

/// Builds the program `bench` and runs it.
fn program(arguments: &[OsString]) -> anyhow::Result<()> {
    run(cargo().args(["build", "--quiet", "-p", "ebb-tests", "--bin", "bench"]))?;
    run(command(folder().join("debug/bench")).args(arguments))
}
