//! `cargo xtask build`: what is shipped beside the `ebb` program.

use clap::Subcommand;

use crate::aws::build as functions;
use crate::cluster::BinarySet;
use crate::{chart, entrypoint, images};

/// A thing to build.
#[derive(Subcommand)]
pub(crate) enum BuildCommand {
    /// The program that is copied into pods: static, at most 3 MB
    Entrypoint,
    /// The relay and the entrypoint, an image of each, as archives that container engines load
    Images(images::ImagesArgs),
    /// The four functions as they are deployed, with their sizes beside a function that does nothing
    Functions(functions::FunctionsBuildArgs),
    /// The relay's manifests, rendered from its chart into infra/relay/manifests.yaml; needs Go, to build helm
    Chart {
        /// Compares them with the file instead
        #[arg(long)]
        check: bool,
    },
    /// The OpenTelemetry collector that tests send spans to; prints its path; needs Go
    Collector,
}

/// Builds it.
///
/// # Errors
/// Returns an error if something does not compile or does not meet its limits.
pub(crate) fn all(order: &BuildCommand) -> anyhow::Result<()> {
    match order {
        BuildCommand::Entrypoint => entrypoint::all(),
        BuildCommand::Images(arguments) => images::all(arguments),
        BuildCommand::Functions(arguments) => functions::all(arguments.architecture()),
        BuildCommand::Chart { check: true } => chart::all(chart::ChartAction::Compare),
        BuildCommand::Chart { check: false } => chart::all(chart::ChartAction::Write),
        BuildCommand::Collector => {
            println!("{}", BinarySet::Collector.built()?.join("collector").display());
            Ok(())
        }
    }
}
