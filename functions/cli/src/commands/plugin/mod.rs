//! The subcommands of `ebb plugin`.

mod diff;
mod interface;
mod new;
mod upgrade;

use std::str::FromStr;

use clap::Subcommand;
use ebb_documents::model::{self, PluginDoc};
use ebb_protocol::api::SigningSecrets;
use semver::Version;

pub(super) use self::interface::interface;
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

/// A plugin on the command line, `NAME[@VERSION]`.
#[derive(Clone, Debug)]
pub(super) struct VersionedName {
    pub(super) name: String,
    /// `None` selects the highest version.
    version: Option<Version>,
}

impl VersionedName {
    /// Returns the version in the form for the API.
    pub(super) fn version(&self) -> String {
        self.version.as_ref().map_or("latest".to_owned(), ToString::to_string)
    }

    /// Returns the error if no such version is published.
    pub(super) fn unknown(&self) -> CliError {
        match &self.version {
            Some(version) => CliError::failed(format!("{}@{version} is not published", self.name))
                .with_hint(format!("ebb get plugin {} --all", self.name)),
            None => never_published(&self.name),
        }
    }
}

impl FromStr for VersionedName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, "latest")) => (name, None),
            Some((name, version)) => (name, Some(exact(version)?)),
        };
        if name.is_empty() {
            return Err("expected NAME[@VERSION], found no name".to_owned());
        }
        Ok(Self { name: name.to_owned(), version })
    }
}

fn exact(text: &str) -> Result<Version, String> {
    model::version(text).ok_or_else(|| format!("`{text}` is not a version: expected MAJOR.MINOR.PATCH, such as 1.2.3"))
}

pub(super) fn never_published(name: &str) -> CliError {
    CliError::failed(format!("plugin {name} has no published version")).with_hint("ebb get plugins")
}

/// Returns the error if the version is published with another content.
pub(crate) fn immutable(plugin: &PluginDoc) -> CliError {
    let name = &plugin.name.value;
    let full = offline::full_name(plugin);
    let error = CliError::failed(format!("{full} is published already: versions are immutable"));
    match &plugin.version {
        Some(version) => {
            let mut next = version.clone();
            next.patch += 1;
            next.pre = semver::Prerelease::EMPTY;
            next.build = semver::BuildMetadata::EMPTY;
            error.with_hint(format!("increase the version: name: {name}@{next}"))
        }
        None => error.with_hint(format!("add a version: name: {name}@0.0.1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_version() {
        let named = |text: &str| text.parse::<VersionedName>();
        assert_eq!(named("db").map(|named| named.version()), Ok("latest".to_owned()));
        assert_eq!(named("db@latest").map(|named| named.version()), Ok("latest".to_owned()));
        for text in ["db@1.0.0", "db@v1", "db@1.0"] {
            assert_eq!(named(text).map(|named| named.version()), Ok("1.0.0".to_owned()), "{text}");
        }
        assert_eq!(named("db@2.0-rc.1").map(|named| named.version()), Ok("2.0.0-rc.1".to_owned()));
        assert!(named("db@x").is_err());
        assert!(named("@1.0.0").is_err());
    }
}
