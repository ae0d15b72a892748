//! `cargo xtask build`: what is shipped beside the `ebb` program.

use clap::Subcommand;

use crate::aws::build as functions;
use crate::cluster::Set;
use crate::{chart, images, runner};

/// A thing to build.
#[derive(Subcommand)]
pub(crate) enum Order {
    /// The program that is copied into pods: static, at most 3 MB
    Runner,
    /// The relay and the runner, an image of each, as archives that container engines load
    Images(images::Arguments),
    /// The four functions as they are deployed, with their sizes beside a function that does nothing
    Functions(functions::Arguments),
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
pub(crate) fn all(order: &Order) -> anyhow::Result<()> {
    match order {
        Order::Runner => runner::all(),
        Order::Images(arguments) => images::all(arguments),
        Order::Functions(arguments) => functions::all(arguments.architecture()),
        Order::Chart { check: true } => chart::all(chart::Do::Compare),
        Order::Chart { check: false } => chart::all(chart::Do::Write),
        Order::Collector => {
            println!("{}", Set::Collector.built()?.join("collector").display());
            Ok(())
        }
    }
}
