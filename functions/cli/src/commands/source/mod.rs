//! The subcommands of `ebb source`.

mod apply;
mod get;
mod new;
mod test;

use clap::Subcommand;

use crate::exit::{CliError, Exit};
use crate::server::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Print a source as a starting point, and the setup of its sender
    New(new::SourceNewArgs),
    /// Show the effect of an event on a source, without a server
    Test(test::SourceTestArgs),
    /// Create or replace a source
    Apply(apply::SourceApplyArgs),
    /// List sources
    List(get::SourceListArgs),
    /// Show a source and its rejected events
    Get(get::SourceGetArgs),
    /// Delete a source; the targets that its events created stay
    Delete(get::SourceDeleteArgs),
}

impl SourceCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        match self {
            Self::New(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Apply(args) => args.run(server).await,
            Self::List(args) => args.run(&super::connect(server)?).await,
            Self::Get(args) => args.run(&super::connect(server)?).await,
            Self::Delete(args) => args.run(&super::connect(server)?).await,
        }
    }
}
