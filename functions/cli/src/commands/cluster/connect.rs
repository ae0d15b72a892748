//! `ebb cluster connect`: prints the manifests of a relay and the control plane's entry for its cluster.
//!
//! The command sends no request and stores nothing. Its output is the only copy of the new secret.

use ebb_protocol::id::is_dns_label;
use ebb_protocol::sign::WebhookSecret;
use serde::Serialize;
use serde_json::{Map, Value, json};
use url::Url;

use crate::exit::{CliError, Exit, Result};
use crate::output::{self, OutputArgs};

/// The manifests of the relay's chart, with placeholders for the values of this command.
const MANIFESTS: &str = include_str!("../../../../../infra/relay/manifests.yaml");

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb cluster connect eu --pull-url https://ebb.example.com --callback-url https://ebb.example.com/v1/callbacks \\\n      --image ebb/ebb-relay:0.1.0 --entrypoint-image ebb/ebb-entrypoint:0.1.0 --uid UID >relay.yaml"
)]
#[command(group = clap::ArgGroup::new("direction").required(true).args(["push_url", "pull_url"]))]
pub(crate) struct ClusterConnectArgs {
    /// Name of the cluster in documents; documents that name none run in `default`
    #[arg(value_parser = label)]
    name: String,
    /// URL at which the control plane reaches the relay; prefer --pull-url
    #[arg(long, value_name = "URL")]
    push_url: Option<Url>,
    /// URL of the control plane's API; the relay polls it and needs no inbound access
    #[arg(long, value_name = "URL")]
    pull_url: Option<Url>,
    /// URL at which the control plane accepts callbacks
    #[arg(long, value_name = "URL")]
    callback_url: Url,
    /// Image of the relay, REPOSITORY:TAG or REPOSITORY@DIGEST
    #[arg(long, value_parser = image)]
    image: String,
    /// Image that contains the entrypoint as /ebb-entrypoint
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    entrypoint_image: String,
    /// Namespace of the relay and its records; it must hold nothing else
    #[arg(long, default_value = "ebb-relay", value_parser = label)]
    namespace: String,
    /// Namespace of units that name none
    #[arg(long, value_name = "NAMESPACE", default_value = "ebb-units", value_parser = label)]
    unit_namespace: String,
    /// UID of the namespace kube-system: `kubectl get namespace kube-system --output=jsonpath={.metadata.uid}`
    #[arg(long, value_parser = uid)]
    uid: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// The output of `-o json|yaml`.
#[derive(Serialize)]
struct ClusterConnection {
    manifests: String,
    clusters: Value,
}

impl ClusterConnectArgs {
    pub(crate) fn run(self) -> Result<Exit> {
        let secret = WebhookSecret::from_bytes(&rand::random::<[u8; 32]>()).expect("32 bytes are enough");
        let connection = self.connection(&secret)?;
        self.output.write(&connection, |connection| connection.manifests.clone())?;
        if self.output.format().is_none() {
            output::status_line(&format!(
                "Apply the manifests with `kubectl apply --filename=-`. Add this entry to EBB_CLUSTERS of the control plane:\n\n{}\n",
                connection.clusters
            ));
            output::status_line("Both contain a secret that Ebb does not show again.");
        }
        Ok(Exit::Done)
    }

    fn connection(&self, secret: &WebhookSecret) -> Result<ClusterConnection> {
        if self.namespace == self.unit_namespace {
            return Err(CliError::broken(
                "--namespace and --unit-namespace must be two namespaces: the relay's namespace holds no units",
            ));
        }
        if let Some(url) = &self.push_url {
            server(url, "--push-url")?;
        }
        let (pull_url, pull_port) = match &self.pull_url {
            Some(url) => (url.as_str().trim_end_matches('/'), server(url, "--pull-url")?.1.to_string()),
            None => ("", String::new()),
        };
        let (host, port) = server(&self.callback_url, "--callback-url")?;
        let secret = secret.reveal();
        // No placeholder is part of a later one. Numbers come first, because names and secrets can contain digits.
        let port = port.to_string();
        let pull_port = if pull_port.is_empty() { port.clone() } else { pull_port };
        let values = [
            ("https://api-of-control-plane:44444", pull_url),
            ("44444", &*pull_port),
            ("44443", &*port),
            ("name-of-cluster", &*self.name),
            ("namespace-of-relay", &self.namespace),
            ("namespace-of-units", &self.unit_namespace),
            ("image-of-relay", &self.image),
            ("host-of-control-plane", &host),
            ("whsec_secret+of+relay", &secret),
        ];
        let settings = format!("ebb.dev/settings: {:032x}", rand::random::<u128>());
        let lines = MANIFESTS.lines().skip_while(|line| line.starts_with('#')).map(|line| {
            // A new value restarts pods that have read older settings.
            match line.find("ebb.dev/settings: ") {
                Some(at) => format!("{}{settings}\n", &line[..at]),
                None => {
                    values.iter().fold(format!("{line}\n"), |line, (placeholder, text)| line.replace(placeholder, text))
                }
            }
        });
        let mut entry = json!({
            "secret": *secret,
            "uid": self.uid,
            "entrypointImage": self.entrypoint_image,
        });
        if let Some(url) = &self.push_url {
            entry["url"] = url.as_str().trim_end_matches('/').into();
        }
        let clusters = Value::Object(Map::from_iter([(self.name.clone(), entry)]));
        Ok(ClusterConnection { manifests: lines.collect(), clusters })
    }
}

/// Returns the host and port of a URL.
fn server(url: &Url, which: &str) -> Result<(String, u16)> {
    let (host, port) = (url.host_str(), url.port_or_known_default());
    match (url.scheme(), host, port) {
        ("http" | "https", Some(host), Some(port)) if url.username().is_empty() => Ok((host.to_owned(), port)),
        _ => Err(CliError::broken(format!("invalid {which}: expected https://HOST or http://HOST"))),
    }
}

fn label(text: &str) -> Result<String, String> {
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

/// Checks the name of an image. Allowed characters have no meaning in YAML.
fn image(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) {
        return Err("expected an image: REPOSITORY:TAG or REPOSITORY@DIGEST".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ebb_relay_client::{ClusterRegistry, RelayTransport};

    use super::*;

    #[derive(Parser)]
    struct OneLine {
        #[command(flatten)]
        args: ClusterConnectArgs,
    }

    fn connection(more: &[&str]) -> Result<ClusterConnection, String> {
        let relay = match more.iter().any(|it| it.starts_with("--pull-url")) {
            true => None,
            false => Some("--push-url=https://relay.example/"),
        };
        let line = ["", "eu", "--image=r/relay:1", "--entrypoint-image=r/entrypoint:1"];
        let callback = "--callback-url=https://ebb.example/v1/callbacks";
        let callback = if more.iter().any(|it| it.starts_with("--callback")) { None } else { Some(callback) };
        let uid = if more.iter().any(|it| it.starts_with("--uid")) { None } else { Some("--uid=u-1") };
        let line = line.into_iter().chain(relay).chain(callback).chain(uid).chain(more.iter().copied());
        let args = OneLine::try_parse_from(line).map_err(|error| error.to_string())?.args;
        let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
        args.connection(&secret).map_err(|error| error.text(ebb_documents::diagnostic::DiagnosticStyle::Plain))
    }

    #[test]
    fn manifests_and_entry_match() {
        let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap().reveal();
        let ClusterConnection { manifests, clusters } =
            connection(&["--namespace=own", "--unit-namespace=theirs", "--uid=u-1"]).unwrap();
        let cluster = ClusterRegistry::parse(&clusters.to_string()).unwrap();
        let cluster = cluster.named(Some("eu")).unwrap();
        assert_eq!(
            (&cluster.transport, &*cluster.uid, &*cluster.entrypoint_image, &*cluster.keys.first().reveal()),
            (&RelayTransport::Push("https://relay.example".to_owned()), "u-1", "r/entrypoint:1", &*secret)
        );
        for line in [
            "  name: own",
            "  name: theirs",
            "      theirs: []",
            "  name: ebb-relay:own:granted",
            "    app.kubernetes.io/instance: ebb-relay",
            "    meta.helm.sh/release-namespace: own",
            "            - {name: EBB_RELAY_CLUSTER, value: \"eu\"}",
            "          image: \"r/relay:1\"",
            "            - {name: EBB_RELAY_CALLBACK_HOSTS, value: \"ebb.example:443\"}",
            "            - {name: EBB_RELAY_UNIT_NAMESPACE, value: theirs}",
            "        - {protocol: TCP, port: 443}",
            &format!("  secret: \"{}\"", *secret),
        ] {
            assert!(manifests.lines().any(|it| it == line), "{line}\n{manifests}");
        }
        for placeholder in ["-of-", "+of+", "44443", "44444"] {
            assert!(!manifests.contains(placeholder), "{placeholder} remains");
        }
        assert!(manifests.contains("{name: EBB_RELAY_PULL_URL, value: \"\"}"), "{manifests}");
        let pull = connection(&["--pull-url=https://api.example:8443/"]).unwrap();
        for part in [
            "{name: EBB_RELAY_PULL_URL, value: \"https://api.example:8443\"}",
            "{name: EBB_RELAY_CLUSTER, value: \"eu\"}",
            "{protocol: TCP, port: 8443}",
            "{protocol: TCP, port: 443}",
        ] {
            assert!(pull.manifests.contains(part), "{part}\n{}", pull.manifests);
        }
        let cluster = ClusterRegistry::parse(&pull.clusters.to_string()).unwrap();
        assert_eq!(cluster.named(Some("eu")).unwrap().transport, RelayTransport::Pull);
        let other = connection(&["--callback-url=http://10.0.0.1:8080"]).unwrap();
        assert!(other.manifests.contains("\"10.0.0.1:8080\"") && other.manifests.contains("port: 8080}"));
        let settings = |text: &str| text.lines().find(|it| it.contains("ebb.dev/settings: ")).map(str::to_owned);
        assert!(settings(&manifests).is_some() && settings(&manifests) != settings(&other.manifests));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for (argument, expected) in [
            ("--namespace=ebb-units", "two namespaces"),
            ("--namespace=A", "DNS label"),
            ("--unit-namespace=a: b", "DNS label"),
            ("--callback-url=ftp://h", "invalid --callback-url"),
            ("--callback-url=https://u@h", "invalid --callback-url"),
            ("--uid=", "uid of the namespace kube-system"),
        ] {
            let error = connection(&[argument]).map(|it| it.manifests).unwrap_err();
            assert!(error.contains(expected), "{argument}: {error}");
        }
        for (text, is_valid) in [("a.b:1/c@sha256:0", true), ("a\"b", false), ("", false), ("a b", false)] {
            assert_eq!(image(text).is_ok(), is_valid, "{text:?}");
        }
    }
}
