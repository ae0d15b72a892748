//! `ebb cluster`.

mod connect;

use clap::Subcommand;

use crate::exit::{Exit, Trouble};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what connects a cluster: manifests for the cluster, an entry for the control plane
    Connect(connect::Args),
}

impl Command {
    pub(crate) fn run(self) -> Result<Exit, Trouble> {
        match self {
            Self::Connect(args) => args.run(),
        }
    }
}
