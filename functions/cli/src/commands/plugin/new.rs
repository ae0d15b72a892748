//! `ebb plugin new`: writes a plugin document from a template.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use super::versioned_name::VersionedName;
use crate::{CliError, Exit, Result, output};

const EBB: &str = include_str!("new.ebb.yaml");
const SIGNADOT: &str = include_str!("new.signadot.yaml");
const PLACE: &str = "NAME";

#[derive(Debug, clap::Args)]
pub(crate) struct PluginNewArgs {
    /// Name of the plugin; the default version is 0.1.0
    #[arg(value_name = "NAME[@VERSION]", value_parser = definition)]
    name: VersionedName,
    /// Write the document in Signadot's format
    #[arg(long)]
    signadot: bool,
}

impl PluginNewArgs {
    pub(crate) fn run(self) -> Result<Exit> {
        let name = &self.name.name;
        let shaped = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !shaped {
            return Err(CliError::broken(format!("`{name}` is not a valid plugin name"))
                .with_hint("use letters, digits and `-`; start with a letter, end with a letter or digit"));
        }
        let text = document(&self.name, if self.signadot { SIGNADOT } else { EBB });
        let path = PathBuf::from(format!("{name}.yaml"));
        let written = File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => {
                output::print(&format!("{}\n", path.display()))?;
                output::message(&format!("Check it with `ebb validate {}`", path.display()))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(CliError::failed(format!("{} exists already", path.display()))
                    .with_hint("choose another name, or remove the file"))
            }
            Err(error) => Err(CliError::broken(format!("cannot write {}", path.display())).with_causes(&error)),
        }
    }
}

/// Parses the name of a new plugin, which cannot have the version `latest`.
fn definition(text: &str) -> Result<VersionedName, String> {
    match text.split_once('@') {
        Some((name, "latest")) => Err(format!("`latest` is not a version: write `{name}@1.0.0` or `{name}`")),
        _ => text.parse(),
    }
}

fn document(named: &VersionedName, template: &str) -> String {
    let version = named.version.clone().unwrap_or(semver::Version::new(0, 1, 0));
    template.replacen(PLACE, &format!("{}@{version}", named.name), 1)
}
