//! `ebb cluster connect`: registers a cluster, and prints or applies the manifests of its relay.

use clap::ValueEnum;
use ebb_protocol::api::{CheckList, ClusterDetail, ClusterRegistration, PutCluster};
use ebb_protocol::id::is_dns_label;
use ebb_protocol::sign::WebhookSecret;
use serde_json::{Map, Value, json};
use url::Url;

use super::installation::{RelayCredential, RelayInstallation, encoded, removals};
use super::kubectl::ApplyArgs;
use super::options::{ClusterOptions, OptionArgs};
use crate::client::{ApiClient, is_local};
use crate::commands::connect as server_of;
use crate::exit::{CliError, Exit, Result};
use crate::output::{self, OutputArgs};
use crate::server::ServerArgs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ConnectFormat {
    /// Objects for `kubectl apply`.
    #[default]
    Manifests,
    /// Values with which helm makes the same objects from the chart.
    Values,
    /// The manifests, the options and their changes.
    Json,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb cluster connect eu --image ebb/ebb-relay:0.1.0 --entrypoint-image ebb/ebb-entrypoint:0.1.0 | kubectl apply -f -\n  \
                  ebb cluster connect eu --namespace team-a:baseline --kind ConfigMap --apply\n  ebb cluster connect eu --remove namespace=team-a --apply"
)]
pub(crate) struct ClusterConnectArgs {
    /// Name of the cluster in documents; documents that name none run in `default`
    #[arg(value_parser = label)]
    name: String,
    #[command(flatten)]
    options: OptionArgs,
    /// Request another bootstrap token for a cluster whose relay has registered
    #[arg(long)]
    rebootstrap: bool,
    #[command(flatten)]
    apply: ApplyArgs,
    /// Send no request: print manifests with a new secret, and the entry of the cluster for EBB_CLUSTERS
    #[arg(long, requires = "uid", conflicts_with_all = ["apply", "rebootstrap"])]
    offline: bool,
    /// With --offline, the UID of the namespace kube-system: `kubectl get namespace kube-system
    /// --output=jsonpath={.metadata.uid}`
    #[arg(long, requires = "offline", value_parser = uid)]
    uid: Option<String>,
    /// Print manifests for kubectl, values for helm, or data for programs
    #[arg(short = 'o', long = "output", value_name = "manifests|values|json", value_enum, default_value_t)]
    #[arg(hide_possible_values = true, hide_default_value = true, conflicts_with = "apply")]
    format: ConnectFormat,
}

impl ClusterConnectArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        if self.offline {
            let secret = WebhookSecret::from_bytes(&rand::random::<[u8; 32]>()).expect("32 bytes are enough");
            return self.print_offline(&secret);
        }
        let Self { name, options, rebootstrap, apply, format, .. } = self;
        let client = server_of(server)?;
        let former = registered(&client, &name).await?;
        let stored = former.as_ref().map(|former| ClusterOptions::stored(&name, former)).transpose()?;
        let options = options.merged(&stored.clone().unwrap_or_default())?;
        let relay_since = former.as_ref().and_then(|former| former.registered.clone());
        if let Some(stored) = stored.as_ref().filter(|_| relay_since.is_some()) {
            keeps_namespace(stored, &options)?;
        }
        if apply.is_set() {
            let found = apply.check_relay(&options.relay_namespace, &name).await?;
            if relay_since.is_some() {
                apply.check_uid(&client, &name).await?;
            } else if let Some(found) = found {
                let of_server = match &options.callback_url {
                    Some(url) => url.clone(),
                    None => client.fetch::<CheckList>(&["checks"]).await?.callback_url,
                };
                let (api_url, callback_url) = addresses(client.server_url(), &options, &of_server)?;
                found.check_control_plane(&options.relay_namespace, &name, &api_url, &callback_url)?;
            }
            apply.check_namespaces(&options.policy(), &options.needed_namespaces()).await?;
        }
        let changes = options.changes_since(stored.as_ref());
        let heading = match (&stored, changes.is_empty()) {
            (None, _) => format!("New cluster {name}:"),
            (Some(_), true) => format!("Cluster {name}: no option changes"),
            (Some(_), false) => format!("Cluster {name}:"),
        };
        output::status_line(&[vec![heading], changes.clone()].concat().join("\n"));
        let request = PutCluster {
            url: options.push_url.clone(),
            entrypoint_image: options.entrypoint_image.clone(),
            run_as_non_root: former.as_ref().is_some_and(|former| former.run_as_non_root),
            signadot_outputs: options.signadot_outputs,
            options: json!(options).as_object().cloned().unwrap_or_default(),
            // A token that no relay has used cannot be read again.
            rebootstrap: rebootstrap || (former.is_some() && relay_since.is_none()),
            expected: former.as_ref().and_then(|former| former.version),
        };
        let answer = client.put_cluster(&name, &request).await?;
        let (api_url, callback_url) = addresses(client.server_url(), &options, &answer.callback_url)?;
        let token = answer.bootstrap_token.as_deref();
        let installation = RelayInstallation {
            cluster: &name,
            options: &options,
            api_url: &api_url,
            callback_url: &callback_url,
            credential: RelayCredential::Bootstrap(token),
        };
        let removals = stored.map(|stored| removals(&stored, Some(&options))).unwrap_or_default();
        // A relay reads its token at its start only, also one that has registered before the cluster was deleted.
        let restarts = token.is_some();
        let replaced = relay_since.as_deref().filter(|_| restarts);
        let namespace = options.relay_namespace.as_str();
        if apply.is_set() {
            apply.apply(&installation.manifests()?).await?;
            if restarts {
                apply.restart(namespace).await?;
            } else {
                apply.renew_policy(namespace).await?;
            }
            print_removals(&removals);
            apply.wait_until_up(&client, &name, namespace, replaced, &options.policy()).await?;
            output::status_line(&format!(
                "Sandboxes with `cluster: {name}` run there. `ebb cluster get {name}` shows the policy in force."
            ));
            return Ok(Exit::Done);
        }
        match format {
            ConnectFormat::Manifests => output::print_data(&installation.manifests()?)?,
            ConnectFormat::Values => output::print_data(&encoded(&installation.values()?)?)?,
            ConnectFormat::Json => print_json(&json!({
                "manifests": installation.manifests()?, "options": options, "changes": changes, "removals": removals,
            }))?,
        };
        if restarts {
            output::status_line(
                "Standard output has a token that registers one relay within an hour: apply it, and do not store it.",
            );
        }
        print_removals(&removals);
        let mut next = match format {
            ConnectFormat::Values => format!(
                "Run `kubectl create namespace {namespace}`, and install with `helm upgrade --install ebb-relay \
                 infra/relay/chart --namespace {namespace} --take-ownership --values=-`"
            ),
            ConnectFormat::Manifests | ConnectFormat::Json => {
                "Apply the manifests with `kubectl apply -f -`".to_owned()
            }
        };
        if restarts {
            next += &format!(", and then `kubectl rollout restart deployment/ebb-relay --namespace {namespace}`");
        }
        output::status_line(&format!("{next}. `ebb cluster get {name}` shows when the relay is up."));
        Ok(Exit::Done)
    }

    /// Prints manifests with a secret, and the entry of the cluster. They are the only copies of the secret.
    fn print_offline(self, secret: &WebhookSecret) -> Result<Exit> {
        let format = self.format;
        let ((manifests, values), clusters) = self.offline_installation(secret)?;
        match format {
            ConnectFormat::Manifests => output::print_data(&manifests)?,
            ConnectFormat::Values => output::print_data(&encoded(&values)?)?,
            ConnectFormat::Json => return print_json(&json!({"manifests": manifests, "clusters": clusters})),
        };
        output::status_line(&format!(
            "Apply the manifests with `kubectl apply -f -`. Add this entry to EBB_CLUSTERS of the control plane:\n\n{clusters}\n",
        ));
        output::status_line("Both contain a secret that Ebb does not show again.");
        Ok(Exit::Done)
    }

    /// Returns manifests and values of a relay that does not register itself, and the entry of its cluster.
    fn offline_installation(self, secret: &WebhookSecret) -> Result<((String, Value), Value)> {
        let options = self.options.merged(&ClusterOptions::default())?;
        let has_transport = options.pull_url.is_some() || options.push_url.is_some();
        let (Some(callback_url), true) = (options.callback_url.clone(), has_transport) else {
            return Err(CliError::broken("--offline needs --callback-url, and --pull-url or --push-url")
                .with_hint("without --offline, the server says its URLs"));
        };
        let secret = secret.reveal();
        let installation = RelayInstallation {
            cluster: &self.name,
            options: &options,
            api_url: options.pull_url.as_deref().unwrap_or_default(),
            callback_url: &callback_url,
            credential: RelayCredential::Signing(&secret),
        };
        let mut entry = json!({"secret": *secret, "uid": self.uid, "entrypointImage": options.entrypoint_image});
        if let Some(url) = &options.push_url {
            entry["url"] = url.as_str().into();
        }
        let clusters = Value::Object(Map::from_iter([(self.name.clone(), entry)]));
        Ok(((installation.manifests()?, installation.values()?), clusters))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb cluster diff eu --namespace team-a:baseline")]
pub(crate) struct ClusterDiffArgs {
    /// Name of the cluster
    #[arg(value_parser = label)]
    name: String,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl ClusterDiffArgs {
    /// Prints what `connect` would change. The exit code is 1 if there is a difference.
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let former = registered(client, &self.name).await?;
        let stored = former.map(|former| ClusterOptions::stored(&self.name, &former)).transpose()?;
        let options = self.options.merged(&stored.clone().unwrap_or_default())?;
        let changes = options.changes_since(stored.as_ref());
        self.output.write(&changes, |changes| changes.join("\n"))?;
        Ok(if changes.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// Returns the registration of a cluster, or `None` if the cluster does not exist.
///
/// # Errors
/// Returns an error if the cluster is one of the configuration.
pub(super) async fn registered(client: &ApiClient, name: &str) -> Result<Option<ClusterRegistration>> {
    let Some(found) = client.find::<ClusterDetail>(&["clusters", name]).await? else { return Ok(None) };
    if found.registration.is_none() && found.info.uid.is_none() {
        return Err(CliError::failed(format!("this token may not read the registration of the cluster {name}"))
            .with_hint(
                "use a token with the scope `operate`: the operator of Ebb creates one with `ebb token create`",
            ));
    }
    let configured = || {
        CliError::failed(format!(
            "the cluster {name} is an entry of EBB_CLUSTERS, or of the file of `ebb dev --clusters`"
        ))
        .with_hint(format!("change the entry there; `ebb cluster connect {name} --offline` prints manifests for it"))
        .with_hint("to register the cluster instead, remove the entry first")
    };
    found.registration.map(Some).ok_or_else(configured)
}

/// Checks that an installed relay keeps its namespace.
fn keeps_namespace(stored: &ClusterOptions, new: &ClusterOptions) -> Result<()> {
    let (old, new) = (&stored.relay_namespace, &new.relay_namespace);
    if old == new {
        return Ok(());
    }
    Err(CliError::broken(format!("the relay cannot move from the namespace {old} to {new}: its records are in {old}"))
        .with_hint("delete the sandboxes in the cluster, disconnect it, and connect it again"))
}

/// Returns the URL of the API and the URL for callbacks, as pods reach them.
fn addresses(used: &Url, options: &ClusterOptions, of_server: &str) -> Result<(String, String)> {
    let callback_url = options.callback_url.as_deref().unwrap_or(of_server);
    let api_url = match options.pull_url.as_deref() {
        Some(url) => url,
        None if !is_local(used) => used.as_str().trim_end_matches('/'),
        None => callback_url.trim_end_matches("/v1/callbacks"),
    };
    let guessed = [(&options.callback_url, callback_url), (&options.pull_url, api_url)];
    for (_, url) in guessed.into_iter().filter(|(given, _)| given.is_none()) {
        if Url::parse(url).is_ok_and(|url| is_local(&url)) {
            return Err(CliError::failed(format!(
                "the cluster cannot reach the control plane at {url}: this is an address of one machine"
            ))
            .with_hint(
                "start `ebb dev` with --listen ADDRESS, an address that pods can reach, and run the command again",
            )
            .with_hint("or give --callback-url and --pull-url, if a proxy passes requests on"));
        }
    }
    Ok((api_url.to_owned(), callback_url.to_owned()))
}

fn print_removals(removals: &[String]) {
    if !removals.is_empty() {
        output::status_line(&format!(
            "The relay keeps its rights to what the policy does not allow any more, to remove living objects. When no sandbox \
             needs them, delete the rights:\n{}",
            removals.join("\n")
        ));
    }
}

fn print_json(data: &Value) -> Result<Exit> {
    output::print_data(&format!("{data:#}"))
}

pub(super) fn label(text: &str) -> Result<String, String> {
    if !is_dns_label(text) {
        return Err("expected a DNS label: 1 to 63 of a-z, 0-9 and -, no - at the ends".to_owned());
    }
    Ok(text.to_owned())
}

fn uid(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("expected the uid of the namespace kube-system, found nothing".to_owned()),
        uid => Ok(uid.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ebb_documents::diagnostic::DiagnosticStyle;
    use ebb_relay_client::{ClusterRegistry, RelayTransport};

    use super::*;

    #[derive(Debug, Parser)]
    struct ConnectLine {
        #[command(flatten)]
        args: ClusterConnectArgs,
    }

    #[test]
    fn an_entry_has_the_secret_of_the_manifests() {
        let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
        let offline = |more: &[&str]| {
            let line = "- eu --image r/relay:1 --entrypoint-image r/entrypoint:1 --offline --uid u-1";
            let args = ConnectLine::try_parse_from(line.split(' ').chain(more.iter().copied())).unwrap().args;
            args.offline_installation(&secret).map_err(|error| error.text(DiagnosticStyle::Plain))
        };
        let callback = "--callback-url=https://ebb.example/v1/callbacks";
        for (direction, transport) in [
            ("--push-url=https://relay.example/", RelayTransport::Push("https://relay.example".to_owned())),
            ("--pull-url=https://ebb.example/", RelayTransport::Pull),
        ] {
            let ((manifests, _), clusters) = offline(&[callback, direction]).unwrap();
            let registry = ClusterRegistry::parse(&clusters.to_string()).unwrap();
            let cluster = registry.named(Some("eu")).unwrap();
            assert_eq!(
                (&cluster.transport, &*cluster.uid, &*cluster.entrypoint_image, &*cluster.keys.first().reveal()),
                (&transport, "u-1", "r/entrypoint:1", &*secret.reveal())
            );
            assert!(manifests.contains(&**secret.reveal()), "{manifests}");
        }
        for missing in [&[callback][..], &["--pull-url=https://ebb.example"]] {
            assert!(offline(missing).unwrap_err().contains("--offline needs"), "{missing:?}");
        }
        let line = ["-", "eu", "--offline"];
        assert!(ConnectLine::try_parse_from(line).unwrap_err().to_string().contains("--uid"));
    }

    #[test]
    fn urls_of_one_machine_are_refused() {
        let given = |pull: Option<&str>, callback: Option<&str>| ClusterOptions {
            pull_url: pull.map(str::to_owned),
            callback_url: callback.map(str::to_owned),
            ..ClusterOptions::default()
        };
        let found = |used: &str, options: &ClusterOptions, of_server: &str| {
            addresses(&used.parse().unwrap(), options, of_server).map_err(|error| error.text(DiagnosticStyle::Plain))
        };
        let urls = |api: &str, callback: &str| Ok((api.to_owned(), callback.to_owned()));
        let (local, callback) = ("http://127.0.0.1:7878/", "http://10.0.0.7:7878/v1/callbacks");
        // A server on AWS has another host for callbacks.
        assert_eq!(found("https://api.example/", &given(None, None), callback), urls("https://api.example", callback));
        assert_eq!(found(local, &given(None, None), callback), urls("http://10.0.0.7:7878", callback));
        let own = given(Some("http://127.0.0.1:1"), Some("http://localhost:2"));
        assert_eq!(found(local, &own, callback), urls("http://127.0.0.1:1", "http://localhost:2"));
        for options in [given(None, None), given(Some("https://proxy.example"), None)] {
            let error = found(local, &options, "http://127.0.0.1:7878/v1/callbacks").unwrap_err();
            assert!(error.contains("cannot reach") && error.contains("--listen ADDRESS"), "{error}");
        }
    }
}
