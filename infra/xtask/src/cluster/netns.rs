//! The namespaces of a cluster: processes, mounts, network.
//!
//! When their first process ends, all others end. The machine itself gets a link, a route and control groups, which
//! `close` removes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::folder::{self, until};
use crate::run::{command, output, remove, run};

/// The maximum number of clusters per machine.
const NUMBERS: u8 = 16;

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

    pub(crate) fn block(self) -> String {
        self.within("0.0/16")
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
        record().filter(|netns| namespace(netns.init_pid).is_some_and(|namespace| namespace == netns.namespace))
    }

    /// Creates the namespaces and links them to the machine's network.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let state = folder::state();
        folder::write(&state.join("log/netns.log"), "")?;
        let log = fs::File::create(state.join("log/netns.log"))?;
        let mut outer = command("setsid");
        outer.args(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]);
        outer.args(["--propagation", "private", "--", "sh"]);
        outer.arg(folder::sources().join("etc/netns.sh")).arg(&state);
        outer.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut outer = outer.spawn().context("cannot start unshare")?;
        Self::set_up(&mut outer, &state).inspect_err(|_| {
            // No record exists yet, so `close` would not find these processes.
            let _ = outer.kill();
            let _ = outer.wait();
        })
    }

    fn set_up(outer: &mut Child, state: &Path) -> anyhow::Result<Self> {
        let ready = state.join("open");
        until(
            "the cluster's namespaces",
            10,
            || ready.exists(),
            || match outer.try_wait()? {
                None => Ok(()),
                Some(_) => bail!("{}", fs::read_to_string(state.join("log/netns.log"))?.trim()),
            },
        )
        .context("cannot open the namespaces")?;
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.id()))?;
        let first = children.trim().parse().context("unshare has one child")?;
        let namespace = namespace(first).context("the first process is there")?;
        let network = link_network(first)?;
        let netns = Self { state: state.to_owned(), network, init_pid: first, namespace };
        folder::write(&path(), &serde_json::to_string(&netns)?)?;
        for group in groups(network) {
            fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        }
        Ok(netns)
    }

    /// Returns a command that runs in the namespaces. Its environment contains only PATH.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        inside(self.init_pid, program)
    }
}

fn inside(process: u32, program: impl AsRef<Path>) -> Command {
    let mut inside = command("nsenter");
    inside.args(["--target", &process.to_string(), "--net", "--mount", "--pid", "--"]);
    inside.arg(program.as_ref()).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    inside
}

/// Ends the namespaces of this clone with all processes, and removes their leftovers. Fails if something remains.
pub(crate) fn close() -> anyhow::Result<()> {
    if let Some(netns) = ClusterNetns::find() {
        run(command("kill").args(["-KILL", &netns.init_pid.to_string()]))?;
        until("the end of the cluster's first process", 30, || ClusterNetns::find().is_none(), || Ok(()))?;
    }
    if let Some(ClusterNetns { network, namespace, .. }) = record() {
        let mut leftover = Vec::new();
        // Processes, namespaces and links disappear shortly after the first process.
        let gone = || {
            for group in groups(network) {
                let _ = remove_group(&group);
            }
            leftover = leftovers(network, &namespace);
            leftover.is_empty()
        };
        let waited = until("the end of the namespaces", 30, gone, || Ok(()));
        if waited.is_err() {
            bail!("leftovers of the cluster: {}", leftover.join(", "));
        }
    }
    remove(&folder::state())
}

fn leftovers(network: ClusterNetwork, namespace_id: &str) -> Vec<String> {
    let mut leftover = Vec::new();
    let state = folder::state();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    leftover.extend(mounts.filter(|at| Path::new(at).starts_with(&state)).map(|at| format!("mount {at}")));
    leftover.extend(groups(network).into_iter().filter(|group| group.exists()).map(|it| it.display().to_string()));
    let link = Path::new("/sys/class/net").join(network.name());
    leftover.extend(link.exists().then(|| format!("link {}", network.name())));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    leftover.extend(
        processes.filter(|it| namespace(*it).is_some_and(|its| its == namespace_id)).map(|it| format!("process {it}")),
    );
    leftover
}

fn path() -> PathBuf {
    folder::state().join("netns.json")
}

fn record() -> Option<ClusterNetns> {
    let record: ClusterNetns = serde_json::from_str(&fs::read_to_string(path()).ok()?).ok()?;
    (record.state == folder::state()).then_some(record)
}

/// Returns the id of the process namespace of a process, or `None` if the process does not exist.
fn namespace(process: u32) -> Option<String> {
    fs::read_link(format!("/proc/{process}/ns/pid")).ok()?.into_os_string().into_string().ok()
}

/// Links the network namespace of `first` with the machine, by the first unused block of addresses.
fn link_network(first: u32) -> anyhow::Result<ClusterNetwork> {
    let routes = output(command("ip").args(["-4", "route", "show", "table", "all"]))?;
    for number in 0..NUMBERS {
        let network = ClusterNetwork { number };
        let prefix = network.block().replace("0.0/16", "");
        let used = routes.split_whitespace().any(|word| word.starts_with(&prefix));
        let (name, process) = (network.name(), first.to_string());
        // The name of the link reserves the number: a second link of that name is rejected.
        let reserve = || ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &process]);
        if used || Path::new("/sys/class/net").join(&name).exists() || reserve().is_err() {
            continue;
        }
        let (host, node) = (network.host(), network.node());
        ip(&["address", "add", &format!("{host}/30"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        run(inside(first, "ip").args(["address", "add", &format!("{node}/30"), "dev", "eth0"]))?;
        run(inside(first, "ip").args(["link", "set", "eth0", "up"]))?;
        run(inside(first, "ip").args(["route", "add", "default", "via", &host]))?;
        ip(&["route", "add", &network.block(), "via", &node])?;
        return Ok(network);
    }
    bail!(
        "no free block of addresses: this machine runs {NUMBERS} clusters, or uses 10.232.0.0 and up for something else"
    )
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    run(command("ip").args(arguments))
}

/// Returns the control group of a cluster in each hierarchy of the machine.
fn groups(network: ClusterNetwork) -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = if top.join("cgroup.controllers").exists() {
        vec![top.to_owned()]
    } else {
        let entries = fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir() && !path.is_symlink()).collect()
    };
    hierarchies.into_iter().map(|hierarchy| hierarchy.join(network.name())).collect()
}

/// Removes a control group and its children, which have no processes.
fn remove_group(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
