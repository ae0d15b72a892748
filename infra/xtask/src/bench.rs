//! `cargo xtask bench`: runs the program `bench` of `ebb-tests`.

use std::ffi::OsString;
use std::fs;

use clap::ValueEnum;

use crate::cluster::folder::{kubeconfig, remove, state};
use crate::cluster::{self, ClusterGuard, images};
use crate::run::{cargo, command, folder, run};
use crate::{entrypoint, peers};

/// The image that contains only the entrypoint.
const ENTRYPOINT: &str = "ebb.test/runner:1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchKind {
    /// Count requests and write units of runs by shape and size: --sizes, --shapes, --answers, --check, -o json
    Counts,
    /// Compute the cost on AWS from counts and list prices
    Prices,
    /// Run many targets at once on one `ebb dev`: --targets
    ManyTargets,
    /// Measure time, requests and memory of invocations with large runs and tables: --units, --gone, --living,
    /// --resources
    Large,
    /// Measure the time between the scripts of a chain in a cluster, and of bare Jobs: --units, --rounds; needs root
    /// and Go
    Chains,
    /// Run the same units on Ebb, Restate, DBOS and Temporal, and compare time, CPU and memory: --rounds, --callers,
    /// --seconds, --only, --shapes, --dev; needs Node.js, Python and Go
    Peers,
    /// Measure CPU and memory of one `ebb dev` over decades of runs, units and gone targets: --runs, --units, --gone,
    /// --callers, --seconds
    Scale,
    /// Load and compile every document of a folder
    Corpus,
}

/// Runs a measurement with `arguments`. Fails if a bound does not hold.
pub(crate) fn all(measurement: BenchKind, arguments: Vec<OsString>) -> anyhow::Result<()> {
    match measurement {
        BenchKind::Chains => chains(arguments),
        BenchKind::Peers => compared(&arguments),
        BenchKind::Scale => released(measurement, &arguments),
        _ => program(measurement, &arguments),
    }
}

/// Measures chains of scripts in a cluster that has the image of the entrypoint.
fn chains(arguments: Vec<OsString>) -> anyhow::Result<()> {
    let built = entrypoint::built()?;
    let _cluster = ClusterGuard::up()?;
    let (netns, layer) = (cluster::found()?, state().join("entrypoint"));
    remove(&layer)?;
    fs::create_dir_all(&layer)?;
    fs::copy(built, layer.join("ebb-entrypoint"))?;
    images::import(&netns, ENTRYPOINT, &layer, &["/ebb-entrypoint".to_owned()])?;
    remove(&layer)?;
    let options: [(&str, OsString); 5] = [
        ("--kubeconfig", kubeconfig().into()),
        ("--kubectl", state().join("bin/kubectl").into()),
        ("--advertise-address", netns.network.host().into()),
        ("--entrypoint-image", ENTRYPOINT.into()),
        ("--image", images::DEBIAN.into()),
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name.into(), value]);
    program(BenchKind::Chains, &options.chain(arguments).collect::<Vec<_>>())
}

/// Installs other engines and compares `ebb` with them.
fn compared(arguments: &[OsString]) -> anyhow::Result<()> {
    let options = peers::installed(arguments)?;
    released(BenchKind::Peers, &[&options[..], arguments].concat())
}

/// Builds `bench` and `ebb` like a release and runs the measurement.
fn released(measurement: BenchKind, arguments: &[OsString]) -> anyhow::Result<()> {
    run(cargo().args(["build", "--release", "--quiet", "-p", "ebb-tests", "--bin", "bench"]))?;
    // Alone, because the features of the tests change what `ebb` contains.
    run(cargo().args(["build", "--release", "--quiet", "-p", "ebb", "--bin", "ebb"]))?;
    start("release", measurement, arguments)
}

/// Builds the program `bench` and runs it.
fn program(measurement: BenchKind, arguments: &[OsString]) -> anyhow::Result<()> {
    // `many-targets` and `chains` start `ebb`, which expects the relay in its own folder.
    let packages = ["-p", "ebb-tests", "-p", "ebb", "-p", "ebb-relay"];
    let programs = ["--bin", "bench", "--bin", "ebb", "--bin", "ebb-relay"];
    run(cargo().args(["build", "--quiet"]).args(packages).args(programs))?;
    start("debug", measurement, arguments)
}

/// Runs the built program `bench`.
fn start(profile: &str, measurement: BenchKind, arguments: &[OsString]) -> anyhow::Result<()> {
    let name = measurement.to_possible_value();
    let name = name.as_ref().map_or("", |name| name.get_name());
    run(command(folder().join(profile).join("bench")).arg(name).args(arguments))
}
