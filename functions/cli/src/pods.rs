//! The runtime of scripts on this machine, for commands that start a server.

use std::path::PathBuf;

use clap::ValueEnum;
use ebb_local::ContainerEngine;

use crate::exit::CliError;

/// The runtime of a script: a process of this machine without an image, or a container of the plugin's image.
///
/// `Docker` falls back to Podman. Variants have no docs: clap would then print the long form of each help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum PodRuntime {
    #[default]
    Process,
    Docker,
    Podman,
}

/// Options of scripts that run without a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Scripts")]
pub(crate) struct PodsArgs {
    /// Run scripts as processes of this machine, or as containers of their image
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["kubeconfig", "clusters"])]
    pods: PodRuntime,
    /// Address of Docker or Podman; by default that of the command
    #[arg(long, value_name = "URL")]
    docker_host: Option<String>,
    /// Entrypoint to copy into containers, from `cargo xtask build entrypoint`; by default `ebb-entrypoint` next to
    /// this program
    #[arg(long, value_name = "FILE")]
    entrypoint: Option<PathBuf>,
}

impl PodsArgs {
    /// Returns the container engine that the options select.
    pub(crate) async fn containers(self) -> Result<Option<ContainerEngine>, CliError> {
        let programs: &[&str] = match self.pods {
            PodRuntime::Process => return Ok(None),
            PodRuntime::Docker => &["docker", "podman"],
            PodRuntime::Podman => &["podman"],
        };
        let next_to_program = || Some(std::env::current_exe().ok()?.parent()?.join("ebb-entrypoint"));
        let program = self.entrypoint.or_else(next_to_program).unwrap_or_else(|| "ebb-entrypoint".into());
        let program = std::path::absolute(&program).unwrap_or(program);
        if !program.is_file() {
            return Err(CliError::broken(format!("the entrypoint {} does not exist", program.display()))
                .with_hint("build it with `cargo xtask build entrypoint` and give its path with --entrypoint"));
        }
        let url = self.docker_host.as_deref().filter(|url| !url.is_empty());
        let found = ContainerEngine::find(programs, url, program).await;
        found.map(Some).map_err(|error| {
            CliError::broken("cannot run scripts as containers")
                .with_causes(&error)
                .with_hint("start Docker, or install Podman")
        })
    }
}
