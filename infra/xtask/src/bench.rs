//! `cargo xtask bench`: runs the program `bench` of `ebb-tests`.

use std::ffi::OsString;
use std::fs;

use crate::cluster::folder::{kubeconfig, state};
use crate::cluster::{self, ClusterGuard, images};
use crate::run::{cargo, command, folder, remove, root, run};
use crate::{entrypoint, tools};

/// The image that contains only the entrypoint.
const ENTRYPOINT: &str = "ebb.test/runner:1";

/// Runs a measurement: its name and its options, which `bench --help` lists. Fails if a bound does not hold.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
    match arguments.first().and_then(|measurement| measurement.to_str()) {
        Some("chains") => chains(arguments),
        Some("peers") => {
            if !arguments.contains(&"--only-ebb".into()) {
                tools::node(&root().join("tests/peers/restate"), &root().join("target/peers/restate"))?;
            }
            released(arguments)
        }
        Some("owners" | "scale") => released(arguments),
        _ => program(arguments),
    }
}

/// Measures chains of scripts in a cluster that has the image of the entrypoint.
fn chains(arguments: &[OsString]) -> anyhow::Result<()> {
    let built = entrypoint::built()?;
    let _cluster = ClusterGuard::up()?;
    let (netns, layer) = (cluster::found()?, state().join("entrypoint"));
    remove(&layer)?;
    fs::create_dir_all(&layer)?;
    fs::copy(built, layer.join("ebb-entrypoint"))?;
    images::import(&netns, ENTRYPOINT, &layer, &["/ebb-entrypoint".to_owned()])?;
    remove(&layer)?;
    // `ebb` expects the relay in its own folder.
    run(cargo().args(["build", "--quiet", "-p", "ebb", "-p", "ebb-relay"]))?;
    let options: [(&str, OsString); 5] = [
        ("--kubeconfig", kubeconfig().into()),
        ("--kubectl", state().join("bin/kubectl").into()),
        ("--advertise-address", netns.network.host().into()),
        ("--entrypoint-image", ENTRYPOINT.into()),
        ("--image", images::DEBIAN.into()),
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name.into(), value]);
    program(&arguments.iter().cloned().chain(options).collect::<Vec<_>>())
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
