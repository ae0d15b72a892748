//! What is killed, from outside of the cluster: processes, found by what the kernel says of them.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::prelude::*;

/// Who may be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KillTarget {
    /// `ebb dev`.
    Stack,
    /// The relay, in its pod; the kubelet starts it again.
    Relay,
    /// An entrypoint, in a pod of a unit; it is not started again.
    Entrypoint,
    Kubelet,
    ApiServer,
    ControllerManager,
}

impl KillTarget {
    pub(crate) const ALL: [Self; 6] =
        [Self::Stack, Self::Relay, Self::Entrypoint, Self::Kubelet, Self::ApiServer, Self::ControllerManager];

    /// The name of a server of the cluster.
    fn server(self) -> Option<&'static str> {
        match self {
            Self::Stack | Self::Relay | Self::Entrypoint => None,
            Self::Kubelet => Some("kubelet"),
            Self::ApiServer => Some("kube-apiserver"),
            Self::ControllerManager => Some("kube-controller-manager"),
        }
    }

    /// Returns one of its processes, if there is one now. `ebb dev` is a child of the test.
    pub(crate) fn process(self, relay: &InstalledRelay) -> Option<Pid> {
        let room = fs::read(relay.cluster.kubeconfig.with_file_name("room.json")).unwrap();
        let room: Value = serde_json::from_slice(&room).unwrap();
        let group = format!("/ebbc{}/", room["number"]);
        let is_here = |process: &Path| match self {
            Self::Stack => false,
            Self::Relay => is(process, "ebb-relay") && holds(process, "environ", &relay.own),
            // Not the one that installs it.
            Self::Entrypoint => {
                is(process, "ebb-entrypoint") && holds(process, "cgroup", &group) && holds(process, "cmdline", "--spec")
            }
            Self::Kubelet | Self::ApiServer | Self::ControllerManager => {
                let space = fs::read_link(process.join("ns/pid"));
                self.server().is_some_and(|server| is(process, server))
                    && space.is_ok_and(|space| Some(space.to_string_lossy().as_ref()) == room["namespace"].as_str())
            }
        };
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        all.filter(|process| is_here(process)).find_map(|process| {
            let number = process.file_name()?.to_str()?.parse().ok()?;
            Some(Pid::from_raw(number))
        })
    }

    /// Kills a process with `kill -9`. A process that is not restarted by another one is started again after `away`.
    pub(crate) fn strike(self, process: Pid, away: Duration) -> Option<tokio::task::JoinHandle<()>> {
        kill(process, Signal::SIGKILL).ok()?;
        let server = self.server();
        Some(tokio::task::spawn_blocking(move || {
            if let Some(server) = server {
                std::thread::sleep(away);
                xtask(&["cluster", "start", server]);
            }
        }))
    }
}

/// Returns true if a process runs this program, wherever it is in the process's own root.
fn is(process: &Path, program: &str) -> bool {
    fs::read_link(process.join("exe")).is_ok_and(|exe| exe.file_name().is_some_and(|name| name == program))
}

fn holds(process: &Path, file: &str, text: &str) -> bool {
    fs::read(process.join(file)).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}
