//! The servers of a cluster: their arguments, their state, their start and end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use super::build::BinarySet;
use super::folder::{self, name, until};
use super::netns::ClusterNetns;
use crate::run::output;

/// The name of the only node.
pub(crate) const NODE: &str = "ebb";
/// The socket of containerd, in the namespaces.
pub(crate) const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// A server of the cluster, in the order of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

impl ClusterServer {
    /// Servers that need no other server.
    pub(crate) const FIRST: [Self; 3] = [Self::Etcd, Self::Containerd, Self::KubeApiserver];
    /// Servers that need the API server.
    pub(crate) const SECOND: [Self; 4] =
        [Self::KubeControllerManager, Self::KubeScheduler, Self::Kubelet, Self::KubeProxy];

    pub(crate) fn log(self) -> PathBuf {
        folder::state().join(format!("log/{}.log", name(self)))
    }

    fn pid(self) -> PathBuf {
        folder::state().join(format!("run/{}.pid", name(self)))
    }

    fn program(self) -> anyhow::Result<PathBuf> {
        Ok(match self {
            Self::Etcd => BinarySet::Etcd.built()?.join("server"),
            Self::Containerd => "/usr/bin/containerd".into(),
            Self::Kro => BinarySet::Kro.built()?.join("controller"),
            _ => BinarySet::Kubernetes.built()?.join(name(self)),
        })
    }

    fn arguments(self, netns: &ClusterNetns) -> anyhow::Result<Vec<String>> {
        let all: BTreeMap<String, String> = serde_saphyr::from_str(&form("arguments.yaml")?)?;
        let own = all.get(&name(self)).with_context(|| format!("arguments.yaml lacks {}", name(self)))?;
        // The places are filled after the arguments are split, because the path of a clone can contain spaces.
        Ok(own.split_whitespace().map(|word| filled(word, netns)).collect())
    }

    /// Starts the server unless it runs. Its log is appended.
    pub(crate) fn start(self, netns: &ClusterNetns) -> anyhow::Result<()> {
        if self.running(netns).is_some() {
            return Ok(());
        }
        folder::write(&self.pid(), "")?;
        let mut start = netns.command("sh");
        start.args(["-c", "log=$1; shift; setsid \"$@\" >>\"$log\" 2>&1 </dev/null & echo $!", "start"]);
        let program = self.program()?;
        start.arg(self.log()).arg(&program).args(self.arguments(netns)?);
        if self == Self::Kro {
            start.env("KUBECONFIG", etc().join("admin.kubeconfig"));
        }
        let pid = output(&mut start)?;
        folder::write(&self.pid(), &format!("{} {}", pid.trim(), program.display()))
    }

    /// Returns the pid in the namespaces, if the server runs.
    pub(crate) fn running(self, netns: &ClusterNetns) -> Option<String> {
        let record = fs::read_to_string(self.pid()).ok()?;
        let (pid, program) = record.split_once(' ')?;
        // A process that has ended has no program. A reused pid has another program.
        let exe = output(netns.command("readlink").arg(format!("/proc/{pid}/exe"))).ok()?;
        let exe = PathBuf::from(exe.trim());
        // `setsid` becomes the program shortly after its start.
        (exe == Path::new(program) || exe.ends_with("setsid")).then(|| pid.to_owned())
    }

    /// Sends a signal. After KILL and TERM, waits until the server has ended.
    pub(crate) fn kill(self, netns: &ClusterNetns, signal: &str) -> anyhow::Result<()> {
        let Some(pid) = self.running(netns) else { bail!("{} does not run", name(self)) };
        output(netns.command("sh").args(["-c", "kill -s \"$1\" \"$2\"", "kill", signal, &pid]))?;
        if matches!(signal, "KILL" | "TERM") {
            until(&format!("the end of {}", name(self)), 30, || self.running(netns).is_none(), || Ok(()))?;
        }
        Ok(())
    }

    /// Fails with the end of the log if the server does not run.
    pub(crate) fn check_running(self, netns: &ClusterNetns) -> anyhow::Result<()> {
        if self.running(netns).is_some() {
            return Ok(());
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(10)..].join("\n");
        bail!("{} has ended; its log ({}) ends with\n{last}", name(self), self.log().display())
    }
}

/// Returns the folder of settings, keys and certificates.
pub(crate) fn etc() -> PathBuf {
    folder::state().join("etc")
}

pub(crate) fn settings(netns: &ClusterNetns) -> anyhow::Result<()> {
    for (name, file) in [
        ("containerd.toml", "containerd.toml"),
        ("cni.conflist", "cni/10-ebb.conflist"),
        ("kubelet.yaml", "kubelet.yaml"),
        ("kube-proxy.yaml", "kube-proxy.yaml"),
    ] {
        folder::write(&etc().join(file), &filled(&form(name)?, netns))?;
    }
    Ok(())
}

fn form(name: &str) -> anyhow::Result<String> {
    let file = folder::sources().join("etc").join(name);
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

fn filled(text: &str, netns: &ClusterNetns) -> String {
    let network = netns.network;
    text.replace("{{etc}}", &etc().display().to_string())
        .replace("{{cni}}", cni())
        .replace("{{name}}", &network.name())
        .replace("{{node}}", NODE)
        .replace("{{address}}", &network.node())
        .replace("{{pods}}", &network.pods())
        .replace("{{services}}", &network.services())
}

/// Returns the folder of network plugins, of Debian or of others.
pub(crate) fn cni() -> &'static str {
    ["/usr/lib/cni", "/opt/cni/bin"]
        .into_iter()
        .find(|folder| Path::new(folder).join("ptp").exists())
        .unwrap_or_default()
}
