//! Which cluster units run in, for commands that start a server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ebb_flow::observe::Collector;
use ebb_local::{Containers, Kubernetes, Relays, Settings, Units};

use crate::exit::Trouble;

/// Options of real clusters. Without them scripts are processes of this machine.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Real clusters")]
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
    /// Runs units in clusters whose relays are installed there: a JSON file of NAME: {url, secret, uid, runnerImage}
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    clusters: Option<PathBuf>,
    /// Networks in which those relays are, separated by commas, if they are not public
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true, requires = "clusters")]
    relay_networks: String,
    /// The address of this machine at which the server listens and at which those relays call back
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
}

impl ClusterArgs {
    /// What they say of a server; without them its units are `containers`, or else processes of this machine.
    ///
    /// # Errors
    /// When nobody could be told to call back there.
    pub(crate) fn settings(self, containers: Option<Containers>) -> Result<Settings, Trouble> {
        if self.listen.is_unspecified() {
            return Err(Trouble::broken(format!("--listen {} is no address to call back at", self.listen))
                .next("give one address of this machine"));
        }
        let relays = self
            .clusters
            .clone()
            .map(|clusters| Units::Relays(Relays { clusters, networks: self.relay_networks.clone() }));
        let listen = Some(self.listen);
        let units = relays.or_else(|| self.kubernetes().map(Units::Cluster));
        let units = units.or(containers.map(Units::Containers)).unwrap_or_default();
        Ok(Settings { listen, units, collector: collector()?, ..Settings::default() })
    }

    /// The cluster, if one is given.
    fn kubernetes(self) -> Option<Kubernetes> {
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

/// The collector of spans that the environment names, as for any program that uses OpenTelemetry.
fn collector() -> Result<Option<Collector>, Trouble> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let (endpoint, headers) =
        (variable("OTEL_EXPORTER_OTLP_ENDPOINT"), variable("OTEL_EXPORTER_OTLP_HEADERS"));
    Collector::parse(&endpoint, &headers).map_err(|error| Trouble::broken(error.to_string()))
}
