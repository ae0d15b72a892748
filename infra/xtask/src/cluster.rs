//! `cargo xtask cluster`: a whole Kubernetes of one node on this machine. Its programs are built by Go or come from Debian,
//! its images are written here, and all of it runs in namespaces of its own (`netns`), so that nothing remains of it.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
pub(crate) use build::BinarySet;
use clap::{Subcommand, ValueEnum};
use netns::ClusterNetns;
use servers::ClusterServer;

use crate::bench::{self, BenchKind};
use crate::entrypoint;

mod build;
mod check;
mod folder;
pub(crate) mod images;
mod keys;
mod kubectl;
mod netns;
mod network;
pub(crate) mod servers;
mod up;

/// The image of the entrypoint alone.
const ENTRYPOINT: &str = "ebb.test/runner:1";

#[derive(Subcommand)]
pub(crate) enum TestClusterCommand {
    /// Builds what is missing and starts what does not run
    Up {
        /// What else is built, and started if it is a server
        #[arg(long, value_delimiter = ',')]
        with: Vec<ClusterExtra>,
    },
    /// Ends everything and removes it
    Down,
    /// Says what runs
    Status,
    /// Ends one server; its pods go on
    Kill {
        server: ClusterServer,
        /// Another signal: TERM lets it end itself, STOP makes it hang, CONT ends that
        #[arg(long, default_value = "KILL")]
        signal: String,
    },
    /// Starts one server
    Start { server: ClusterServer },
    /// Imports an image: an archive, or a folder that becomes the only layer
    Image {
        /// For pod templates, with registry and tag: ebb.test/relay:1
        name: String,
        /// The archive, or the folder
        from: PathBuf,
        /// Of a folder: what its containers run
        #[arg(last = true)]
        entrypoint: Vec<String>,
    },
    /// Gives an image one more name
    Tag {
        /// The name that it has
        image: String,
        /// The other one, with its registry: docker.io/library/postgres:17-alpine
        name: String,
    },
    /// Brings it up and tries what tests rely on: jobs, logs, networks, rights, admission, servers that are killed
    Check,
}

/// What not every test needs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClusterExtra {
    /// The controller of ResourceGraphDefinitions
    Kro,
    /// The client of charts
    Helm,
}

/// Does what is asked.
///
/// # Errors
/// When something that it needs is missing, and when it fails.
pub(crate) fn all(order: TestClusterCommand) -> anyhow::Result<()> {
    up::privileged()?;
    match order {
        TestClusterCommand::Up { with } => up::all(&with),
        TestClusterCommand::Down => down(),
        TestClusterCommand::Status => status(),
        TestClusterCommand::Kill { server, signal } => server.kill(&found()?, &signal),
        TestClusterCommand::Start { server } => server.start(&found()?),
        TestClusterCommand::Image { name, from, entrypoint } => images::import(&found()?, &name, &from, &entrypoint),
        TestClusterCommand::Tag { image, name } => images::tag(&found()?, &image, &name),
        TestClusterCommand::Check => check::all(),
    }
}

/// A cluster for as long as this lives; one that was up before stays up.
pub(crate) struct ClusterGuard {
    was_up: bool,
}

impl ClusterGuard {
    /// Brings it up, with all that tests use.
    ///
    /// # Errors
    /// When it cannot be had; says why.
    pub(crate) fn up() -> anyhow::Result<Self> {
        up::privileged()?;
        let borrowed = Self { was_up: ClusterNetns::find().is_some() };
        up::all(&[ClusterExtra::Helm, ClusterExtra::Kro])?;
        Ok(borrowed)
    }
}

impl Drop for ClusterGuard {
    fn drop(&mut self) {
        if !self.was_up
            && let Err(error) = down()
        {
            eprintln!("the cluster stays up: {error:#}");
        }
    }
}

/// Runs the program that measures chains, in a cluster that has the image of the entrypoint.
///
/// # Errors
/// When the cluster cannot be had, or the program fails.
pub(crate) fn chains(arguments: Vec<OsString>) -> anyhow::Result<()> {
    let program = entrypoint::built()?;
    let _cluster = ClusterGuard::up()?;
    let (netns, layer) = (found()?, folder::state().join("entrypoint"));
    folder::remove(&layer)?;
    fs::create_dir_all(&layer)?;
    fs::copy(program, layer.join("ebb-entrypoint"))?;
    images::import(&netns, ENTRYPOINT, &layer, &["/ebb-entrypoint".to_owned()])?;
    folder::remove(&layer)?;
    let kubectl = folder::state().join("bin/kubectl");
    let places: [(&str, OsString); 5] = [
        ("--kubeconfig", folder::kubeconfig().into()),
        ("--kubectl", kubectl.into()),
        ("--advertise-address", netns.network.host().into()),
        ("--entrypoint-image", ENTRYPOINT.into()),
        ("--image", images::DEBIAN.into()),
    ];
    let places = places.into_iter().flat_map(|(name, place)| [name.into(), place]);
    bench::program(BenchKind::Chains, &places.chain(arguments).collect::<Vec<_>>())
}

fn found() -> anyhow::Result<ClusterNetns> {
    ClusterNetns::find().context("there is no cluster here: `cargo xtask cluster up`")
}

fn down() -> anyhow::Result<()> {
    if !folder::state().exists() {
        eprintln!("there is no cluster here");
        return Ok(());
    }
    let began = std::time::Instant::now();
    let _lock = up::lock()?;
    netns::close()?;
    eprintln!("the cluster is down, and nothing of it is left ({:.1} s)", began.elapsed().as_secs_f64());
    Ok(())
}

fn status() -> anyhow::Result<()> {
    let netns = found()?;
    let mut ended = Vec::new();
    let mut said = String::new();
    for server in ClusterServer::value_variants() {
        let name = server.name();
        match server.running(&netns) {
            Some(pid) => said += &format!("{name:24} runs ({pid} in the namespaces)\n"),
            None if *server == ClusterServer::Kro && !server.log().exists() => {}
            None => {
                said += &format!("{name:24} does not run: {}\n", server.log().display());
                ended.push(name);
            }
        }
    }
    let node = if kubectl::ready() { "is Ready" } else { "is not Ready" };
    said += &format!("{:24} {node}\n{}", format!("node {}", servers::NODE), up::places(&netns));
    tell(&said);
    if ended.is_empty() { Ok(()) } else { bail!("not all of it runs: {}", ended.join(", ")) }
}

/// Says something to whoever reads; they may be gone, the exit code tells.
fn tell(said: &str) {
    let _ = std::io::stdout().write_all(said.as_bytes());
}
