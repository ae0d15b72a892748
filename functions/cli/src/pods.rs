//! The runtime of scripts on this machine, for commands that start a server.

use std::path::PathBuf;

use clap::ValueEnum;
use ebb_local::ContainerEngine;

use crate::exit::CliError;

/// The runtime of a script. Not documented for clap, which would write the whole help of a command at length for that: a
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
    docker_host: Option<String>,
    /// The entrypoint that is copied into containers (`cargo xtask build entrypoint`); without it `ebb-entrypoint` beside
    /// this program
    #[arg(long, value_name = "FILE")]
    entrypoint: Option<PathBuf>,
}

impl PodsArgs {
    /// Returns the engine that runs scripts as containers, if the options name one.
    pub(crate) async fn containers(self) -> Result<Option<ContainerEngine>, CliError> {
        let programs: &[&str] = match self.pods {
            PodRuntime::Process => return Ok(None),
            PodRuntime::Docker => &["docker", "podman"],
            PodRuntime::Podman => &["podman"],
        };
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("ebb-entrypoint"));
        let program = self.entrypoint.or_else(beside).unwrap_or_else(|| "ebb-entrypoint".into());
        let program = std::path::absolute(&program).unwrap_or(program);
        if !program.is_file() {
            return Err(CliError::broken(format!("the entrypoint {} does not exist", program.display()))
                .with_hint("build it with `cargo xtask build entrypoint`, and name it by --entrypoint"));
        }
        let url = self.docker_host.as_deref().filter(|url| !url.is_empty());
        let found = ContainerEngine::find(programs, url, program).await;
        found.map(Some).map_err(|error| {
            CliError::broken("scripts cannot run as containers")
                .with_causes(&error)
                .with_hint("start Docker, or install Podman")
        })
    }
}
