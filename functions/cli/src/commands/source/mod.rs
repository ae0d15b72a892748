//! The subcommands of `ebb source`.

mod new;
mod test;

use clap::Subcommand;

use crate::exit::{CliError, Exit};

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Print a source as a starting point, and the setup of its sender
    New(new::SourceNewArgs),
    /// Show the effect of an event on a source, without a server
    Test(test::SourceTestArgs),
}

impl SourceCommand {
    pub(crate) fn run(self) -> Result<Exit, CliError> {
        match self {
            Self::New(args) => args.run(),
            Self::Test(args) => args.run(),
        }
    }
}
