//! Components of Ebb and of the cluster that tests kill. Their processes are found in `/proc`.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::prelude::*;
use crate::stored_bytes::contains;

/// A component to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KillTarget {
    /// `ebb dev`.
    Stack,
    /// The relay in its pod. The kubelet restarts it.
    Relay,
    /// An entrypoint in a pod of a unit. It is not restarted.
    Entrypoint,
    Kubelet,
    ApiServer,
    ControllerManager,
}

impl KillTarget {
    pub(crate) const ALL: [Self; 6] =
        [Self::Stack, Self::Relay, Self::Entrypoint, Self::Kubelet, Self::ApiServer, Self::ControllerManager];

    /// Returns the program of a server of the cluster.
    fn server(self) -> Option<&'static str> {
        match self {
            Self::Stack | Self::Relay | Self::Entrypoint => None,
            Self::Kubelet => Some("kubelet"),
            Self::ApiServer => Some("kube-apiserver"),
            Self::ControllerManager => Some("kube-controller-manager"),
        }
    }

    /// Returns a running process of the component. Not for `ebb dev`, which is a child of the test.
    pub(crate) fn process(self, relay: &InstalledRelay) -> Option<Pid> {
        let netns = fs::read(relay.cluster.kubeconfig.with_file_name("netns.json")).unwrap();
        let netns: Value = serde_json::from_slice(&netns).unwrap();
        let group = format!("/ebbc{}/", netns["number"]);
        let is_component = |process: &Path| match self {
            Self::Stack => false,
            Self::Relay => runs(process, "ebb-relay") && has_text(process, "environ", &relay.own),
            // The option `--spec` excludes the init container, which installs the entrypoint.
            Self::Entrypoint => {
                runs(process, "ebb-entrypoint")
                    && has_text(process, "cgroup", &group)
                    && has_text(process, "cmdline", "--spec")
            }
            Self::Kubelet | Self::ApiServer | Self::ControllerManager => {
                let space = fs::read_link(process.join("ns/pid"));
                self.server().is_some_and(|server| runs(process, server))
                    && space.is_ok_and(|space| Some(space.to_string_lossy().as_ref()) == netns["namespace"].as_str())
            }
        };
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        all.filter(|process| is_component(process)).find_map(|process| {
            let number = process.file_name()?.to_str()?.parse().ok()?;
            Some(Pid::from_raw(number))
        })
    }

    /// Kills a process with SIGKILL. Starts a server of the cluster again after `downtime`.
    pub(crate) fn kill(self, process: Pid, downtime: Duration) -> Option<tokio::task::JoinHandle<()>> {
        kill(process, Signal::SIGKILL).ok()?;
        let server = self.server();
        Some(tokio::task::spawn_blocking(move || {
            if let Some(server) = server {
                std::thread::sleep(downtime);
                xtask(&["cluster", "start", server]);
            }
        }))
    }
}

/// Returns true if a process runs a program of this name.
pub(crate) fn runs(process: &Path, program: &str) -> bool {
    fs::read_link(process.join("exe")).is_ok_and(|exe| exe.file_name().is_some_and(|name| name == program))
}

/// Returns true if a file of a process in `/proc` has this text.
pub(crate) fn has_text(process: &Path, file: &str, text: &str) -> bool {
    fs::read(process.join(file)).is_ok_and(|bytes| contains(&bytes, text.as_bytes()))
}
