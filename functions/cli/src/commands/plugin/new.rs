//! `ebb plugin new`.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use super::Named;
use crate::exit::{Exit, Trouble};
use crate::output;

const EBB: &str = include_str!("new.ebb.yaml");
const SIGNADOT: &str = include_str!("new.signadot.yaml");
const PLACE: &str = "NAME";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the plugin is called; without a version it begins at 0.1.0
    #[arg(value_name = "NAME[@VERSION]", value_parser = definition)]
    name: Named,
    /// In Signadot's format
    #[arg(long)]
    signadot: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Trouble> {
        let name = &self.name.name;
        let shaped = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !shaped {
            return Err(Trouble::broken(format!("`{name}` is no name for a plugin")).next(
                "start with a letter, go on with letters, digits and `-`, end with a letter or digit",
            ));
        }
        let text = document(&self.name, if self.signadot { SIGNADOT } else { EBB });
        let path = PathBuf::from(format!("{name}.yaml"));
        let written = File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => {
                output::print(&format!("{}\n", path.display()))?;
                output::tell(&format!("check it with `ebb plugin validate {}`", path.display()));
                Ok(Exit::Done)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(Trouble::failed(format!("{} is there already and stays as it is", path.display()))
                    .next("another name, or remove the file"))
            }
            Err(error) => {
                Err(Trouble::broken(format!("{} cannot be written", path.display())).because(&error))
            }
        }
    }
}

/// The name of a plugin that is defined: `latest` only refers to a version.
fn definition(text: &str) -> Result<Named, String> {
    match text.split_once('@') {
        Some((name, "latest")) => Err(format!(
            "`@latest` is not a version, it only refers to one; write `{name}@1.0.0`, or `{name}`"
        )),
        _ => text.parse(),
    }
}

fn document(named: &Named, template: &str) -> String {
    let version = named.version.clone().unwrap_or(semver::Version::new(0, 1, 0));
    template.replacen(PLACE, &format!("{}@{version}", named.name), 1)
}
