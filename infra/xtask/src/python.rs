//! Python tools, in the versions of the repository, with one virtual environment per set.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::run::{command, output, retry, root, run};
use crate::tools::{installed, packages};

/// Exits with the version of Python if it is older than 3.11.
const VERSION: &str = "import sys; sys.exit(None if sys.version_info >= (3, 11) else 'Python ' + sys.version)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PythonTools {
    /// SAM, with the tools of its build and its checks.
    Sam,
    Checkov,
    /// The test tools of the HTTP API.
    Api,
}

impl PythonTools {
    /// Returns the file with the versions and the folder of the environment.
    fn places(self) -> (PathBuf, PathBuf) {
        let (file, environment) = match self {
            Self::Sam => ("infra/aws/requirements.txt", "aws/sam"),
            Self::Checkov => ("infra/aws/checkov.txt", "aws/checkov"),
            Self::Api => ("infra/api/requirements.txt", "api"),
        };
        (root().join(file), root().join("target").join(environment))
    }

    /// Installs the set from PyPI unless it is complete. All sets need 1 GB, mostly for a compiler that links for an
    /// older glibc.
    pub(crate) fn install(self) -> anyhow::Result<()> {
        let (file, environment) = self.places();
        installed(&file, &environment, || {
            packages(&["python3-venv"])?;
            // With an older version, pip fails only after minutes.
            let needs = "the tools need Python 3.11 or newer, with venv, as the first python3 in PATH";
            output(command("python3").args(["-c", VERSION])).context(needs)?;
            run(command("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
            let pip = ["install", "--quiet", "--disable-pip-version-check", "--requirement"];
            retry(command(environment.join("bin/pip")).args(pip).arg(&file))
                .context("pip needs PyPI, or the index of PIP_INDEX_URL")
        })
    }

    /// Returns a program of an [installed](Self::install) set, or one with an absolute path. The programs of the set are in
    /// its PATH.
    pub(crate) fn program(self, name: impl AsRef<Path>) -> Command {
        let programs = self.places().1.join("bin");
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

/// Removes the user's settings for AWS and SAM. The tools ask no questions and send no usage data.
fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if ["AWS_", "SAM_CLI_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command.env("AWS_DEFAULT_REGION", "eu-west-1").env("SAM_CLI_TELEMETRY", "0");
}
