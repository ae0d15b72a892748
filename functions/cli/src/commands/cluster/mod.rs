//! The subcommands of `ebb cluster`.

mod connect;
mod disconnect;
mod list;
mod release;
mod values;

use clap::Subcommand;

pub(super) use self::list::run as list;
use crate::output::OutputArgs;

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
