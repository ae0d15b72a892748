//! The deployment, checked and built as it is deployed.

use std::path::PathBuf;

use crate::run::root;
use crate::summary::TestSummary;
use build::LambdaArchitecture;

mod aws_e2e;
pub(crate) mod build;
mod deploy;
mod functions;
mod lint;

/// Checks the template, builds the functions, deploys them to an AWS of this machine, and starts each under Lambda's
/// emulator. Adds each of these to `summary`.
///
/// # Errors
/// Returns an error if a tool cannot be installed, or finds something wrong.
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

/// What functions have to be built for to run here. Before they are built, which takes minutes.
///
/// # Errors
/// When they cannot run here.
fn runnable() -> anyhow::Result<LambdaArchitecture> {
    aws_e2e::possible()?;
    LambdaArchitecture::of_this_machine()
}

/// The folder of the tools and their output, always in the clone.
fn place() -> PathBuf {
    root().join("target/aws")
}
