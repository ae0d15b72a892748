//! The subcommands of `ebb source`.

mod document;
mod new;
mod send;
mod test;

use clap::Subcommand;
use ebb_local::SecretFile;
use ebb_protocol::named_secrets::{SecretReader as _, SecretText};

use self::document::CheckedSource;
use super::named_documents::{self, NamedApplyArgs, NamedDeleteArgs, NamedGetArgs};
use crate::client::ApiClient;
use crate::exit::{CliError, Exit, Result};
use crate::output::OutputArgs;
use crate::server::ServerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Print a source as a starting point, and the setup of its sender
    New(new::SourceNewArgs),
    /// Show the effect of an event on a source, without a server
    Test(test::SourceTestArgs),
    /// Sign an event with the secret of `ebb dev` and send it, for tests
    Send(send::SourceSendArgs),
    /// Create or replace a source
    Apply(NamedApplyArgs),
    /// List sources
    List(OutputArgs),
    /// Show a source and its rejected events. `-o yaml` prints the document, `-o json` all stored data
    Get(NamedGetArgs),
    /// Delete a source; the targets that its events created stay
    Delete(NamedDeleteArgs),
}

impl SourceCommand {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        match self {
            Self::New(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Send(args) => args.run(&super::connect(server)?).await,
            Self::Apply(args) => args.run::<CheckedSource>(|| super::connect(server)).await,
            Self::List(output) => named_documents::list::<CheckedSource>(&super::connect(server)?, output).await,
            Self::Get(args) => args.run::<CheckedSource>(&super::connect(server)?).await,
            Self::Delete(args) => args.run::<CheckedSource>(&super::connect(server)?).await,
        }
    }
}

/// Returns a secret of the server, if the state of the server is on this machine.
///
/// # Errors
/// Returns an error if the file of the secrets is invalid.
fn local_secret(client: &ApiClient, name: &str) -> Result<Option<SecretText>> {
    let Some(state) = client.state_folder() else { return Ok(None) };
    SecretFile::of(state).secret(name).map_err(CliError::failed)
}
