//! The subcommands of `ebb sandbox`. They post the same lifecycle webhooks as a platform.

pub(super) mod apply;
mod delete;
mod env;
mod event;
mod get;
mod history;
mod list;
mod wait;

use std::time::Duration;

use clap::{ArgAction, Subcommand};

use crate::exit::{Exit, Result};
use crate::server::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Create or update a sandbox; retry a failed one
    Apply(apply::SandboxApplyArgs),
    /// Show a sandbox with its resources, runs and units
    Get(get::SandboxGetArgs),
    /// List sandboxes
    List(list::SandboxListArgs),
    /// Show who changed a sandbox, when and why
    History(history::SandboxHistoryArgs),
    /// Print the environment of a ready sandbox for a shell or CI system
    Env(env::SandboxEnvArgs),
    /// Wait until sandboxes are ready or gone
    Wait(Box<wait::SandboxWaitArgs>),
    /// Run the units of an event, such as `sleep`
    Event(event::SandboxEventArgs),
    /// Delete sandboxes and their resources
    Delete(Box<delete::SandboxDeleteArgs>),
}

impl SandboxCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        match self {
            Self::Apply(args) => args.run(server).await,
            Self::Get(args) => args.run(&super::connect(server)?).await,
            Self::List(args) => args.run(&super::connect(server)?).await,
            Self::History(args) => args.run(&super::connect(server)?).await,
            Self::Env(args) => args.run(&super::connect(server)?).await,
            Self::Wait(args) => args.run(&super::connect(server)?).await,
            Self::Event(args) => args.run(&super::connect(server)?).await,
            Self::Delete(args) => args.run(server).await,
        }
    }
}

/// The option `--wait` of commands that change a sandbox.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WaitArgs {
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
    /// Returns the maximum wait. With `None` the command ends as soon as the server has accepted the webhook.
    pub(super) fn limit(&self, timeout: Duration) -> Option<Duration> {
        self.wait.then_some(timeout)
    }
}
