//! The cluster in which units run, for commands that start a server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ebb_flow::telemetry::Telemetry;
use ebb_local::{ContainerEngine, KubernetesOptions, RemoteRelays, StackSettings, UnitBackend};

use crate::exit::CliError;

/// Options of clusters. Without them scripts are processes of this machine.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct ClusterArgs {
    /// Runs units in this cluster instead of as processes of this machine
    #[arg(long, value_name = "FILE", requires = "advertise_address", requires = "entrypoint_image")]
    kubeconfig: Option<PathBuf>,
    /// The context in that file; without it the current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// The address at which pods of the cluster reach this machine
    #[arg(long, value_name = "ADDRESS", requires = "kubeconfig")]
    advertise_address: Option<IpAddr>,
    /// The port there
    #[arg(long, value_name = "PORT", default_value_t = 7880, requires = "kubeconfig")]
    advertise_port: u16,
    /// An image with the entrypoint in it, as /ebb-entrypoint
    #[arg(long, value_name = "IMAGE", requires = "kubeconfig")]
    entrypoint_image: Option<String>,
    /// The namespace of units that name none, created if it is missing
    #[arg(long, value_name = "NAMESPACE", default_value = "ebb-units", requires = "kubeconfig")]
    unit_namespace: String,
    /// The policy: what units may do in the cluster, as YAML; the default needs no rights outside of their namespace
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    policy: Option<PathBuf>,
    /// The program of the cluster's relay, which runs beside the server; without it `ebb-relay` beside this program or
    /// in PATH
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    relay: Option<PathBuf>,
    /// Runs units in clusters whose relays are installed there: a JSON file of NAME: {url, secret, uid,
    /// entrypointImage}
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
    /// Returns the settings of a server; without options its units are `containers`, or else processes of this machine.
    ///
    /// # Errors
    /// The address cannot receive callbacks, or the program of the relay is missing.
    pub(crate) fn settings(self, containers: Option<ContainerEngine>) -> Result<StackSettings, CliError> {
        if self.listen.is_unspecified() {
            return Err(CliError::broken(format!("--listen {} is no address to call back at", self.listen))
                .with_hint("give one address of this machine"));
        }
        let relays = self.clusters.clone().map(|clusters| {
            UnitBackend::RemoteRelays(RemoteRelays { clusters, networks: self.relay_networks.clone() })
        });
        let listen = Some(self.listen);
        let units = match relays {
            None => self.kubernetes()?.map(UnitBackend::Cluster),
            relays => relays,
        };
        let units = units.or(containers.map(UnitBackend::Containers)).unwrap_or_default();
        Ok(StackSettings { listen, units, telemetry: Arc::new(telemetry()?), ..StackSettings::default() })
    }

    /// Returns the cluster, if one is given.
    fn kubernetes(self) -> Result<Option<KubernetesOptions>, CliError> {
        let (Some(kubeconfig), Some(address), Some(entrypoint_image)) =
            (self.kubeconfig, self.advertise_address, self.entrypoint_image)
        else {
            return Ok(None);
        };
        Ok(Some(KubernetesOptions {
            relay: relay(self.relay)?,
            kubeconfig,
            context: self.context,
            advertise_address: SocketAddr::from((address, self.advertise_port)),
            entrypoint_image,
            unit_namespace: self.unit_namespace,
            policy: self.policy,
        }))
    }
}

/// Finds the program of a relay: the given one, or else the first that exists.
fn relay(given: Option<PathBuf>) -> Result<PathBuf, CliError> {
    let (places, missing) = match given {
        Some(file) => {
            let missing = format!("the relay {} does not exist", file.display());
            (vec![file], missing)
        }
        None => {
            let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders = beside.into_iter().chain(std::env::split_paths(&path));
            let missing = "there is no `ebb-relay` beside this program or in PATH".to_owned();
            (folders.map(|folder| folder.join("ebb-relay")).collect(), missing)
        }
    };
    let found = places.into_iter().filter_map(|place| std::path::absolute(place).ok()).find(|place| place.is_file());
    found.ok_or_else(|| {
        CliError::broken(missing)
            .with_hint(
                "build it with `cargo build -p ebb-relay`, or install it with `cargo install --path functions/relay`",
            )
            .with_hint("name it by --relay, if it is elsewhere")
    })
}

/// Names the collector of spans, as for any program that uses OpenTelemetry.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Spans go to the collector that the environment names.
#[cfg(feature = "otlp")]
fn telemetry() -> Result<Telemetry, CliError> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let collector = ebb_otlp::OtlpExporter::open(&variable(ENDPOINT), &variable("OTEL_EXPORTER_OTLP_HEADERS"))
        .map_err(|error| CliError::broken(error.to_string()))?;
    let telemetry = Telemetry::default();
    Ok(match collector {
        Some(collector) => telemetry.with_spans(collector),
        None => telemetry,
    })
}

/// Spans go nowhere. A collector that the environment names will wait for them, so that is said.
#[cfg(not(feature = "otlp"))]
fn telemetry() -> Result<Telemetry, CliError> {
    if std::env::var_os(ENDPOINT).is_some_and(|endpoint| !endpoint.is_empty()) {
        crate::output::status_line(&format!(
            "warning: {ENDPOINT} is set, but this `ebb` was built without the exporter of traces: build it with \
             `--features otlp` to have them"
        ));
    }
    Ok(Telemetry::default())
}
