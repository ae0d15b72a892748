//! `cargo xtask cluster`: a Kubernetes cluster with one node on this machine, which `infra/cluster/cluster.sh` runs.

use std::path::PathBuf;
use std::process::Command;

use clap::{Subcommand, ValueEnum};
pub(crate) use folder::programs;

use crate::run::{command, run, works};

mod folder;
pub(crate) mod images;

#[derive(Subcommand)]
pub(crate) enum TestClusterCommand {
    /// Build missing programs and start servers that do not run
    Up,
    /// Stop the cluster and remove its state
    Down,
    /// Send a signal to a server; its pods continue
    Kill {
        server: ClusterServer,
        /// Name of the signal: TERM shuts down, STOP suspends, CONT resumes
        #[arg(long, default_value = "KILL")]
        signal: String,
    },
    /// Start a server that does not run
    Start { server: ClusterServer },
    /// Import an image from an archive, or from a folder that becomes its only layer
    Image {
        /// Name in pod templates, with registry and tag: ebb.test/relay:1
        name: String,
        /// Archive or folder to import
        from: PathBuf,
        /// For a folder: the command of containers
        #[arg(last = true)]
        entrypoint: Vec<String>,
    },
    /// Write images in place of those that Signadot's plugins name, as the files of a registry
    Registry {
        /// Folder for the files, empty or missing
        to: PathBuf,
    },
}

/// A server of the cluster, in the order of the start.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ClusterServer {
    /// The database
    Etcd,
    /// The container runtime
    Containerd,
    /// The API server
    KubeApiserver,
    /// Creates pods of Jobs and endpoints of services; deletes objects without owners
    KubeControllerManager,
    /// Assigns pods to nodes
    KubeScheduler,
    /// Runs the pods of the node
    Kubelet,
    /// Routes addresses of services to pods
    KubeProxy,
    /// The controller of ResourceGraphDefinitions
    Kro,
}

pub(crate) fn all(command: TestClusterCommand) -> anyhow::Result<()> {
    match command {
        TestClusterCommand::Up => run(&mut script("up")?),
        TestClusterCommand::Down => run(&mut script("down")?),
        TestClusterCommand::Kill { server, signal } => run(script("kill")?.args([name(server), signal])),
        TestClusterCommand::Start { server } => run(script("start")?.arg(name(server))),
        TestClusterCommand::Image { name, from, entrypoint } => {
            let entrypoint = serde_json::to_string(&entrypoint)?;
            run(script("image")?.arg(name).arg(std::path::absolute(from)?).arg(entrypoint))
        }
        TestClusterCommand::Registry { to } => images::registry(&to),
    }
}

/// Returns the name of a server on the command line. Its files and folders have the same name.
fn name(server: ClusterServer) -> String {
    server.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn script(action: &str) -> anyhow::Result<Command> {
    let mut script = command(folder::sources().join("cluster.sh"));
    script.arg(action).env("EBB_CLUSTER_CACHE", folder::cache()?);
    Ok(script)
}

/// A running cluster. Drop stops the cluster, unless it ran before.
pub(crate) struct ClusterGuard {
    was_up: bool,
}

impl ClusterGuard {
    pub(crate) fn up() -> anyhow::Result<Self> {
        let guard = Self { was_up: works(&mut script("runs")?) };
        all(TestClusterCommand::Up)?;
        Ok(guard)
    }
}

impl Drop for ClusterGuard {
    fn drop(&mut self) {
        if !self.was_up
            && let Err(error) = all(TestClusterCommand::Down)
        {
            eprintln!("cannot stop the cluster: {error:#}");
        }
    }
}
