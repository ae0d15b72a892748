//! `cargo xtask cluster`: a Kubernetes cluster with one node on this machine.
//!
//! Its programs are built with Go or come from Debian. Its images are built here. It runs in its own namespaces
//! (`netns`), so stopping it removes everything.

use std::path::PathBuf;

use anyhow::Context as _;
pub(crate) use build::BinarySet;
use clap::Subcommand;
use netns::ClusterNetns;
use servers::ClusterServer;

mod build;
pub(crate) mod folder;
pub(crate) mod images;
mod kubectl;
mod netns;
pub(crate) mod servers;
mod up;

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

pub(crate) fn all(command: TestClusterCommand) -> anyhow::Result<()> {
    up::privileged()?;
    match command {
        TestClusterCommand::Up => up::all(),
        TestClusterCommand::Down => down(),
        TestClusterCommand::Kill { server, signal } => server.kill(&found()?, &signal),
        TestClusterCommand::Start { server } => server.start(&found()?),
        TestClusterCommand::Image { name, from, entrypoint } => images::import(&found()?, &name, &from, &entrypoint),
        TestClusterCommand::Registry { to } => images::registry(&to),
    }
}

/// A running cluster. Drop stops the cluster, unless it ran before.
pub(crate) struct ClusterGuard {
    was_up: bool,
}

impl ClusterGuard {
    pub(crate) fn up() -> anyhow::Result<Self> {
        up::privileged()?;
        let guard = Self { was_up: ClusterNetns::find().is_some() };
        up::all()?;
        Ok(guard)
    }
}

impl Drop for ClusterGuard {
    fn drop(&mut self) {
        if !self.was_up
            && let Err(error) = down()
        {
            eprintln!("cannot stop the cluster: {error:#}");
        }
    }
}

/// Returns the running cluster of this clone.
pub(crate) fn found() -> anyhow::Result<ClusterNetns> {
    ClusterNetns::find().context("no cluster runs: start it with `cargo xtask cluster up`")
}

fn down() -> anyhow::Result<()> {
    if !folder::state().exists() {
        eprintln!("no cluster runs");
        return Ok(());
    }
    let began = std::time::Instant::now();
    let _lock = up::lock()?;
    netns::close()?;
    eprintln!("the cluster is stopped and removed ({:.1} s)", began.elapsed().as_secs_f64());
    Ok(())
}
