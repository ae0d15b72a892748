//! `cargo xtask bench`: runs the program `bench` of `ebb-tests`.

use std::ffi::OsString;

use crate::run::{cargo, command, folder, root, run};
use crate::tools;

/// Runs a measurement: its name and its options, which `bench --help` lists. Fails if a bound does not hold. Loads and
/// comparisons run `bench` and `ebb` like a release.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
    let measurement = arguments.first().and_then(|measurement| measurement.to_str());
    if measurement == Some("peers") && !arguments.contains(&"--only-ebb".into()) {
        tools::node(&root().join("tests/peers/restate"), &root().join("target/peers/restate"))?;
    }
    let is_released = matches!(measurement, Some("peers" | "scale"));
    let (profile, place) = if is_released { (Some("--release"), "release/bench") } else { (None, "debug/bench") };
    run(cargo().args(["build", "--quiet", "-p", "ebb-tests", "--bin", "bench"]).args(profile))?;
    if is_released {
        // Alone, because the features of the tests change what `ebb` contains.
        run(cargo().args(["build", "--release", "--quiet", "-p", "ebb", "--bin", "ebb"]))?;
    }
    run(command(folder().join(place)).args(arguments))
}
