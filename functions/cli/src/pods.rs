//! How scripts run on this machine, for commands that start a server.

use std::path::PathBuf;

use clap::ValueEnum;
use ebb_local::ContainerEngine;

use crate::exit::CliError;

/// What a script runs as. Not documented for clap, which would write the whole help of a command at length for that: a
/// process of this machine, whatever image its plugin names, or a container of its image, by Docker (Podman if Docker
/// does not answer) or by Podman.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum PodRuntime {
    #[default]
    Process,
    Docker,
    Podman,
}

/// Options of scripts without a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Scripts")]
pub(crate) struct PodsArgs {
    /// What scripts run as without a cluster: processes of this machine, or containers of their image
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["kubeconfig", "clusters"])]
    pods: PodRuntime,
    /// The address of Docker or Podman; without it the command's own default
    #[arg(long, value_name = "URL")]
    docker: Option<String>,
    /// The runner that is copied into containers (`cargo xtask build entrypoint`); without it `ebb-entrypoint` beside this program
    #[arg(long, value_name = "FILE")]
    runner: Option<PathBuf>,
}

impl PodsArgs {
    /// What runs scripts as containers, if that is wanted.
    pub(crate) async fn containers(self) -> Result<Option<ContainerEngine>, CliError> {
        let programs: &[&str] = match self.pods {
            PodRuntime::Process => return Ok(None),
            PodRuntime::Docker => &["docker", "podman"],
            PodRuntime::Podman => &["podman"],
        };
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("ebb-entrypoint"));
        let runner = self.runner.or_else(beside).unwrap_or_else(|| "ebb-entrypoint".into());
        let runner = std::path::absolute(&runner).unwrap_or(runner);
        if !runner.is_file() {
            return Err(CliError::broken(format!("the runner {} does not exist", runner.display()))
                .with_hint("build it with `cargo xtask build entrypoint`, and name it by --runner"));
        }
        let url = self.docker.as_deref().filter(|url| !url.is_empty());
        let found = ContainerEngine::find(programs, url, runner).await;
        found.map(Some).map_err(|error| {
            CliError::broken("scripts cannot run as containers")
                .with_causes(&error)
                .with_hint("start Docker, or install Podman")
        })
    }
}
