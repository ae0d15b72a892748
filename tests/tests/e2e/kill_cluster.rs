//! Kills `ebb dev`, components of Ebb and servers of the cluster while the example `mixed` runs. Each unit succeeds once.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinHandle;

use crate::kill::{KillTarget, KillWorld, kill_each, number_from_env, seed};
use crate::mixed::{MixedSetup, SANDBOX};
use crate::prelude::*;

const MAX_DOWNTIME: Duration = Duration::from_millis(1_000);

/// Each part with its program, if it is a server of the cluster.
const PARTS: [(KillTarget, Option<&str>); 6] = [
    (KillTarget::EbbDev, None),
    (KillTarget::Relay, None),
    (KillTarget::Entrypoint, None),
    (KillTarget::Kubelet, Some("kubelet")),
    (KillTarget::ApiServer, Some("kube-apiserver")),
    (KillTarget::ControllerManager, Some("kube-controller-manager")),
];

fn server(part: KillTarget) -> Option<&'static str> {
    PARTS.into_iter().find(|(found, _)| *found == part)?.1
}

fn process_of(part: KillTarget, relay: &InstalledRelay) -> Option<Pid> {
    let netns = fs::read(relay.cluster.kubeconfig.with_file_name("netns.json")).unwrap();
    let netns: Value = serde_json::from_slice(&netns).unwrap();
    let group = format!("/ebbc{}/", netns["number"]);
    process(|process| match server(part) {
        Some(server) => {
            let space = fs::read_link(process.join("ns/pid"));
            runs(process, server)
                && space.is_ok_and(|space| Some(space.to_string_lossy().as_ref()) == netns["namespace"].as_str())
        }
        None if part == KillTarget::Relay => runs(process, "ebb-relay") && has_text(process, "environ", &relay.own),
        // The option `--spec` excludes the init container, which installs the entrypoint.
        None => {
            runs(process, "ebb-entrypoint")
                && has_text(process, "cgroup", &group)
                && has_text(process, "cmdline", "--spec")
        }
    })
}

/// Returns a process whose folder in `/proc` fulfils a condition.
pub(crate) fn process(is_wanted: impl Fn(&Path) -> bool) -> Option<Pid> {
    let mut all = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let folder = all.find(|process| is_wanted(process))?;
    Some(Pid::from_raw(folder.file_name()?.to_str()?.parse().ok()?))
}

pub(crate) fn runs(process: &Path, program: &str) -> bool {
    fs::read_link(process.join("exe")).is_ok_and(|exe| exe.file_name().is_some_and(|name| name == program))
}

pub(crate) fn has_text(process: &Path, file: &str, text: &str) -> bool {
    fs::read(process.join(file)).is_ok_and(|bytes| contains(&bytes, text.as_bytes()))
}

struct ClusterWorld {
    setup: MixedSetup,
    /// Servers of the cluster that start again.
    restarts: Mutex<Vec<JoinHandle<()>>>,
}

impl KillWorld for ClusterWorld {
    const MAX_PAUSE: Duration = Duration::from_millis(1_000);

    fn workdir(&self) -> &Workdir {
        &self.setup.workdir
    }

    fn begin(&self) -> (String, String, Option<String>) {
        self.setup.service.receiver.forget();
        (SANDBOX.to_owned(), fs::read_to_string(example("mixed/sandbox.yaml")).unwrap(), None)
    }

    async fn kill(&self, part: KillTarget) -> bool {
        let process = until("a process to kill", async || process_of(part, &self.setup.relay)).await;
        if kill(process, Signal::SIGKILL).is_err() {
            return false;
        }
        if let Some(server) = server(part) {
            let downtime = MAX_DOWNTIME.mul_f64(rand::random());
            self.restarts.lock().unwrap().push(tokio::task::spawn_blocking(move || {
                std::thread::sleep(downtime);
                xtask(&["cluster", "start", server]);
            }));
        }
        true
    }

    fn assert_created(&self, target: &TargetDetail) {
        self.setup.assert_created(target);
    }

    /// Every unit has succeeded, and only lost pods have cost further attempts.
    async fn assert_nothing_remains(&self, target: &TargetDetail, killed: &[KillTarget]) {
        let restarts = std::mem::take(&mut *self.restarts.lock().unwrap());
        for restart in restarts {
            restart.await.unwrap();
        }
        let units: Vec<_> = target.runs.iter().flat_map(|run| &run.units).collect();
        assert!(!units.is_empty() && units.iter().all(|unit| unit.state == UnitState::Succeeded), "{units:#?}");
        let count = |component| killed.iter().filter(|part| **part == component).count();
        // A kubelet that ends while it starts pods can lose both concurrent ones.
        let lost = count(KillTarget::Entrypoint) + 2 * count(KillTarget::Kubelet);
        let further_attempts: u32 = units.iter().map(|unit| unit.attempt - 1).sum();
        assert!(further_attempts as usize <= lost, "{lost} pods were lost: {units:#?}");
        self.setup.assert_nothing_remains().await;
    }
}

#[tokio::test]
async fn every_component_is_killed() {
    let _lock = exclusive_lock().await;
    let kills = number_from_env("EBB_KILLS", PARTS.len());
    let world = ClusterWorld { setup: MixedSetup::new("kills").await, restarts: Mutex::default() };
    let dev = world.setup.workdir.dev().await;
    world.setup.publish().await;
    let parts = PARTS.into_iter().map(|(part, _)| part).cycle().take(kills).collect();
    kill_each("mixed", &world, dev, parts, PARTS.len(), seed()).await;
    world.setup.relay.remove();
}
