//! `cargo xtask cluster up`.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};

use super::build::{self, BinarySet};
use super::folder::{self, until};
use super::images;
use super::kubectl::{asked, kubectl, ready, serves};
use super::netns::{self, ClusterNetns};
use super::servers::{self, CONTAINERD, ClusterServer};
use super::{ClusterExtra, keys};
use crate::packages;
use crate::run::{command, run, works};

/// Seconds that a server on a busy machine may take.
const PATIENCE: u64 = 120;

/// Builds what is missing, starts what does not run, waits until the node takes pods, and says where it is.
///
/// # Errors
/// When something is missing that cannot be had, or a server ends.
pub(crate) fn all(with: &[ClusterExtra]) -> anyhow::Result<()> {
    let began = Instant::now();
    possible()?;
    packages::install(&packages::OF_CLUSTER)?;
    let _lock = lock()?;
    let kubernetes = BinarySet::Kubernetes.built()?;
    for set in [BinarySet::Etcd, BinarySet::Pause] {
        set.built()?;
    }
    images::debian()?;
    let helm = if with.contains(&ClusterExtra::Helm) { Some(BinarySet::Helm.built()?) } else { None };
    let kro = if with.contains(&ClusterExtra::Kro) { Some(BinarySet::Kro.built()?) } else { None };
    let (built, starting) = (began.elapsed(), Instant::now());

    let netns = match ClusterNetns::find() {
        Some(netns) => netns,
        None => {
            // What a machine that was turned off, or somebody who killed it, has left.
            netns::close()?;
            ClusterNetns::open()?
        }
    };
    // Written last of what the servers need to be started.
    if !folder::kubeconfig().exists() {
        servers::settings(&netns)?;
        keys::write(&servers::etc(), netns.network)?;
    }
    linked("kubectl", &kubernetes)?;
    if let Some(helm) = helm {
        linked("helm", &helm)?;
    }
    start(&netns)?;
    if let Some(kro) = kro {
        run(&mut kubectl(&["apply", "--server-side", "--filename", &kro.join("crds").display().to_string()]))?;
        ClusterServer::Kro.start(&netns)?;
        ClusterServer::Kro.lives(&netns)?;
    }
    let (built, started) = (built.as_secs_f64(), starting.elapsed().as_secs_f64());
    eprintln!("the cluster is up: {started:.1} s, after {built:.1} s for what it is made of");
    super::tell(&places(&netns));
    Ok(())
}

/// Starts what does not run and waits until the node takes pods.
///
/// # Errors
/// When a server ends or is not ready in time.
pub(crate) fn start(netns: &ClusterNetns) -> anyhow::Result<()> {
    for server in ClusterServer::FIRST {
        server.start(netns)?;
    }
    std::thread::scope(|scope| {
        let images = scope.spawn(|| {
            let listens = || works(netns.command("test").args(["-S", CONTAINERD]));
            until("containerd", PATIENCE, listens, || ClusterServer::Containerd.lives(netns))?;
            images::import_all(netns)
        });
        let all_live = |servers: &[ClusterServer]| servers.iter().try_for_each(|server| server.lives(netns));
        until("the API server", PATIENCE, serves, || all_live(&ClusterServer::FIRST))?;
        for server in ClusterServer::SECOND {
            server.start(netns)?;
        }
        let during = || all_live(&ClusterServer::FIRST).and_then(|()| all_live(&ClusterServer::SECOND));
        until("the node", PATIENCE, ready, during)?;
        // Without it no pod is accepted.
        let account = || asked(&["get", "serviceaccount", "default"]).is_ok();
        until("the account of pods", PATIENCE, account, during)?;
        images.join().unwrap_or_else(|_| bail!("importing images failed"))
    })
}

/// Says where the cluster is.
pub(crate) fn places(netns: &ClusterNetns) -> String {
    let (kubeconfig, state) = (folder::kubeconfig(), folder::state());
    format!(
        "kubeconfig               {}\nprograms                 {}\nlogs                     {}\nthis machine, from pods  {}\n",
        kubeconfig.display(),
        state.join("bin").display(),
        state.join("log").display(),
        netns.network.host()
    )
}

/// Only one at a time starts or ends the cluster of a clone.
///
/// # Errors
/// When the lock cannot be made.
pub(crate) fn lock() -> anyhow::Result<File> {
    let state = folder::state();
    let parent = state.parent().context("the state is in a folder")?;
    fs::create_dir_all(parent)?;
    folder::lock(&parent.join("cluster.lock"), "the cluster is being started or ended")
}

/// Refuses users who cannot see the namespaces.
///
/// # Errors
/// When the user is not root.
pub(crate) fn privileged() -> anyhow::Result<()> {
    if !command("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0") {
        bail!("a cluster needs root, for namespaces, mounts and containers: run this as root");
    }
    Ok(())
}

/// Refuses what cannot work, before anything is done.
///
/// # Errors
/// When there is no Go, or no Linux with namespaces and control groups.
fn possible() -> anyhow::Result<()> {
    for program in ["unshare", "nsenter", "setsid"] {
        if !works(command(program).arg("--version")) {
            bail!("there is no `{program}`, which is part of util-linux");
        }
    }
    if !Path::new("/sys/fs/cgroup").exists() {
        bail!("there are no control groups in /sys/fs/cgroup, which containers need");
    }
    folder::visible()?;
    build::go_version().map(drop)
}

/// Puts a program where people and tests look for it.
fn linked(name: &str, built: &Path) -> anyhow::Result<()> {
    let link = folder::state().join("bin").join(name);
    folder::remove(&link)?;
    fs::create_dir_all(folder::state().join("bin"))?;
    symlink(built.join(name), &link).with_context(|| format!("cannot link {}", link.display()))
}
