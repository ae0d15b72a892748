//! Tools that are written in Python, in the versions that the repository names, each set in an environment of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::packages::{self, OF_AWS};
use crate::run::{command, folder, retried, root, run};

/// A set of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tools {
    /// SAM and what it builds, checks and deploys with.
    Sam,
    /// The scanner.
    Checkov,
}

impl Tools {
    /// The file that names versions, and the folder of the environment.
    fn places(self) -> (PathBuf, PathBuf) {
        let (file, name) = match self {
            Self::Sam => ("requirements.txt", "sam"),
            Self::Checkov => ("checkov.txt", "checkov"),
        };
        (root().join("infra/aws").join(file), folder().join("aws").join(name))
    }

    /// Installs the set, unless these versions are there already: 1 GB from PyPI, most of it the compiler that links
    /// for an older glibc.
    ///
    /// # Errors
    /// When Python is missing, or pip cannot install.
    pub(crate) fn install(self) -> anyhow::Result<()> {
        let (file, environment) = self.places();
        let wanted = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let complete = environment.join("complete");
        if fs::read_to_string(&complete).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        packages::install(&OF_AWS)?;
        eprintln!("installing {} into {}", file.display(), environment.display());
        run(command("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        retried(|| {
            let mut pip = command(environment.join("bin/pip"));
            pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&file);
            pip
        })?;
        fs::write(&complete, wanted).with_context(|| complete.display().to_string())
    }

    /// The folder of its programs.
    pub(crate) fn programs(self) -> PathBuf {
        self.places().1.join("bin")
    }

    /// A program of the set, which finds the others; to be [installed](Self::install) before.
    pub(crate) fn program(self, name: &str) -> Command {
        let programs = self.programs();
        let mut command = command(programs.join(name));
        let others = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(programs).chain(std::env::split_paths(&others));
        if let Ok(paths) = std::env::join_paths(paths) {
            command.env("PATH", paths);
        }
        // Nobody is asked and told, and no settings of this machine's user play a part.
        command.env("SAM_CLI_TELEMETRY", "0").env("AWS_DEFAULT_REGION", "eu-west-1");
        command
    }
}
