//! Which cluster units run in, for commands that start a server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ebb_local::Kubernetes;

/// Options of a real cluster. Without them scripts are processes of this machine.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A real cluster")]
pub(crate) struct ClusterArgs {
    /// Runs units in this cluster instead of as processes of this machine
    #[arg(long, value_name = "FILE", requires = "reach", requires = "runner_image")]
    kubeconfig: Option<PathBuf>,
    /// The context in that file; without it the current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// The address at which pods of the cluster reach this machine
    #[arg(long, value_name = "ADDRESS", requires = "kubeconfig")]
    reach: Option<IpAddr>,
    /// The port there
    #[arg(long, value_name = "PORT", default_value_t = 7880, requires = "kubeconfig")]
    reach_port: u16,
    /// An image with the runner in it, as /ebb-runner
    #[arg(long, value_name = "IMAGE", requires = "kubeconfig")]
    runner_image: Option<String>,
    /// The namespace of units that name none, made if it is missing
    #[arg(long, value_name = "NAMESPACE", default_value = "ebb-units", requires = "kubeconfig")]
    units: String,
    /// What units may do in the cluster, as YAML; without it what needs no rights outside of their namespace
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    allowed: Option<PathBuf>,
}

impl ClusterArgs {
    /// The cluster, if one is given.
    pub(crate) fn kubernetes(self) -> Option<Kubernetes> {
        Some(Kubernetes {
            kubeconfig: self.kubeconfig?,
            context: self.context,
            reach: SocketAddr::from((self.reach?, self.reach_port)),
            runner_image: self.runner_image?,
            units: self.units,
            allowed: self.allowed,
        })
    }
}
