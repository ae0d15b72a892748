//! `--apply` of commands that print manifests: kubectl applies them, and the command waits for the relay.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use ebb_documents::compile::ClusterPolicy;
use ebb_protocol::api::{ClusterDetail, ClusterInfo, ClusterState};
use ebb_relay_client::reported_policy;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::Instant;

use super::list;
use super::options::{changed_lines, policy_lines, server};
use crate::client::ApiClient;
use crate::exit::{CliError, Result};
use crate::output;
use crate::timing;

/// The time within which a relay has to be up, with its policy in force.
const UP_TIME: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(2);
/// The time after which the state of the pods is shown. A pull of the image takes some seconds.
const PODS_TIME: Duration = Duration::from_secs(20);
const SELECTOR: &str = "--selector=app.kubernetes.io/name=ebb-relay";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

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

    /// Prints which namespaces exist with another Pod Security level than that of `policy`, which applying sets. `needed`
    /// are the namespaces that applying does not create.
    ///
    /// # Errors
    /// Returns an error if a needed namespace does not exist.
    pub(super) async fn check_namespaces(&self, policy: &ClusterPolicy, needed: &BTreeSet<&str>) -> Result<()> {
        let found = self.kubectl(&["get", "namespaces", "--output=json"], "").await?;
        let found: Value = serde_json::from_str(&found).unwrap_or_default();
        let exists = |name: &str| items(&found).any(|namespace| namespace["metadata"]["name"] == name);
        if let Some(missing) = needed.iter().find(|name| !policy.namespaces.contains_key(**name) && !exists(name)) {
            return Err(CliError::failed(format!(
                "the namespace {missing} of a Service or of `bind` does not exist, and this command does not create it"
            ))
            .with_hint(format!("create it: kubectl create namespace {missing}"))
            .with_hint("or remove it from the options: --remove bind-namespace=NAME, --remove service=KEY"));
        }
        for line in changed_levels(&found, policy) {
            output::status_line(&line);
        }
        Ok(())
    }

    /// Returns the relay that a namespace has.
    ///
    /// # Errors
    /// Returns an error if it is the relay of another cluster than `name`, which applying would replace.
    pub(super) async fn check_relay(&self, relay_namespace: &str, name: &str) -> Result<Option<RelayDeployment>> {
        let (namespace, output) = (format!("--namespace={relay_namespace}"), "--output=json");
        let found = self.kubectl(&["get", "deployments", SELECTOR, &namespace, output], "").await?;
        let relay = installed_relay(&serde_json::from_str(&found).unwrap_or_default());
        relay.as_ref().map_or(Ok(()), |relay| relay.check_cluster(relay_namespace, name))?;
        Ok(relay)
    }

    /// Checks that kubectl uses the Kubernetes cluster from which the relay of the cluster `name` has registered.
    pub(super) async fn check_uid(&self, client: &ApiClient, name: &str) -> Result<()> {
        let detail: ClusterDetail = client.fetch(&["clusters", name]).await?;
        let query = ["get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}"];
        let used = output::printable(&self.kubectl(&query, "").await?);
        let pinned = output::printable(detail.info.uid.as_deref().unwrap_or_default());
        if used == pinned {
            return Ok(());
        }
        Err(CliError::failed(format!(
            "the relay of the cluster {name} has registered from the Kubernetes cluster {pinned}, and kubectl uses {used}"
        ))
        .with_hint("choose the right context: --context NAME")
        .with_hint("connect each Kubernetes cluster under a name of its own")
        .with_hint(format!("if the former one no longer exists: ebb cluster disconnect {name}, and connect it again")))
    }

    /// Applies manifests.
    pub(super) async fn apply(&self, manifests: &str) -> Result<()> {
        self.show(&["apply", "--server-side", "--force-conflicts", "--filename=-"], manifests).await
    }

    /// Replaces the pod of the relay, which reads its bootstrap token at its start.
    pub(super) async fn restart(&self, relay_namespace: &str) -> Result<()> {
        let namespace = format!("--namespace={relay_namespace}");
        self.show(&["rollout", "restart", "deployment/ebb-relay", &namespace], "").await
    }

    /// Changes the pod of the relay, so that its kubelet renews the file with the policy at once. Otherwise it takes up to two
    /// minutes.
    pub(super) async fn renew_policy(&self, relay_namespace: &str) -> Result<()> {
        let (namespace, annotation) =
            (format!("--namespace={relay_namespace}"), format!("ebb.dev/connected={}", timing::now().as_second()));
        self.show(&["annotate", "pods", "--overwrite", SELECTOR, &namespace, &annotation], "").await
    }

    /// Prints why the pods of a relay do not start.
    async fn show_pods(&self, relay_namespace: &str) -> Result<()> {
        let namespace = format!("--namespace={relay_namespace}");
        let columns = "--output=custom-columns=POD:.metadata.name,PHASE:.status.phase,\
                       REASON:.status.containerStatuses[*].state.waiting.reason,\
                       MESSAGE:.status.containerStatuses[*].state.waiting.message";
        self.show(&["get", "pods", SELECTOR, &namespace, columns], "").await
    }

    /// Runs kubectl, and prints its output to standard error.
    async fn show(&self, arguments: &[&str], input: &str) -> Result<()> {
        output::status_line(&self.kubectl(arguments, input).await?);
        Ok(())
    }

    /// Runs kubectl, and returns its standard output.
    async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
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
        if !ended.status.success() {
            let line = arguments.join(" ");
            return Err(CliError::failed(format!("`kubectl {line}` failed: {}", ended.status))
                .with_hint("its message is above; run the command again when the cause is repaired"));
        }
        written.map_err(unusable)?;
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }

    /// Waits until the relay of a cluster is up, has registered after `registered`, and has `policy` in force. Prints each state.
    pub(super) async fn wait_until_up(
        &self,
        client: &ApiClient,
        name: &str,
        relay_namespace: &str,
        registered: Option<&str>,
        policy: &ClusterPolicy,
    ) -> Result<()> {
        let (end, mut shown) = (Instant::now() + UP_TIME, None);
        let mut pods_at = Some(Instant::now() + PODS_TIME);
        loop {
            let detail: ClusterDetail = client.fetch(&["clusters", name]).await?;
            let since = detail.registration.as_ref().and_then(|registration| registration.registered.as_deref());
            let is_new = registered.is_none() || since != registered;
            let is_up = is_new && detail.info.state == Some(ClusterState::Up);
            let changes = if is_up { missing_changes(&detail.info, policy) } else { Vec::new() };
            let state = match (is_new, is_up, changes.is_empty()) {
                (false, ..) => "waits for the registration of its relay".to_owned(),
                (true, false, _) => list::status(&detail.info),
                (true, true, false) => "up, the new policy is not in force yet".to_owned(),
                // A recorded outage of the former relay ends with the next request of a sweep.
                (true, true, true) => "up".to_owned(),
            };
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
                let namespace = format!("--namespace={relay_namespace}");
                output::status_line("The end of the log of the relay:");
                // Its pod may not have started. kubectl says so.
                self.show(&["logs", "deployment/ebb-relay", "--tail=3", &namespace], "").await.ok();
                let reason = refused.map(|error| format!(": {error}")).unwrap_or_default();
                let first = format!("the cluster {name} is not ready after 2 minutes: {state}{reason}");
                let lines: Vec<_> =
                    [vec![first], changes].concat().iter().map(|line| output::printable(line)).collect();
                return Err(CliError::timed_out(lines.join("\n"))
                    .with_hint(format!("read the log of its relay with `{log}`"))
                    .with_hint("the relay goes on trying; the command can be repeated"));
            }
            if !is_up && pods_at.is_some_and(|at| Instant::now() >= at) {
                self.show_pods(relay_namespace).await?;
                pods_at = None;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Returns what the policy that a relay reports lacks of another, one change per line.
fn missing_changes(info: &ClusterInfo, policy: &ClusterPolicy) -> Vec<String> {
    let reported = info.policy.as_ref().and_then(reported_policy);
    reported.map(|reported| changed_lines(&policy_lines(&reported), &policy_lines(policy))).unwrap_or_default()
}

/// Returns the objects of a list of kubectl.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// The relay of a namespace, as its Deployment describes it.
#[derive(Debug)]
pub(super) struct RelayDeployment {
    /// The name of its cluster in its control plane. `None` for some relays with push transport.
    cluster: Option<String>,
    /// The URL of the API of its control plane. `None` for a relay with push transport that does not register itself.
    url: Option<String>,
    /// The hosts of callbacks, as `HOST` or `HOST:PORT`.
    callback_hosts: Vec<String>,
}

impl RelayDeployment {
    fn check_cluster(&self, relay_namespace: &str, name: &str) -> Result<()> {
        let Some(other) = self.cluster.as_deref().filter(|cluster| *cluster != name) else { return Ok(()) };
        let other = output::printable(other);
        Err(CliError::failed(format!(
            "the namespace {relay_namespace} has the relay of the cluster {other}, which this command would replace"
        ))
        .with_hint(format!("for a second relay: ebb cluster connect {name} --apply --relay-namespace NAMESPACE"))
        .with_hint(format!("to change the cluster {other}: ebb cluster connect {other} --apply"))
        .with_hint(format!("if the cluster {other} no longer exists: kubectl delete namespace {relay_namespace}")))
    }

    /// Checks that the relay belongs to the control plane with these URLs. One of them may have changed.
    ///
    /// # Errors
    /// Returns an error that names the URL or the hosts of the relay.
    pub(super) fn check_control_plane(
        &self,
        relay_namespace: &str,
        name: &str,
        api_url: &str,
        callback_url: &str,
    ) -> Result<()> {
        let (host, port) = server(callback_url, "--callback-url")?;
        let has_host = |known: &String| *known == format!("{host}:{port}") || (port == 443 && *known == host);
        let has_url = self.url.as_deref().is_some_and(|url| url.trim_end_matches('/') == api_url.trim_end_matches('/'));
        if has_url || self.callback_hosts.iter().any(has_host) {
            return Ok(());
        }
        let place = self.url.clone().unwrap_or_else(|| self.callback_hosts.join(", "));
        Err(CliError::failed(format!(
            "the namespace {relay_namespace} has the relay of another installation of Ebb, at {}, which this command would \
             replace by one at {api_url}",
            output::printable(&place)
        ))
        .with_hint(format!("for a second relay: ebb cluster connect {name} --apply --relay-namespace NAMESPACE"))
        .with_hint(format!(
            "if that installation no longer exists, or is this one with other URLs: kubectl delete deployment ebb-relay \
             --namespace {relay_namespace}, and run the command again"
        )))
    }
}

/// Returns the relay of the list `found` of Deployments, if it has one.
fn installed_relay(found: &Value) -> Option<RelayDeployment> {
    let container = items(found).find_map(|deployment| {
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
        containers.iter().find(|container| container["name"] == "relay")
    })?;
    let value = |name: &str| {
        let variable = container["env"].as_array()?.iter().find(|variable| variable["name"] == name)?;
        variable["value"].as_str().filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let hosts = value("EBB_RELAY_CALLBACK_HOSTS").unwrap_or_default();
    Some(RelayDeployment {
        cluster: value("EBB_RELAY_CLUSTER"),
        url: value("EBB_RELAY_PULL_URL").or_else(|| value("EBB_URL")),
        callback_hosts: hosts.split(',').map(str::to_owned).collect(),
    })
}

/// Returns one line per namespace of `policy` that exists with another level. `found` is the list of kubectl.
fn changed_levels(found: &Value, policy: &ClusterPolicy) -> Vec<String> {
    let all = items(found).map(|namespace| &namespace["metadata"]);
    let changed = all.filter_map(|metadata| {
        let name = metadata["name"].as_str().filter(|name| policy.namespaces.contains_key(*name))?;
        let (old, new) = (metadata["labels"][ENFORCE].as_str().unwrap_or("none"), policy.level(name).name());
        (old != new)
            .then(|| format!("The namespace {name} exists. Its Pod Security level changes from {old} to {new}."))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use ebb_documents::diagnostic::DiagnosticStyle;
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_levels_of_existing_namespaces_are_named() {
        let namespace = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
        let found = json!({"items": [
            namespace("same", json!({ENFORCE: "baseline"})), namespace("strict", json!({ENFORCE: "restricted"})),
            namespace("plain", json!({})), namespace("other", json!({ENFORCE: "privileged"})),
        ]});
        let policy: ClusterPolicy = serde_json::from_value(json!({"namespaces": {
            "same": {"level": "baseline"}, "strict": {"level": "baseline"}, "plain": {"level": "restricted"}, "new": {},
        }}))
        .unwrap();
        assert_eq!(
            changed_levels(&found, &policy),
            [
                "The namespace strict exists. Its Pod Security level changes from restricted to baseline.",
                "The namespace plain exists. Its Pod Security level changes from none to restricted.",
            ]
        );
    }

    /// Returns a list of kubectl with a relay.
    fn relay(variables: &[(&str, &str)]) -> Value {
        let env: Vec<Value> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let containers = json!([{"name": "proxy"}, {"name": "relay", "env": env}]);
        json!({"items": [{"spec": {"template": {"spec": {"containers": containers}}}}]})
    }

    #[test]
    fn a_namespace_can_have_the_relay_of_another_cluster() {
        let check = |found: &Value| installed_relay(found).unwrap().check_cluster("ebb-relay", "us");
        let of = |cluster: &str| relay(&[("EBB_RELAY_CLUSTER", cluster)]);
        let error = check(&of("eu\u{1b}")).unwrap_err().text(DiagnosticStyle::Plain);
        assert!(error.contains("the relay of the cluster eu\u{fffd}, which"), "{error}");
        for found in [of("us"), of(""), relay(&[])] {
            assert!(check(&found).is_ok(), "{found}");
        }
        assert!(installed_relay(&json!({"items": []})).is_none());
    }

    #[test]
    fn a_namespace_can_have_the_relay_of_another_installation() {
        let (api, callback) = ("https://ebb.example", "https://callbacks.example/v1/callbacks");
        let check = |variables: &[(&str, &str)]| {
            let found = installed_relay(&relay(variables)).unwrap();
            let checked = found.check_control_plane("ebb-relay", "eu", api, callback);
            checked.map_err(|error| error.text(DiagnosticStyle::Plain))
        };
        for own in [
            ("EBB_RELAY_PULL_URL", "https://ebb.example/"),
            ("EBB_URL", "https://ebb.example"),
            ("EBB_RELAY_CALLBACK_HOSTS", "other.example:443,callbacks.example:443"),
            ("EBB_RELAY_CALLBACK_HOSTS", "callbacks.example"),
        ] {
            assert_eq!(check(&[own]), Ok(()), "{own:?}");
        }
        let hosts = ("EBB_RELAY_CALLBACK_HOSTS", "callbacks.example:8443");
        for (others, place) in [
            (&[("EBB_RELAY_PULL_URL", "https://other.example"), hosts][..], "at https://other.example, which"),
            (&[("EBB_URL", "http://ebb.example"), hosts], "at http://ebb.example, which"),
            (&[hosts], "at callbacks.example:8443, which"),
        ] {
            let error = check(others).unwrap_err();
            assert!(error.contains(place) && error.contains("--relay-namespace NAMESPACE"), "{error}");
        }
    }
}
