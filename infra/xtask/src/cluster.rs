//! `cargo xtask cluster`: a Kubernetes cluster with one node on this machine, which `infra/cluster/cluster.sh` runs.

use std::ffi::OsStr;
use std::process::Command;

pub(crate) use folder::programs;

use crate::run::{command, run, works};

mod folder;
pub(crate) mod images;

/// Runs an action of the script, which lists them.
pub(crate) fn all(arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<()> {
    run(&mut script(arguments)?)
}

fn script(arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<Command> {
    let mut script = command(folder::sources().join("cluster.sh"));
    // Paths are relative to the folder of the caller.
    script.args(arguments).current_dir(".").env("EBB_CLUSTER_CACHE", folder::cache()?);
    Ok(script)
}

/// A running cluster. Drop stops the cluster, unless it ran before.
pub(crate) struct ClusterGuard {
    was_up: bool,
}

impl ClusterGuard {
    pub(crate) fn up() -> anyhow::Result<Self> {
        let guard = Self { was_up: works(&mut script(&["runs"])?) };
        all(&["up"])?;
        Ok(guard)
    }
}

impl Drop for ClusterGuard {
    fn drop(&mut self) {
        if !self.was_up
            && let Err(error) = all(&["down"])
        {
            eprintln!("cannot stop the cluster: {error:#}");
        }
    }
}
