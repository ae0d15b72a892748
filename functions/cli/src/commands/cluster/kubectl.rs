//! `--apply` of commands that print manifests: kubectl applies them, and the command waits for the relay.

use std::process::Stdio;
use std::time::Duration;

use ebb_documents::compile::ClusterPolicy;
use ebb_protocol::api::{ClusterDetail, ClusterInfo, ClusterState};
use ebb_relay_client::reported_policy;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::Instant;

use super::list;
use super::options::{changed_lines, policy_lines};
use crate::client::ApiClient;
use crate::exit::{CliError, Result};
use crate::output;
use crate::timing;

/// The time within which a relay has to be up, with its policy in force.
const UP_TIME: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// Apply the manifests with kubectl, and wait up to 2 minutes until the relay is up with its policy
    #[arg(long)]
    apply: bool,
    /// Context of the kubeconfig for kubectl; by default the current one
    #[arg(long, value_name = "NAME", requires = "apply")]
    context: Option<String>,
}

impl ApplyArgs {
    pub(super) fn is_set(&self) -> bool {
        self.apply
    }

    /// Applies manifests.
    pub(super) async fn apply(&self, manifests: &str) -> Result<()> {
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "--filename=-"], manifests).await
    }

    /// Replaces the pod of the relay, which reads its bootstrap token at its start.
    pub(super) async fn restart(&self, relay_namespace: &str) -> Result<()> {
        let namespace = format!("--namespace={relay_namespace}");
        self.kubectl(&["rollout", "restart", "deployment/ebb-relay", &namespace], "").await
    }

    /// Changes the pod of the relay, so that its kubelet renews the file with the policy at once. Otherwise it takes up to two
    /// minutes.
    pub(super) async fn renew_policy(&self, relay_namespace: &str) -> Result<()> {
        let (namespace, annotation) =
            (format!("--namespace={relay_namespace}"), format!("ebb.dev/connected={}", timing::now().as_second()));
        let selector = "--selector=app.kubernetes.io/name=ebb-relay";
        self.kubectl(&["annotate", "pods", "--overwrite", selector, &namespace, &annotation], "").await
    }

    /// Runs kubectl. Its output goes to standard error.
    async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<()> {
        let unusable = |error: std::io::Error| {
            CliError::broken("cannot run kubectl")
                .with_causes(&error)
                .with_hint("install kubectl, or leave out --apply and apply the output")
        };
        let mut command = Command::new("kubectl");
        command.args(arguments).args(self.context.iter().map(|context| format!("--context={context}")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(unusable)?;
        let stdin = child.stdin.take();
        let write = async {
            if let Some(mut stdin) = stdin {
                stdin.write_all(input.as_bytes()).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let (written, ended) = tokio::join!(write, child.wait_with_output());
        let ended = ended.map_err(unusable)?;
        output::status_line(&String::from_utf8_lossy(&ended.stdout));
        if !ended.status.success() {
            let line = arguments.join(" ");
            return Err(CliError::failed(format!("`kubectl {line}` failed: {}", ended.status))
                .with_hint("its message is above; run the command again when the cause is repaired"));
        }
        written.map_err(unusable)
    }
}

/// Returns what the policy that a relay reports lacks of another, one change per line.
fn missing_changes(info: &ClusterInfo, policy: &ClusterPolicy) -> Vec<String> {
    let reported = info.policy.as_ref().and_then(reported_policy);
    reported.map(|reported| changed_lines(&policy_lines(&reported), &policy_lines(policy))).unwrap_or_default()
}

/// Waits until the relay of a cluster is up, has registered after `registered`, and has `policy` in force. Prints each state.
pub(super) async fn wait_until_up(
    client: &ApiClient,
    name: &str,
    relay_namespace: &str,
    registered: Option<&str>,
    policy: &ClusterPolicy,
) -> Result<()> {
    let (end, mut shown) = (Instant::now() + UP_TIME, None);
    loop {
        let detail: ClusterDetail = client.fetch(&["clusters", name]).await?;
        let since = detail.registration.as_ref().and_then(|registration| registration.registered.as_deref());
        let is_new = registered.is_none() || since != registered;
        let is_up = is_new && detail.info.state == Some(ClusterState::Up);
        let changes = if is_up { missing_changes(&detail.info, policy) } else { Vec::new() };
        let mut state =
            if is_new { list::status(&detail.info) } else { "waits for the registration of its relay".to_owned() };
        if !changes.is_empty() {
            state = "up, the new policy is not in force yet".to_owned();
        }
        let word = (is_new, detail.info.state, changes.is_empty());
        if shown != Some(word) {
            output::status_line(&output::printable(&format!("cluster {name}: {state}")));
            shown = Some(word);
        }
        if is_up && changes.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            let refused = detail.info.policy.as_ref().and_then(|policy| policy.error.as_deref());
            let log = format!("kubectl logs deployment/ebb-relay --namespace {relay_namespace}");
            let reason = refused.map(|error| format!(": {error}")).unwrap_or_default();
            let first = format!("the cluster {name} is not ready after 2 minutes: {state}{reason}");
            let lines: Vec<_> = [vec![first], changes].concat().iter().map(|line| output::printable(line)).collect();
            return Err(CliError::timed_out(lines.join("\n"))
                .with_hint(format!("read the log of its relay with `{log}`"))
                .with_hint("the relay goes on trying; the command can be repeated"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
