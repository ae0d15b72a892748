//! `cargo xtask test`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::python::Tools;
use crate::run::{cargo, line};
use crate::summary::Summary;
use crate::{api, cluster, collector, dynamodb_local, packages, runner};

/// Installs what is missing, runs all tests and ends with one line that sums them up.
///
/// # Errors
/// When something cannot be installed, does not compile, or a test fails.
pub(crate) fn all() -> anyhow::Result<()> {
    packages::install(&packages::OF_TESTS)?;
    Tools::Api.install()?;
    dynamodb_local::fetch()?;
    collector::built()?;
    // Its tests would build it too, while others run.
    runner::all()?;
    let cluster = cluster::Borrowed::up().context("the tests need a cluster")?;
    let mut summary = Summary::default();
    // A failure in one crate says nothing of the others: the whole picture in one go.
    let all = tests(&["--workspace", "--no-fail-fast"], &[], &mut summary);
    // The model has both processors to itself.
    drop(cluster);
    // No program is built with rules that can be left out. The workspace: so the packages of others are those from before.
    let switched = ["--workspace", "--features", "ebb-tests/switches", "--test", "model"];
    let model = tests(&switched, &[], &mut summary);
    // After the tests, whose packages and programs it uses as they were built.
    let api = api::all(&api::Arguments::default());
    summary.add(api.is_ok());
    // Whoever reads may be gone; the exit code tells.
    let _ = writeln!(std::io::stdout(), "{summary}");
    all.and(model).and(api)
}

/// Runs one test with `variables`, and shows what it prints. `targets` are the file that has it and those whose packages'
/// programs it starts: cargo builds these beside them. Of the workspace: so the packages of others are those of all tests.
///
/// # Errors
/// When something does not compile, the test fails, or there is none of this name.
pub(crate) fn one(targets: &[&str], test: &str, variables: &[(&str, String)]) -> anyhow::Result<()> {
    let targets = targets.iter().flat_map(|target| ["--test", target]);
    let chosen = ["--", "--exact", "--nocapture", test];
    let arguments: Vec<&str> = std::iter::once("--workspace").chain(targets).chain(chosen).collect();
    tests(&arguments, variables, &mut Summary::default())
}

/// Runs `cargo test`, shows what it prints, and adds its counts to `summary`.
fn tests(arguments: &[&str], variables: &[(&str, String)], summary: &mut Summary) -> anyhow::Result<()> {
    let mut command = cargo();
    // The whole workspace is built before its first test runs: stories need not build the program once more, which they
    // would do with other features of others' packages.
    command.arg("test").args(arguments).env("EBB_IS_BUILT", "1").stdout(Stdio::piped());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let shown = line(&command);
    let before = summary.passed;
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = child.stdout.take().context("a pipe was asked for")?;
    for printed in BufReader::new(stdout).split(b'\n') {
        let printed = printed?;
        let printed = String::from_utf8_lossy(&printed);
        summary.read(&printed);
        // Whoever reads may be gone; the tests go on, and the exit code tells.
        let _ = writeln!(std::io::stdout(), "{printed}");
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    if summary.passed == before {
        bail!("`{shown}` ran no test");
    }
    Ok(())
}
