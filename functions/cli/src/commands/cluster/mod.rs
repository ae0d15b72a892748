//! The subcommands of `ebb cluster`.

mod connect;
mod list;

use clap::Subcommand;

use crate::commands::connect as server_of;
use crate::exit::{Exit, Result};
use crate::output::OutputArgs;
use crate::server::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Print the manifests of a relay and the control plane's entry for its cluster
    Connect(Box<connect::ClusterConnectArgs>),
    /// List connected clusters and the state of their relays
    List(OutputArgs),
}

impl ClusterCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        match self {
            Self::Connect(args) => args.run(),
            Self::List(output) => list::run(&server_of(server)?, output).await,
        }
    }
}
