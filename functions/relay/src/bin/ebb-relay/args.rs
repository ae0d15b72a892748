//! Options of the relay, from the environment or the command line.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Parser;
use ebb_protocol::sign::WebhookKeys;
use ebb_relay::{ClusterPolicy, RelayBootstrap, RelaySettings};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::attached;

/// Executes the tasks of Ebb in a Kubernetes cluster.
#[derive(Parser)]
#[command(name = "ebb-relay", version)]
pub(crate) struct RelayArgs {
    /// Run as a child of another program: read the secrets from the first line of standard input, exit when standard
    /// input ends, create missing namespaces, and log as text
    #[arg(long)]
    pub(crate) attached: bool,
    /// The address for requests of the control plane, entrypoints and probes
    #[arg(long, env = "EBB_RELAY_LISTEN", default_value = "0.0.0.0:8080")]
    pub(crate) listen: SocketAddr,
    /// A separate address for requests of entrypoints, so that pods can reach nothing else
    #[arg(long, env = "EBB_RELAY_LISTEN_REPORTS")]
    pub(crate) listen_reports: Option<SocketAddr>,
    /// The URL of the control plane's API to poll for batches; the relay then accepts no inbound batches
    #[arg(long, env = "EBB_RELAY_PULL_URL", value_name = "URL", value_parser = api_url)]
    pull_url: Option<String>,
    /// The name of this cluster in the control plane
    #[arg(long, env = "EBB_RELAY_CLUSTER", value_name = "NAME")]
    cluster: Option<String>,
    /// The kubeconfig; without it, the service account of the relay's pod
    #[arg(long, env = "EBB_RELAY_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig; without it, the current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// The policy of the operator, as YAML, which is read once, at the start; optional with --attached, whose default
    /// needs no rights outside of the namespace of tasks
    #[arg(long, env = "EBB_RELAY_POLICY", value_name = "FILE", required_unless_present = "attached")]
    policy: Option<PathBuf>,
    /// A file with the secrets that sign batches: whsec_…, one per line
    #[arg(long, env = "EBB_RELAY_SECRET", value_name = "FILE", conflicts_with = "attached")]
    #[arg(required_unless_present_any = ["attached", "bootstrap_token_file"])]
    secret: Option<PathBuf>,
    /// Instead of --secret: a file with the bootstrap token of the cluster, with which the relay registers a secret of its
    /// own at the control plane. The file is needed only for that
    #[arg(long, env = "EBB_BOOTSTRAP_TOKEN_FILE", value_name = "FILE", conflicts_with_all = ["attached", "secret"])]
    #[arg(requires = "cluster")]
    bootstrap_token_file: Option<PathBuf>,
    /// The URL of the control plane's API to register at; by default --pull-url
    #[arg(long, env = "EBB_URL", value_name = "URL", value_parser = api_url)]
    control_plane_url: Option<String>,
    /// The pod of the relay, as NAME/ADDRESS. With it, the relay works only while it has the Lease `ebb-relay` of its
    /// namespace, and passes connections on until then
    #[arg(long, env = "EBB_RELAY_POD", value_name = "POD", conflicts_with = "attached")]
    pub(crate) pod: Option<String>,
    #[command(flatten)]
    settings: RelaySettings,
}

pub(crate) enum KeySource {
    Given(WebhookKeys),
    /// The relay makes and registers a secret.
    Bootstrap(RelayBootstrap),
}

impl RelayArgs {
    /// Returns the secrets of batches, or the control plane at which the relay registers its own one.
    pub(crate) fn key_source(&self) -> anyhow::Result<KeySource> {
        if let Some(token_file) = &self.bootstrap_token_file {
            let url = given(&self.control_plane_url).or_else(|| given(&self.pull_url));
            let url = url.context("--bootstrap-token-file requires --pull-url or --control-plane-url")?;
            let cluster = given(&self.cluster).context("--bootstrap-token-file requires --cluster")?;
            let (namespace, token_file) = (self.settings.own_namespace.clone(), token_file.clone());
            return Ok(KeySource::Bootstrap(RelayBootstrap { url, cluster, namespace, token_file }));
        }
        let Some(file) = &self.secret else { return Ok(KeySource::Given(attached::keys()?)) };
        Ok(KeySource::Given(WebhookKeys::parse(&read(file)?).with_context(|| file.display().to_string())?))
    }

    /// Returns the URL of the control plane that the relay polls, and the name of the cluster there, which it needs.
    pub(crate) fn control_plane(&self) -> anyhow::Result<Option<(String, String)>> {
        let Some(url) = given(&self.pull_url) else { return Ok(None) };
        let cluster = given(&self.cluster);
        let cluster =
            cluster.context("--pull-url requires --cluster, the name of this cluster in the control plane")?;
        Ok(Some((url, cluster)))
    }

    /// Returns the policy of the file, or the default policy of an attached relay.
    pub(crate) fn policy(&self) -> anyhow::Result<ClusterPolicy> {
        let Some(file) = &self.policy else { return Ok(attached::default_policy(&self.settings.default_namespace)) };
        let parsed = serde_saphyr::from_str(&read(file)?);
        // The error repeats its cause, so only its text is used.
        parsed.map_err(|error| anyhow!("the policy {} cannot be used: {}", file.display(), error.without_snippet()))
    }

    pub(crate) fn settings(&self) -> RelaySettings {
        let settings = self.settings.clone();
        RelaySettings { cluster: given(&self.cluster).unwrap_or(settings.cluster), ..settings }
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let config = match &self.kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path)?;
                let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
                Config::from_custom_kubeconfig(read, &options).await?
            }
            None => Config::incluster().context("the relay does not run in a pod, and --kubeconfig is missing")?,
        };
        Ok(ebb_relay::client(config)?)
    }
}

/// Returns a text that is not empty. A variable with an empty text counts as one that is not set.
fn given(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}

fn api_url(text: &str) -> Result<String, String> {
    match text.is_empty() || text.starts_with("http://") || text.starts_with("https://") {
        true => Ok(text.to_owned()),
        false => Err("expected https://HOST or http://HOST".to_owned()),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
