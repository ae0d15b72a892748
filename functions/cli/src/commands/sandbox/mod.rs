//! The subcommands of `ebb sandbox`. They post the lifecycle webhooks that a platform posts.

mod apply;
mod delete;
mod get;
mod list;

use std::time::Duration;

use clap::{ArgAction, Subcommand};

use crate::exit::{CliError, Exit};
use crate::lifecycle::WaitLimit;
use crate::server::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Create or update a sandbox; retry a failed one
    Apply(apply::SandboxApplyArgs),
    /// Show a sandbox with its resources, runs and units
    Get(get::SandboxGetArgs),
    /// List sandboxes
    List(list::SandboxListArgs),
    /// Delete a sandbox and its resources
    Delete(Box<delete::SandboxDeleteArgs>),
}

impl SandboxCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        match self {
            Self::Apply(args) => args.run(server).await,
            Self::Get(args) => args.run(&super::connect(server)?).await,
            Self::List(args) => args.run(&super::connect(server)?).await,
            Self::Delete(args) => args.run(server).await,
        }
    }
}

/// The option `--wait` of commands that change a sandbox.
#[derive(Clone, Debug, clap::Args)]
struct WaitArgs {
    /// Wait until the change has ended
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    wait: bool,
}

impl WaitArgs {
    fn limit(&self, timeout: Duration) -> WaitLimit {
        if self.wait { WaitLimit::For(timeout) } else { WaitLimit::No }
    }
}
