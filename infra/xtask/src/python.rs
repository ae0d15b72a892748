//! Tools that are written in Python, in the versions that the repository names, each set in an environment of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::packages::{self, OF_PYTHON};
use crate::run::{command, retried, root, run};

/// Says which Python this is, and ends with 0 if it is one that the versions of the repository are for.
const VERSION: &str = "import sys; print(sys.version.split()[0]); sys.exit(0 if sys.version_info >= (3, 11) else 1)";

/// A set of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PythonTools {
    /// SAM and what it builds, checks and deploys with.
    Sam,
    Checkov,
    /// The packages that test the HTTP interface.
    Api,
}

impl PythonTools {
    /// The file that names versions, and the folder of the environment.
    fn places(self) -> (PathBuf, PathBuf) {
        let (file, environment) = match self {
            Self::Sam => ("infra/aws/requirements.txt", "aws/sam"),
            Self::Checkov => ("infra/aws/checkov.txt", "aws/checkov"),
            Self::Api => ("infra/api/requirements.txt", "api"),
        };
        (root().join(file), root().join("target").join(environment))
    }

    /// Installs the set, unless these versions are there already: 1 GB from PyPI, most of it the compiler that links
    /// for an older glibc.
    ///
    /// # Errors
    /// When Python is missing or too old, or pip cannot install.
    pub(crate) fn install(self) -> anyhow::Result<()> {
        let (file, environment) = self.places();
        let wanted = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let complete = environment.join("complete");
        if fs::read_to_string(&complete).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        packages::install(&OF_PYTHON)?;
        suitable()?;
        eprintln!("installing {} into {}", file.display(), environment.display());
        run(command("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        retried(|| {
            let mut pip = command(environment.join("bin/pip"));
            pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&file);
            pip
        })
        .with_context(|| {
            format!(
                "cannot install the packages of {}: pip has to reach PyPI, or an index that PIP_INDEX_URL names",
                file.display()
            )
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
        without_settings(&mut command);
        command
    }
}

/// Refuses a Python that pip would find no packages for, after it has tried for minutes.
fn suitable() -> anyhow::Result<()> {
    let asked = command("python3").args(["-c", VERSION]).output().context("cannot start python3")?;
    let version = String::from_utf8_lossy(&asked.stdout);
    ensure!(
        asked.status.success(),
        "python3 is {}, and the versions in infra need 3.11 or newer: install one that PATH finds first as python3, with venv",
        version.trim()
    );
    Ok(())
}

/// Removes the settings of this machine's user for AWS and SAM. No command asks questions or sends usage data.
fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if ["AWS_", "SAM_CLI_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command.env("AWS_DEFAULT_REGION", "eu-west-1").env("SAM_CLI_TELEMETRY", "0");
}
