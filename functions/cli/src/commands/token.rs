//! The subcommands of `ebb token`.

use clap::Subcommand;
use ebb_protocol::{CreateToken, CreatedToken, rfc3339};
use serde_json::Value;

use super::kinds::table;
use crate::{ApiClient, CliError, Exit, OutputArgs, Result, output, timing};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it once
    Create(TokenCreateArgs),
    /// List tokens that are not revoked
    List(OutputArgs),
    /// Revoke a token; the next request with it is refused
    Revoke(TokenRevokeArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenCreateArgs {
    /// Name of the token: letters, digits, `-`, `_` and `.`
    name: String,
    /// Permission: read, targets:write or targets:reveal, each also with :own or :label:KEY=VALUE, plugins:write,
    /// plugins:write:NAME, sources:write or operate; repeatable
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<String>,
    /// Time until it expires, such as 12h or 30d, at most 366d
    #[arg(long, value_name = "DURATION", default_value = "90d")]
    ttl: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl TokenCreateArgs {
    pub(super) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let request = CreateToken { name: self.name, scopes: self.scopes, ttl: Some(self.ttl) };
        let created: CreatedToken = client.post(&["tokens"], &request).await?;
        let (name, expires) = (&created.info.name, timing::clock(&rfc3339(created.info.expires)));
        output::status_line(&format!("Created token {name}, valid until {expires}. It is printed once:"));
        self.output.write(&created, |created| format!("{}\n", created.token))
    }
}

pub(super) async fn list(client: &ApiClient, output: OutputArgs) -> Result<Exit> {
    let tokens: Vec<Value> = client.all("tokens").await?;
    output.write(&tokens, |tokens| table(&["NAME", "SCOPES", "EXPIRES", "CREATED BY"], tokens))
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenRevokeArgs {
    /// Name of the token
    name: String,
}

impl TokenRevokeArgs {
    pub(super) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let unknown =
            || CliError::failed(format!("the token {} does not exist", self.name)).with_hint("ebb token list");
        client.delete(&["tokens", &self.name], &[]).await?.ok_or_else(unknown)?;
        output::message(&format!("Revoked token {}", self.name))
    }
}
