//! The subcommands of `ebb plugin`.

mod batches;
mod diff;
mod interface;
mod new;
mod upgrade;
mod versioned_name;

use clap::Subcommand;
use ebb_documents::model::PluginDoc;
use ebb_protocol::api::SigningSecrets;
use semver::Version;

pub(super) use self::interface::interface;
pub(super) use self::versioned_name::{VersionedName, never_published};
use crate::{ApiClient, CliError, Exit, OutputArgs, Result, offline};

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Write a plugin document as a starting point
    New(new::PluginNewArgs),
    /// Compare the documents of two versions
    Diff(diff::PluginDiffArgs),
    /// Give living targets another version of a plugin
    Upgrade(Box<upgrade::PluginUpgradeArgs>),
    /// Print the secrets that verify the plugin's webhooks, the current one first
    SigningSecret(SigningSecretArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SigningSecretArgs {
    /// Name of the plugin; all versions have the same secrets
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl SigningSecretArgs {
    pub(super) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let secrets: Option<SigningSecrets> = client.find(&["plugins", &self.name, "signing-secret"]).await?;
        let secrets = secrets.ok_or_else(|| never_published(&self.name))?;
        self.output.write(&secrets, |secrets| secrets.secrets.join("\n"))
    }
}

/// Returns the error if the version is published with another content.
pub(crate) fn immutable(plugin: &PluginDoc) -> CliError {
    let verb = if plugin.version.is_some() { "increase the" } else { "add a" };
    let Version { major, minor, patch, .. } = offline::version(plugin);
    let next = Version::new(major, minor, patch + 1);
    CliError::failed(format!("{} is published already: versions are immutable", offline::full_name(plugin)))
        .with_hint(format!("{verb} version: name: {}@{next}", plugin.name.value))
}
