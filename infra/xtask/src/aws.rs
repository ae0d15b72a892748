//! `cargo xtask aws`: the deployment, checked and built as it is deployed.

use std::path::PathBuf;

use crate::run::root;
use build::Architecture;

mod build;
mod deploy;
mod deployed;
mod functions;
mod lint;

/// What is done.
#[derive(clap::Subcommand)]
pub(crate) enum Order {
    /// What SAM, cfn-lint and checkov say of the template
    Lint,
    /// Builds the four functions as they are deployed, and prints how large they are
    Build(build::Arguments),
    /// Builds them for this machine, deploys them to an AWS of it, and has lives go through them; needs root
    Deploy,
    /// Builds them for this machine, and runs each under Lambda's runtime interface emulator in front of DynamoDB Local; needs
    /// root
    Functions(functions::Arguments),
}

/// Does it.
///
/// # Errors
/// When a tool cannot be had, or finds something wrong.
pub(crate) fn all(order: Option<Order>) -> anyhow::Result<()> {
    match order {
        Some(Order::Lint) => lint::all(),
        Some(Order::Build(arguments)) => build::all(arguments.architecture()),
        Some(Order::Deploy) => {
            build::all(runnable()?)?;
            deploy::all()
        }
        Some(Order::Functions(arguments)) => {
            let architecture = runnable()?;
            build::all(architecture)?;
            functions::all(&arguments, architecture)
        }
        None => {
            let architecture = runnable()?;
            lint::all()?;
            build::all(architecture)?;
            deploy::all()?;
            functions::all(&functions::Arguments::default(), architecture)
        }
    }
}

/// What functions have to be built for to run here. Before they are built, which takes minutes.
///
/// # Errors
/// When they cannot run here.
fn runnable() -> anyhow::Result<Architecture> {
    deployed::possible()?;
    Architecture::of_this_machine()
}

/// Where tools and what they build are. Always in the clone, wherever cargo builds: people and `ebb deploy` look here.
fn place() -> PathBuf {
    root().join("target/aws")
}
