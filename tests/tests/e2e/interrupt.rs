//! Ctrl-C: once takes away what was made, twice leaves at once.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::workdir::{Workdir, shared_folder};

/// Makes a directory; then waits for a file that does not come. Its removal waits for a file too.
const PLUGIN: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: slow@1.0.0
params: {root: {type: string}}
runners: {shell: {image: "busybox:1.37"}}
preStart:
  make:
    pod: {script: "#!/bin/sh -eu\nmkdir -p \"$ROOT/made\"\nprintf %s \"$ROOT/made\" >/tmp/path"}
    inputs: {root: "${params.root}"}
    outputs: {path: {file: /tmp/path}}
  fill:
    pod: {script: "#!/bin/sh -eu\necho begun >\"$MADE/begun\"\nuntil [ -e \"$MADE/never\" ]; do sleep 0.05; done"}
    inputs: {made: "${units.make.outputs.path}"}
postStop:
  remove:
    undoes: make
    pod: {script: "#!/bin/sh -eu\nuntil [ -e \"$ROOT/may-remove\" ]; do sleep 0.05; done\nrm -rf \"$ROOT/made\""}
    inputs: {root: "${params.root}", made: "${units.make.outputs.path}"}
"##;

const SANDBOX: &str = r#"
apiVersion: ebb.dev/v1
kind: Sandbox
name: impatient
cluster: local
resources: {thing: {plugin: slow@1.0.0, params: {root: "@{root}"}}}
"#;

struct InterruptScenario {
    place: Workdir,
    root: TempDir,
}

impl InterruptScenario {
    fn new() -> Self {
        Self { place: Workdir::new(), root: shared_folder() }
    }

    /// `ebb run`, up to the moment when the second unit runs.
    async fn busy(&self) -> crate::workdir::RunningCommand {
        let plugin = self.place.write("plugin.yaml", PLUGIN);
        let sandbox = self.place.write("sandbox.yaml", SANDBOX);
        let set = format!("root={}", self.root.path().display());
        let mut run = self.place.start(&["run", &sandbox, "--plugin", &plugin, "--set", &set]);
        run.line(&["thing/fill", "running"]).await;
        run
    }

    fn let_remove(&self) {
        fs::write(self.root.path().join("may-remove"), "").unwrap();
    }
}

fn entries(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test]
async fn once_takes_away_what_was_made() {
    // SIGHUP: the terminal is closed.
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let story = InterruptScenario::new();
        let run = story.busy().await;
        assert!(story.root.path().join("made").exists());
        story.let_remove();
        run.signal(signal);
        let ran = run.end().await;
        assert_eq!(ran.code, Some(130), "{ran:#?}");
        assert_eq!(entries(story.root.path()), ["may-remove"], "{ran:#?}");
        assert!(ran.stderr.contains("sandbox/impatient  gone"), "{ran:#?}");
        story.place.no_script_runs().await;
    }
}

#[tokio::test]
async fn twice_leaves_at_once() {
    let story = InterruptScenario::new();
    let mut run = story.busy().await;
    run.signal(Signal::SIGINT);
    run.line(&["thing/remove", "running"]).await;
    run.signal(Signal::SIGINT);
    let ran = run.end().await;
    assert_eq!(ran.code, Some(130), "{ran:#?}");
    let left = ran.stderr.split("stopped at once").nth(1).unwrap_or_else(|| panic!("{ran:#?}"));
    assert!(left.contains("thing/make") && left.contains("`ebb dev` and `ebb sandbox delete impatient`"), "{left}");
    assert!(story.root.path().join("made").exists());

    story.let_remove();
    let dev = story.place.dev().await;
    story.place.ebb(&["sandbox", "delete", "impatient"]).await.done();
    assert_eq!(entries(story.root.path()), ["may-remove"]);
    story.place.no_script_runs().await;
    dev.stop().await;
}
