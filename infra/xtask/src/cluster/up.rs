//! `cargo xtask cluster up`: builds and starts the cluster.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};

use super::build::BinarySet;
use super::folder::{self, until};
use super::images;
use super::kubectl::{kubectl, ready, serves};
use super::netns::{self, ClusterNetns};
use super::servers::{self, CONTAINERD, ClusterServer, NODE};
use crate::run::{command, output, remove, run, works};
use crate::tools;

/// The timeout for the start of a server on a busy machine, in seconds.
const START_TIMEOUT: u64 = 120;

/// Builds missing programs, starts servers that do not run, waits until the node accepts pods, and prints their paths.
pub(crate) fn all() -> anyhow::Result<()> {
    let began = Instant::now();
    check_requirements()?;
    tools::packages(tools::CLUSTER_PACKAGES)?;
    let _lock = lock()?;
    let (kubernetes, helm, kro) = (BinarySet::Kubernetes.built()?, BinarySet::Helm.built()?, BinarySet::Kro.built()?);
    for set in [BinarySet::Etcd, BinarySet::Pause] {
        set.built()?;
    }
    images::debian()?;
    let (built, starting) = (began.elapsed(), Instant::now());

    let netns = match ClusterNetns::find() {
        Some(netns) => netns,
        None => {
            // These are leftovers of a machine that was turned off, or of a killed start.
            netns::close()?;
            ClusterNetns::open()?
        }
    };
    // The kubeconfig is written last, so its presence shows that all settings exist.
    if !folder::kubeconfig().exists() {
        servers::settings(&netns)?;
        let (address, api) = (netns.network.node(), netns.network.api());
        run(command(folder::sources().join("keys.sh")).arg(servers::etc()).args([NODE, &address, &api]))?;
        fs::copy(servers::etc().join("admin.kubeconfig"), folder::kubeconfig())?;
    }
    link("kubectl", &kubernetes)?;
    link("helm", &helm)?;
    start(&netns)?;
    run(&mut kubectl(&["apply", "--server-side", "--filename", &kro.join("crds").display().to_string()]))?;
    ClusterServer::Kro.start(&netns)?;
    ClusterServer::Kro.check_running(&netns)?;
    let (built, started) = (built.as_secs_f64(), starting.elapsed().as_secs_f64());
    eprintln!("the cluster runs: started in {started:.1} s, built in {built:.1} s");
    // A closed standard output is ignored.
    let _ = std::io::stdout().write_all(places(&netns).as_bytes());
    Ok(())
}

/// Starts servers that do not run and waits until the node accepts pods.
pub(crate) fn start(netns: &ClusterNetns) -> anyhow::Result<()> {
    for server in ClusterServer::FIRST {
        server.start(netns)?;
    }
    std::thread::scope(|scope| {
        let images = scope.spawn(|| {
            let listens = || works(netns.command("test").args(["-S", CONTAINERD]));
            until("containerd", START_TIMEOUT, listens, || ClusterServer::Containerd.check_running(netns))?;
            images::import_all(netns)
        });
        let all_run = |servers: &[ClusterServer]| servers.iter().try_for_each(|server| server.check_running(netns));
        until("the API server", START_TIMEOUT, serves, || all_run(&ClusterServer::FIRST))?;
        for server in ClusterServer::SECOND {
            server.start(netns)?;
        }
        let during = || all_run(&ClusterServer::FIRST).and_then(|()| all_run(&ClusterServer::SECOND));
        until("the node", START_TIMEOUT, ready, during)?;
        // The API server rejects pods without this account.
        let account = || works(&mut kubectl(&["get", "serviceaccount", "default"]));
        until("the account of pods", START_TIMEOUT, account, during)?;
        images.join().unwrap_or_else(|_| bail!("importing images failed"))
    })
}

fn places(netns: &ClusterNetns) -> String {
    let (kubeconfig, state) = (folder::kubeconfig(), folder::state());
    format!(
        "kubeconfig               {}\nprograms                 {}\nlogs                     {}\nthis machine, from pods  {}\n",
        kubeconfig.display(),
        state.join("bin").display(),
        state.join("log").display(),
        netns.network.host()
    )
}

/// Locks the start and the end of this clone's cluster.
pub(crate) fn lock() -> anyhow::Result<File> {
    let state = folder::state();
    let parent = state.parent().context("the state is in a folder")?;
    fs::create_dir_all(parent)?;
    folder::lock(&parent.join("cluster.lock"), "another process starts or stops the cluster")
}

pub(crate) fn privileged() -> anyhow::Result<()> {
    if !output(command("id").arg("-u")).is_ok_and(|user| user.trim() == "0") {
        bail!("not root: a cluster needs root for namespaces, mounts and containers");
    }
    Ok(())
}

/// Checks the requirements before anything is built.
fn check_requirements() -> anyhow::Result<()> {
    for program in ["unshare", "nsenter", "setsid"] {
        if !works(command(program).arg("--version")) {
            bail!("found no `{program}`: install util-linux");
        }
    }
    if !Path::new("/sys/fs/cgroup").exists() {
        bail!("found no control groups in /sys/fs/cgroup, which containers need");
    }
    if !works(command("go").arg("version")) {
        bail!("found no `go`: install Go 1.26 (https://go.dev/dl), which builds Kubernetes");
    }
    folder::visible()
}

fn link(name: &str, built: &Path) -> anyhow::Result<()> {
    let path = folder::state().join("bin").join(name);
    remove(&path)?;
    fs::create_dir_all(folder::state().join("bin"))?;
    symlink(built.join(name), &path).with_context(|| format!("cannot link {}", path.display()))
}
