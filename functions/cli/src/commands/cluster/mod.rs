//! The subcommands of `ebb cluster`.

mod connect;
mod disconnect;
mod list;
mod release;
mod values;

use clap::Subcommand;

use crate::commands::connect as server_of;
use crate::exit::{Exit, Result};
use crate::output::OutputArgs;
use crate::server::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Register a cluster or change its options, and install its relay with helm or print the commands for it
    ///
    /// The command can be repeated. It starts from the values of the release, and the relay keeps its secret.
    Connect(Box<connect::ClusterConnectArgs>),
    /// List connected clusters and the state of their relays
    List(OutputArgs),
    /// Show the relay, the policy in force and the registration of a cluster
    Get(list::ClusterGetArgs),
    /// Issue another bootstrap token, with which the relay replaces its secret
    Rotate(connect::ClusterRotateArgs),
    /// Delete the registration of a cluster, and print the commands that remove its relay
    Disconnect(disconnect::ClusterDisconnectArgs),
}

impl ClusterCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        match self {
            Self::Connect(args) => args.run(&server_of(server)?).await,
            Self::List(output) => list::run(&server_of(server)?, output).await,
            Self::Get(args) => args.run(&server_of(server)?).await,
            Self::Rotate(args) => args.run(&server_of(server)?).await,
            Self::Disconnect(args) => args.run(&server_of(server)?).await,
        }
    }
}
