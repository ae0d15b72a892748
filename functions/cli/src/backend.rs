//! Options of the part that runs units, for commands that start a server: processes, containers or clusters.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use ebb_flow::telemetry::Telemetry;
use ebb_local::{ContainerEngine, KubernetesOptions, RemoteRelays, StackSettings, UnitBackend};

use crate::exit::{CliError, Result};

/// Options of the part that runs units. Without options, units run as processes of this machine.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BackendArgs {
    /// Networks and host names of private receivers that requests of units, connections and subscriptions may reach,
    /// such as `10.1.0.0/16,*.svc.internal`
    #[arg(long, value_name = "LIST", env = "EBB_EGRESS_NETWORKS", default_value = "", hide_default_value = true)]
    egress_networks: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    pods: PodsArgs,
}

/// Options of clusters. Without them, scripts run as processes of this machine.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
struct ClusterArgs {
    /// Run units in the cluster of this kubeconfig, not as processes of this machine
    #[arg(long, value_name = "FILE", requires = "advertise_address", requires = "entrypoint_image")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; by default the current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// Address of this machine that pods of the cluster can reach
    #[arg(long, value_name = "ADDRESS", requires = "kubeconfig")]
    advertise_address: Option<IpAddr>,
    /// Port of that address, for callbacks
    #[arg(long, value_name = "PORT", default_value_t = 7880, requires = "kubeconfig")]
    advertise_port: u16,
    /// Image that contains the entrypoint as /ebb-entrypoint
    #[arg(long, value_name = "IMAGE", requires = "kubeconfig")]
    entrypoint_image: Option<String>,
    /// Namespace of units that name none; created if missing
    #[arg(long, value_name = "NAMESPACE", default_value = "ebb-units", requires = "kubeconfig")]
    unit_namespace: String,
    /// Policy for units, a YAML file; by default they have no rights outside of their namespaces
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    policy: Option<PathBuf>,
    /// Relay program to start; by default `ebb-relay` next to this program, else in PATH
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    relay: Option<PathBuf>,
    /// Run units in registered clusters, and in those of FILE, a JSON file of NAME: {url, secret, uid, entrypointImage}
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    clusters: Option<Option<PathBuf>>,
    /// Networks of those relays that are not public, separated by commas
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true, requires = "clusters")]
    relay_networks: String,
    /// Address of this machine to listen on; those relays call back to it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
}

/// The runtime of a script: a process of this machine without an image, or a container of the plugin's image.
///
/// `Docker` falls back to Podman. Variants have no docs: clap would then print the long form of each help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum PodRuntime {
    #[default]
    Process,
    Docker,
    Podman,
}

/// Options of scripts that run without a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Scripts")]
struct PodsArgs {
    /// Run scripts as processes of this machine, or as containers of their image
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["kubeconfig", "clusters"])]
    pods: PodRuntime,
    /// Address of Docker or Podman; by default that of the command
    #[arg(long, value_name = "URL")]
    docker_host: Option<String>,
    /// Entrypoint to copy into containers, from `cargo xtask build entrypoint`; by default `ebb-entrypoint` next to
    /// this program
    #[arg(long, value_name = "FILE")]
    entrypoint: Option<PathBuf>,
}

impl BackendArgs {
    /// Returns the settings of a server.
    ///
    /// # Errors
    /// Returns an error if the address cannot receive callbacks, or a program is missing: the relay, the entrypoint or
    /// a container engine.
    pub(crate) async fn settings(self) -> Result<StackSettings> {
        let Self { egress_networks, cluster, pods } = self;
        let containers = pods.containers().await?;
        if cluster.listen.is_unspecified() {
            return Err(CliError::broken(format!("--listen {} cannot receive callbacks", cluster.listen))
                .with_hint("use one address of this machine, such as 127.0.0.1"));
        }
        let listen = Some(cluster.listen);
        let units = match &cluster.clusters {
            Some(clusters) => UnitBackend::RemoteRelays(RemoteRelays {
                clusters: clusters.clone(),
                networks: cluster.relay_networks.clone(),
            }),
            None => match cluster.kubernetes()? {
                Some(cluster) => UnitBackend::Cluster(cluster),
                None => containers.map(UnitBackend::Containers).unwrap_or_default(),
            },
        };
        Ok(StackSettings { listen, units, egress_networks, telemetry: telemetry()?, ..StackSettings::default() })
    }
}

impl ClusterArgs {
    /// Returns the cluster of `--kubeconfig`, or `None` without that option.
    fn kubernetes(self) -> Result<Option<KubernetesOptions>> {
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

impl PodsArgs {
    async fn containers(self) -> Result<Option<ContainerEngine>> {
        let programs: &[&str] = match self.pods {
            PodRuntime::Process => return Ok(None),
            PodRuntime::Docker => &["docker", "podman"],
            PodRuntime::Podman => &["podman"],
        };
        let next_to_program = || Some(std::env::current_exe().ok()?.parent()?.join("ebb-entrypoint"));
        let program = self.entrypoint.or_else(next_to_program).unwrap_or_else(|| "ebb-entrypoint".into());
        let program = std::path::absolute(&program).unwrap_or(program);
        if !program.is_file() {
            return Err(CliError::broken(format!("the entrypoint {} does not exist", program.display()))
                .with_hint("build it with `cargo xtask build entrypoint` and give its path with --entrypoint"));
        }
        let url = self.docker_host.as_deref().filter(|url| !url.is_empty());
        let found = ContainerEngine::find(programs, url, program).await;
        found.map(Some).map_err(|error| {
            CliError::broken("cannot run scripts as containers")
                .with_causes(&error)
                .with_hint("start Docker, or install Podman")
        })
    }
}

/// Returns the path of the relay's program: `given`, or the first that exists.
fn relay(given: Option<PathBuf>) -> Result<PathBuf> {
    let missing = given.as_ref().map_or("found no `ebb-relay` next to this program or in PATH".to_owned(), |file| {
        format!("the relay {} does not exist", file.display())
    });
    let searched = || {
        let own_folder = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
        let path = std::env::var_os("PATH").unwrap_or_default();
        own_folder.into_iter().chain(std::env::split_paths(&path)).map(|folder| folder.join("ebb-relay")).collect()
    };
    let candidates = given.map_or_else(searched, |file| vec![file]).into_iter();
    let found = candidates.filter_map(|file| std::path::absolute(file).ok()).find(|file| file.is_file());
    let build = "build it with `cargo build -p ebb-relay`, or install it with `cargo install --path functions/relay`";
    found.ok_or_else(|| CliError::broken(missing).with_hint(build).with_hint("or give its path with --relay"))
}

/// The variable with the collector of spans, as in all programs that use OpenTelemetry.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Returns telemetry that sends spans to the collector of the environment, if there is one.
#[cfg(feature = "otlp")]
fn telemetry() -> Result<Telemetry> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let collector = ebb_api::OtlpExporter::open(&variable(ENDPOINT), &variable("OTEL_EXPORTER_OTLP_HEADERS"))
        .map_err(|error| CliError::broken(error.to_string()))?;
    let telemetry = Telemetry::default();
    Ok(if let Some(collector) = collector { telemetry.with_spans(collector) } else { telemetry })
}

/// Returns telemetry without spans. Warns if the environment names a collector, because it will not receive any.
#[cfg(not(feature = "otlp"))]
fn telemetry() -> Result<Telemetry> {
    if std::env::var_os(ENDPOINT).is_some_and(|endpoint| !endpoint.is_empty()) {
        crate::output::status_line(&format!(
            "warning: {ENDPOINT} is set, but this `ebb` was built without the exporter of traces: build it with \
             `--features otlp` to send traces"
        ));
    }
    Ok(Telemetry::default())
}
