//! The deployment: lints of its template, the build of its functions, and tests with emulators.

use std::path::PathBuf;

use crate::run::root;
use crate::summary::TestSummary;
use build::LambdaArchitecture;

mod aws_e2e;
pub(crate) mod build;
mod deploy;
mod functions;
mod lint;

/// Lints the template, builds the functions, deploys them to an emulator, and starts each with Lambda's emulator.
///
/// Adds one test per step to `summary`.
pub(crate) fn all(summary: &mut TestSummary) -> anyhow::Result<()> {
    let architecture = runnable()?;
    lint::all()?;
    summary.add(true);
    build::all(architecture)?;
    summary.add(true);
    deploy::all()?;
    summary.add(true);
    functions::all(architecture)?;
    summary.add(true);
    Ok(())
}

/// Returns the architecture of this machine. Fails before the build, which takes minutes, if tests cannot run here.
fn runnable() -> anyhow::Result<LambdaArchitecture> {
    aws_e2e::check_namespaces()?;
    LambdaArchitecture::of_this_machine()
}

/// Returns the folder of the tools and their output. It does not depend on `CARGO_TARGET_DIR`.
fn output_folder() -> PathBuf {
    root().join("target/aws")
}
