//! `ebb connection new`, and what is to do after a connection was stored.

use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser};
use ebb_documents::{ConnectionDoc, Diagnostic, DocumentVars, NoFiles, load};
use serde_json::Value;

use crate::{Exit, Result, documents, output};

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionCommand {
    /// Print a connection as a starting point
    New(ConnectionNewArgs),
}

/// Prints the effect of a connection that was stored.
pub(super) fn report(connection: &ConnectionDoc, stored: &Value) {
    let (name, origin) = (&connection.name.value, stored["origin"].as_str().unwrap_or_default());
    output::status_line(&format!("Applied connection {name} to {origin}"));
    if let Some(problem) = stored["problem"].as_str()
        && let Some(secret) = connection.auth.secrets().next()
    {
        documents::warn([&Diagnostic::warning("unusable-secret", &connection.source, secret.at, problem)]);
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionNewArgs {
    /// Name of the connection
    name: String,
    /// Origin of the API
    #[arg(long, value_name = "URL")]
    origin: String,
    /// Scheme of the credential
    #[arg(long, value_name = "SCHEME", value_parser = schemes(), default_value = "bearer")]
    auth: String,
    /// Plugin that may use the connection; repeatable
    #[arg(long = "plugin", value_name = "NAME", required_unless_present_any = ["sources", "subscriptions"])]
    plugins: Vec<String>,
    /// Source that may complete its events with the connection; repeatable
    #[arg(long = "source", value_name = "NAME")]
    sources: Vec<String>,
    /// Subscription that may send notifications with the connection; repeatable
    #[arg(long = "subscription", value_name = "NAME")]
    subscriptions: Vec<String>,
}

/// The schemes of a credential, each with its meaning and its keys beside `secret`.
const SCHEMES: [(&str, &str, &str); 9] = [
    ("bearer", "`Authorization: Bearer VALUE`", ""),
    ("basic", "`Authorization: Basic …`", "username: ebb, "),
    ("header", "The value in a header", "name: X-Api-Key, "),
    ("signed", "Standard Webhooks", ""),
    ("oauth", "An access token of OAuth 2.0", "tokenUrl: /oauth/token, clientId: ebb, "),
    ("digest", "HTTP Digest", "username: ebb, "),
    ("sigv4", "AWS Signature Version 4", "accessKeyId: AKIAEXAMPLE, region: us-east-1, service: execute-api, "),
    ("mtls", "A client certificate of TLS", ""),
    ("githubApp", "A token of a GitHub App", "appId: \"1234\", installation: \"5678\", "),
];

fn schemes() -> PossibleValuesParser {
    PossibleValuesParser::new(SCHEMES.map(|(name, meaning, _)| PossibleValue::new(name).help(meaning)))
}

impl ConnectionNewArgs {
    pub(super) fn run(self) -> Result<Exit> {
        let Self { name, origin, auth, plugins, sources, subscriptions } = self;
        let secret = format!("{}_TOKEN", name.to_ascii_uppercase().replace('-', "_"));
        let keys = SCHEMES.iter().find(|(name, ..)| *name == auth).map_or("", |(.., keys)| *keys);
        let auth = format!("{{{auth}: {{{keys}secret: {secret}}}}}");
        let mut document =
            format!("apiVersion: ebb.dev/v1\nkind: Connection\nname: {name}\norigin: {origin}\nauth: {auth}\n");
        for (key, names) in [("plugins", plugins), ("sources", sources), ("subscriptions", subscriptions)] {
            if !names.is_empty() {
                document.push_str(&format!("{key}: [{}]\n", names.join(", ")));
            }
        }
        load::connection("the new connection", &document, &NoFiles, &DocumentVars::none())?;
        output::print_data(&document)?;
        output::message(&format!("Store the credential as the secret {secret}, then: ebb apply -f FILE"))
    }
}
