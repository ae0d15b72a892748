//! The subcommands of `ebb connection`.

use clap::{Subcommand, ValueEnum};
use ebb_documents::diagnostic::Diagnostic;
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::ConnectionDoc;
use ebb_protocol::api::{ConnectionDetail, ConnectionInfo};

use crate::client::ApiClient;
use crate::commands::connect;
use crate::commands::named_documents::{self, NamedApplyArgs, NamedDeleteArgs, NamedDocument, NamedGetArgs};
use crate::commands::plugin::validate::PluginValidateArgs;
use crate::documents::{self, DocumentSource};
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::server::ServerArgs;
use crate::timing;

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionCommand {
    /// Print a connection as a starting point
    New(ConnectionNewArgs),
    /// Check documents without a server
    Validate(PluginValidateArgs),
    /// Create or replace a connection
    Apply(NamedApplyArgs),
    /// List connections, and whether their secrets exist
    List(OutputArgs),
    /// Show a connection. `-o yaml` prints the document, `-o json` all stored data
    Get(NamedGetArgs),
    /// Delete a connection; units of existing targets that use it fail
    Delete(NamedDeleteArgs),
}

impl ConnectionCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        match self {
            Self::New(args) => args.run(),
            Self::Validate(args) => args.run(),
            Self::Apply(args) => args.run::<ConnectionDoc>(|| connect(server)).await,
            Self::List(output) => named_documents::list::<ConnectionDoc>(&connect(server)?, output).await,
            Self::Get(args) => args.run::<ConnectionDoc>(&connect(server)?).await,
            Self::Delete(args) => args.run::<ConnectionDoc>(&connect(server)?).await,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  ebb connection new neon --origin https://console.neon.tech --plugin neon-branch > neon.yaml"
)]
pub(crate) struct ConnectionNewArgs {
    /// Name of the connection
    name: String,
    /// Origin of the API
    #[arg(long, value_name = "URL")]
    origin: String,
    /// Scheme of the credential
    #[arg(long, value_name = "SCHEME", value_enum, default_value = "bearer")]
    auth: AuthScheme,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AuthScheme {
    /// `Authorization: Bearer VALUE`
    Bearer,
    /// `Authorization: Basic …`
    Basic,
    /// The value in a header
    Header,
    /// Standard Webhooks
    Signed,
}

impl ConnectionNewArgs {
    fn run(self) -> Result<Exit> {
        let Self { name, origin, auth, plugins, sources, subscriptions } = self;
        let secret = format!("{}_TOKEN", name.to_ascii_uppercase().replace('-', "_"));
        let auth = match auth {
            AuthScheme::Bearer => format!("{{bearer: {{secret: {secret}}}}}"),
            AuthScheme::Basic => format!("{{basic: {{username: ebb, secret: {secret}}}}}"),
            AuthScheme::Header => format!("{{header: {{name: X-Api-Key, secret: {secret}}}}}"),
            AuthScheme::Signed => format!("{{signed: {{secret: {secret}}}}}"),
        };
        let mut document =
            format!("apiVersion: ebb.dev/v1\nkind: Connection\nname: {name}\norigin: {origin}\nauth: {auth}\n");
        for (key, names) in [("plugins", plugins), ("sources", sources), ("subscriptions", subscriptions)] {
            if !names.is_empty() {
                document.push_str(&format!("{key}: [{}]\n", names.join(", ")));
            }
        }
        load::connection("the new connection", &document, &NoFiles, &DocumentVars::none())?;
        output::print_data(&document)?;
        output::status_line(&format!(
            "Store the credential as the secret {secret}, then: ebb connection apply -f FILE"
        ));
        Ok(Exit::Done)
    }
}

impl NamedDocument for ConnectionDoc {
    const KIND: &'static str = "connection";
    const COLLECTION: &'static str = "connections";
    const DELETED: &'static str = "units of existing targets that use it fail";
    const COLUMNS: &'static [&'static str] =
        &["NAME", "ORIGIN", "AUTH", "SECRET", "PLUGINS", "SOURCES", "SUBSCRIPTIONS"];
    type Info = ConnectionInfo;
    type Detail = ConnectionDetail;

    fn load(file: &DocumentSource, vars: &DocumentVars) -> Result<Self> {
        Ok(load::connection(&file.name, &file.text, &file.folder, vars)?)
    }

    fn content(&self) -> (&str, &str) {
        (&self.name.value, &self.expanded)
    }

    fn report(&self, _client: &ApiClient, ConnectionDetail { info, .. }: &ConnectionDetail) {
        output::status_line(&format!("Applied connection {} to {}", info.name, info.origin));
        if !info.has_secret {
            let message = format!("the deployment has no secret {}", info.secret);
            let secret = self.auth.scheme.secret();
            documents::warn([&Diagnostic::warning("missing-secret", &self.source, secret.at, message)]);
        }
    }

    fn row(info: &ConnectionInfo) -> Vec<String> {
        if let Some(reason) = &info.unreadable {
            return vec![info.name.clone(), format!("unreadable: {reason}")];
        }
        let secret = if info.has_secret { info.secret.clone() } else { format!("{} (missing)", info.secret) };
        let mut row = vec![info.name.clone(), info.origin.clone(), info.auth.clone(), secret];
        let users = [&info.plugins, &info.sources, &info.subscriptions].map(|names| names.join(", "));
        row.extend(users.map(|names| if names.is_empty() { "-".to_owned() } else { names }));
        row
    }

    fn document(detail: &ConnectionDetail) -> &str {
        &detail.document
    }

    fn text(ConnectionDetail { info, .. }: &ConnectionDetail) -> String {
        if let Some(reason) = &info.unreadable {
            return named_documents::unreadable(&info.name, reason, &info.changed);
        }
        let missing = if info.has_secret { "" } else { " (missing)" };
        format!(
            "Name:           {}\nOrigin:         {}\nAuth:           {}\nSecret:         {}{missing}\nPlugins:        {}\nSources:        {}\n\
             Subscriptions:  {}\nChanged:        {}\n",
            info.name,
            info.origin,
            info.auth,
            info.secret,
            info.plugins.join(", "),
            info.sources.join(", "),
            info.subscriptions.join(", "),
            timing::clock(&info.changed)
        )
    }
}
