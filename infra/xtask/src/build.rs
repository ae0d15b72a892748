//! `cargo xtask build`: builds the artifacts of a release other than `ebb`.

use clap::Subcommand;

use crate::aws::build as functions;
use crate::{entrypoint, images};

#[derive(Subcommand)]
pub(crate) enum BuildCommand {
    /// Build the static program that is copied into pods, at most 3 MB
    Entrypoint,
    /// Build images of the relay and the entrypoint, as archives for container engines
    Images(images::ImagesArgs),
    /// Build the four Lambda functions and print their sizes
    Functions(functions::LambdaArchitecture),
}

pub(crate) fn all(command: &BuildCommand) -> anyhow::Result<()> {
    match command {
        BuildCommand::Entrypoint => entrypoint::all(),
        BuildCommand::Images(arguments) => images::all(arguments),
        BuildCommand::Functions(architecture) => functions::all(*architecture),
    }
}
