//! `cargo xtask bench`: the program `bench` of the tests.

use std::ffi::OsString;

use clap::ValueEnum;

use crate::cluster;
use crate::run::{cargo, command, folder, run};

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchKind {
    /// Requests and write units of runs by shape and size: --sizes, --shapes, --answers, --check, -o json
    Counts,
    /// The cost on AWS, by what is counted and list prices
    Prices,
    /// Many targets at once on one `ebb dev`: --targets, --pods
    ManyTargets,
    /// Time, requests and memory of invocations in large runs and tables: --units, --gone, --living, --resources
    Large,
    /// Time between the scripts of a chain in a real cluster, beside bare Jobs: --units, --rounds; needs root and Go
    Chains,
    /// Loads and compiles every document of a folder
    Corpus,
}

/// Builds the program and runs a measurement with `arguments`.
///
/// # Errors
/// Returns an error if the program does not compile, or a bound does not hold.
pub(crate) fn all(measurement: BenchKind, arguments: Vec<OsString>) -> anyhow::Result<()> {
    match measurement {
        BenchKind::Chains => cluster::chains(arguments),
        _ => program(measurement, &arguments),
    }
}

/// Builds the program and runs it.
///
/// # Errors
/// Returns an error if it does not compile or fails.
pub(crate) fn program(measurement: BenchKind, arguments: &[OsString]) -> anyhow::Result<()> {
    // `many-targets` and `chains` start `ebb`, which finds the relay beside itself.
    let packages = ["-p", "ebb-tests", "-p", "ebb", "-p", "ebb-relay"];
    let programs = ["--bin", "bench", "--bin", "ebb", "--bin", "ebb-relay"];
    run(cargo().args(["build", "--quiet"]).args(packages).args(programs))?;
    let name = measurement.to_possible_value();
    let name = name.as_ref().map_or("", |name| name.get_name());
    run(command(folder().join("debug/bench")).arg(name).args(arguments))
}
