//! Plugins on the command line.

use std::str::FromStr;

use ebb_documents::model;
use semver::Version;
use serde::de::DeserializeOwned;

use crate::{ApiClient, CliError, Result};

/// A plugin on the command line, `NAME[@VERSION]`.
#[derive(Clone, Debug)]
pub(crate) struct VersionedName {
    pub(crate) name: String,
    /// `None` selects the highest version.
    pub(super) version: Option<Version>,
}

impl VersionedName {
    /// Returns the version in the form for the API.
    pub(crate) fn version(&self) -> String {
        self.version.as_ref().map_or("latest".to_owned(), ToString::to_string)
    }

    /// Returns the published version. A missing one is an error.
    pub(crate) async fn find<T: DeserializeOwned>(&self, client: &ApiClient) -> Result<T> {
        client.find(&["plugins", &self.name, "versions", &self.version()]).await?.ok_or_else(|| self.unknown())
    }

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
            Some((name, version)) => {
                let wrong = || format!("`{version}` is not a version: expected MAJOR.MINOR.PATCH, such as 1.2.3");
                // In a document, a part of a version is a range.
                if version.split(['-', '+']).next().is_some_and(|numbers| numbers.split('.').count() < 3) {
                    return Err(wrong());
                }
                (name, Some(model::version(version).ok_or_else(wrong)?))
            }
        };
        if name.is_empty() {
            return Err("expected NAME[@VERSION], found no name".to_owned());
        }
        Ok(Self { name: name.to_owned(), version })
    }
}

pub(crate) fn never_published(name: &str) -> CliError {
    CliError::failed(format!("plugin {name} has no published version")).with_hint("ebb get plugins")
}
