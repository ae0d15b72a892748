//! Interrupts of `ebb run`. The first one deletes the sandbox, the second one stops the command at once.

use std::fs;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::platform::named;
use crate::stored_bytes::entries;
use crate::workdir::{Workdir, shared_folder};

/// Creates a directory and waits for a file that never exists. The undo waits for a file, too.
const PLUGIN: &str = include_str!("documents/slow.yaml");

const SANDBOX: &str = "cluster: local\nresources: {thing: {plugin: slow@1.0.0, params: {root: \"@{root}\"}}}\n";

struct InterruptScenario {
    workdir: Workdir,
    root: TempDir,
}

impl InterruptScenario {
    fn new() -> Self {
        Self { workdir: Workdir::new(), root: shared_folder() }
    }

    /// Starts `ebb run`. Waits until the second unit runs.
    async fn start(&self) -> crate::workdir::RunningCommand {
        let plugin = self.workdir.write("plugin.yaml", &named("Plugin", "slow@1.0.0", PLUGIN));
        let sandbox = self.workdir.write_sandbox("impatient", SANDBOX);
        let set = format!("root={}", self.root.path().display());
        let mut run = self.workdir.start(&["run", &sandbox, "--plugin", &plugin, "--set", &set]);
        run.line(&["thing/fill", "running"]).await;
        run
    }

    fn allow_removal(&self) {
        fs::write(self.root.path().join("may-remove"), "").unwrap();
    }
}

#[tokio::test]
async fn one_interrupt_deletes_the_sandbox() {
    // A terminal that is closed sends SIGHUP.
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let scenario = InterruptScenario::new();
        let run = scenario.start().await;
        assert!(scenario.root.path().join("made").exists());
        scenario.allow_removal();
        run.signal(signal);
        let result = run.end().await;
        assert_eq!(result.code, Some(130), "{result:#?}");
        assert_eq!(entries(scenario.root.path()), ["may-remove"], "{result:#?}");
        assert!(result.stderr.contains("sandbox/impatient  gone"), "{result:#?}");
        scenario.workdir.no_script_runs().await;
    }
}

#[tokio::test]
async fn a_second_interrupt_stops_the_command_at_once() {
    let scenario = InterruptScenario::new();
    let mut run = scenario.start().await;
    run.signal(Signal::SIGINT);
    run.line(&["thing/remove", "running"]).await;
    run.signal(Signal::SIGINT);
    let result = run.end().await;
    assert_eq!(result.code, Some(130), "{result:#?}");
    let message = result.stderr.split("stopped at once").nth(1).unwrap_or_else(|| panic!("{result:#?}"));
    for part in ["thing/make", "`ebb dev` and `ebb delete sandbox impatient`"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(scenario.root.path().join("made").exists());

    scenario.allow_removal();
    let dev = scenario.workdir.dev().await;
    scenario.workdir.ebb(&["delete", "sandbox", "impatient"]).await.done();
    assert_eq!(entries(scenario.root.path()), ["may-remove"]);
    scenario.workdir.no_script_runs().await;
    dev.stop().await;
}
