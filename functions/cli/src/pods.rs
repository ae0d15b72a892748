//! How scripts run on this machine, for commands that start a server.

use std::path::PathBuf;

use clap::ValueEnum;
use ebb_local::Containers;

use crate::exit::Trouble;

/// What a script runs as. Not documented for clap, which would write the whole help of a command at length for that: a
/// process of this machine, whatever image its plugin names, or a container of its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Pods {
    #[default]
    Process,
    Docker,
}

/// Options of scripts without a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Scripts")]
pub(crate) struct PodsArgs {
    /// What scripts run as without a cluster: processes of this machine, or containers of their image
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["kubeconfig", "clusters"])]
    pods: Pods,
    /// Where Docker's API is served, by Docker or Podman
    #[arg(long, value_name = "URL", env = "DOCKER_HOST", default_value = "unix:///var/run/docker.sock")]
    docker: String,
    /// The runner that is copied into containers (`cargo xtask build runner`); without it `ebb-runner` beside this program
    #[arg(long, value_name = "FILE")]
    runner: Option<PathBuf>,
}

impl PodsArgs {
    /// What runs scripts as containers, if that is wanted.
    pub(crate) fn containers(self) -> Result<Option<Containers>, Trouble> {
        if self.pods == Pods::Process {
            return Ok(None);
        }
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("ebb-runner"));
        let runner = self.runner.or_else(beside).unwrap_or_else(|| "ebb-runner".into());
        match std::path::absolute(&runner) {
            Ok(runner) if runner.is_file() => Ok(Some(Containers { host: self.docker, runner })),
            _ => Err(Trouble::broken(format!("there is no runner at {}", runner.display()))
                .next("build it with `cargo xtask build runner`, and name it by --runner")),
        }
    }
}
