//! The subcommands of `ebb connection`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_protocol::api::ConnectionDetail;

use crate::client::ApiClient;
use crate::commands::connect;
use crate::commands::plugin::validate::PluginValidateArgs;
use crate::documents::{self, SetArgs};
use crate::dry_run::{self, ChangeKind, DocumentChange, DryRunArgs};
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs, OutputFormat};
use crate::server::ServerArgs;
use crate::timing;

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionCommand {
    /// Print a connection as a starting point
    New(ConnectionNewArgs),
    /// Check documents without a server
    Validate(PluginValidateArgs),
    /// Create or replace a connection
    Apply(ConnectionApplyArgs),
    /// List connections, and whether their secrets exist
    List(ConnectionListArgs),
    /// Show a connection. `-o yaml` prints the document, `-o json` all stored data
    Get(ConnectionGetArgs),
    /// Delete a connection; units of existing targets that use it fail
    Delete(ConnectionDeleteArgs),
}

impl ConnectionCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        match self {
            Self::New(args) => args.run(),
            Self::Validate(args) => args.run(),
            Self::Apply(args) => args.run(&connect(server)?).await,
            Self::List(args) => args.run(&connect(server)?).await,
            Self::Get(args) => args.run(&connect(server)?).await,
            Self::Delete(args) => args.run(&connect(server)?).await,
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
    fn run(self) -> Result<Exit, CliError> {
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
        output::print(&document)?;
        output::status_line(&format!(
            "Store the credential as the secret {secret}, then: ebb connection apply -f FILE"
        ));
        Ok(Exit::Done)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionApplyArgs {
    /// File with the connection; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl ConnectionApplyArgs {
    async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let connection = documents::connection(&self.file, &self.sets.vars()?)?;
        if self.dry_run.is_set() {
            let name = connection.name.value.clone();
            let change = match client.connection(&name).await? {
                None => ChangeKind::Create,
                Some(found) if found.document == connection.expanded => ChangeKind::None,
                Some(_) => ChangeKind::Replace,
            };
            dry_run::print(&[DocumentChange::planned("connection", name, change)], self.output)?;
            return Ok(Exit::Done);
        }
        let detail = client.put_connection(&connection.name.value, &connection.expanded).await?;
        output::status_line(&format!("Applied connection {} to {}", detail.info.name, detail.info.origin));
        if !detail.info.has_secret {
            output::status_line(&format!("The deployment needs the secret {}", detail.info.secret));
        }
        self.output.write_data(&detail)?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl ConnectionListArgs {
    async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        self.output.write(&client.connections().await?, |connections| {
            let rows = connections.iter().map(|one| {
                let secret = if one.has_secret { one.secret.clone() } else { format!("{} (missing)", one.secret) };
                let users = [&one.plugins, &one.sources, &one.subscriptions].map(|names| names.join(", "));
                let [plugins, sources, subscriptions] =
                    users.map(|names| if names.is_empty() { "-".to_owned() } else { names });
                [one.name.clone(), one.origin.clone(), one.auth.clone(), secret, plugins, sources, subscriptions]
            });
            output::table(&["NAME", "ORIGIN", "AUTH", "SECRET", "PLUGINS", "SOURCES", "SUBSCRIPTIONS"], rows)
        })?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionGetArgs {
    /// Name of the connection
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl ConnectionGetArgs {
    async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let detail = client.connection(&self.name).await?.ok_or_else(|| unknown(&self.name))?;
        match self.output.format() {
            Some(OutputFormat::Yaml) => output::print(&detail.document)?,
            Some(OutputFormat::Json) | None => self.output.write(&detail, text)?,
        }
        Ok(Exit::Done)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionDeleteArgs {
    /// Name of the connection
    name: String,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl ConnectionDeleteArgs {
    async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let change = DocumentChange::planned("connection", self.name.clone(), ChangeKind::Delete);
        if self.dry_run.is_set() {
            client.connection(&self.name).await?.ok_or_else(|| unknown(&self.name))?;
            dry_run::print(&[change], self.output)?;
            return Ok(Exit::Done);
        }
        client.delete_connection(&self.name).await?.ok_or_else(|| unknown(&self.name))?;
        output::status_line(&format!("Deleted connection {}; units of existing targets that use it fail", self.name));
        self.output.write_data(&[DocumentChange { dry_run: false, ..change }])?;
        Ok(Exit::Done)
    }
}

fn unknown(name: &str) -> CliError {
    CliError::failed(format!("no connection {name} exists")).with_hint("ebb connection list")
}

fn text(ConnectionDetail { info, .. }: &ConnectionDetail) -> String {
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
