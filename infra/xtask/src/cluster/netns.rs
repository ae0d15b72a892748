//! The namespaces of a cluster: processes, mounts, network.
//!
//! `infra/cluster/namespaces.sh` opens and closes them. When their first process ends, all others end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::folder;
use crate::run::{command, output, remove, run};

/// The block 10.(232 + number).0.0/16 of a cluster.
///
/// A link connects node and machine. Pods reach the machine at its end of the link. The machine reaches pods and
/// services through the node.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ClusterNetwork {
    number: u8,
}

impl ClusterNetwork {
    /// Returns the name of the link on the machine and of the control groups.
    pub(crate) fn name(self) -> String {
        format!("ebbc{}", self.number)
    }

    fn within(self, rest: &str) -> String {
        format!("10.{}.{rest}", 232 + u16::from(self.number))
    }

    /// Returns the machine's address on the link.
    pub(crate) fn host(self) -> String {
        self.within("0.1")
    }

    /// Returns the node's address on the link.
    pub(crate) fn node(self) -> String {
        self.within("0.2")
    }

    pub(crate) fn services(self) -> String {
        self.within("64.0/18")
    }

    /// Returns the address of the service `kubernetes`, the first of all services.
    pub(crate) fn api(self) -> String {
        self.within("64.1")
    }

    pub(crate) fn pods(self) -> String {
        self.within("128.0/17")
    }
}

/// The namespaces of a cluster, as the state folder records them.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClusterNetns {
    /// The state folder. A copy of the record in another folder is invalid.
    #[serde(default)]
    state: PathBuf,
    #[serde(rename = "number")]
    pub(crate) network: ClusterNetwork,
    /// The pid of the first process, on the machine.
    init_pid: u32,
    /// The id of the process namespace. It detects a pid that was reused.
    namespace: String,
}

impl ClusterNetns {
    /// Returns the namespaces of this clone, if their first process runs.
    pub(crate) fn find() -> Option<Self> {
        record().filter(|netns| {
            let namespace = fs::read_link(format!("/proc/{}/ns/pid", netns.init_pid));
            namespace.is_ok_and(|namespace| namespace == Path::new(&netns.namespace))
        })
    }

    /// Creates the namespaces and links them to the machine's network.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let state = folder::state();
        let opened = output(namespaces("open").arg(&state))?;
        let [number, init_pid, namespace] = opened.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("namespaces.sh printed {opened:?}");
        };
        let (network, init_pid) = (ClusterNetwork { number: number.parse()? }, init_pid.parse()?);
        let netns = Self { state, network, init_pid, namespace: namespace.to_owned() };
        folder::write(&path(), &serde_json::to_string(&netns)?)?;
        Ok(netns)
    }

    /// Returns a command that runs in the namespaces. Its environment contains only PATH.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut inside = command("nsenter");
        inside.args(["--target", &self.init_pid.to_string(), "--net", "--mount", "--pid", "--"]);
        inside.arg(program.as_ref()).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        inside
    }
}

/// Ends the namespaces of this clone with all processes, and removes their leftovers. Fails if something remains.
pub(crate) fn close() -> anyhow::Result<()> {
    if let Some(ClusterNetns { state, network, init_pid, namespace }) = record() {
        let (number, init_pid) = (network.number.to_string(), init_pid.to_string());
        run(namespaces("close").arg(state).args([number, init_pid, namespace]))?;
    }
    remove(&folder::state())
}

fn namespaces(action: &str) -> Command {
    let mut script = command(folder::sources().join("namespaces.sh"));
    script.arg(action);
    script
}

fn path() -> PathBuf {
    folder::state().join("netns.json")
}

fn record() -> Option<ClusterNetns> {
    let record: ClusterNetns = serde_json::from_str(&fs::read_to_string(path()).ok()?).ok()?;
    (record.state == folder::state()).then_some(record)
}
