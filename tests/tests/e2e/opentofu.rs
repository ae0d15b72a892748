//! The example `opentofu`: resources that OpenTofu makes, changes and destroys, also after a kill in the middle of an
//! apply. OpenTofu is in the `PATH` of the tests.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::kill_cluster::{has_text, process, runs};
use crate::prelude::*;

const SANDBOX: &str = "greeter-pr-5";
/// The command of `main.tf` that makes the folder.
const MAKE: &str = r#"mkdir -p \"$FOLDER\""#;
/// Makes the folder. The first apply that finds the file `hold` then stays in its middle.
const MAKE_AND_STAY: &str =
    r#"mkdir -p \"$FOLDER\"; cd \"$FOLDER/..\"; ! rm hold 2>/dev/null || { touch started; exec sleep 600; }"#;

/// A server with a bucket for states, and the folder in which the resources are.
struct TofuLife {
    workdir: Workdir,
    dev: DevProcess,
    root: TempDir,
}

impl TofuLife {
    async fn start() -> Self {
        let (workdir, root) = (Workdir::new(), shared_folder());
        let dev = workdir.dev().await;
        let bucket = reqwest::Client::new().put(format!("{}/states", dev.s3)).send().await.unwrap();
        assert_eq!(bucket.status().as_u16(), 200);
        Self { workdir, dev, root }
    }

    /// Publishes a plugin of the example whose first apply stays in its middle.
    async fn publish_slow(&self, attempts: u32) {
        for file in ["plugin.yaml", "main.tf", "tofu.sh"] {
            let text = fs::read_to_string(example(&format!("opentofu/{file}"))).unwrap();
            let text = text.replace(MAKE, MAKE_AND_STAY).replace("attempts: 3", &format!("attempts: {attempts}"));
            self.workdir.write(file, &text);
        }
        fs::write(self.root.path().join("hold"), "").unwrap();
        self.workdir.ebb(&["apply", "-f", "plugin.yaml"]).await.done();
    }

    /// Applies the sandbox of the example with replaced texts.
    async fn apply(&self, replaced: &[(&str, &str)], more: &[&str]) -> CommandResult {
        let sandbox = fs::read_to_string(example("opentofu/sandbox.yaml")).unwrap();
        let sandbox = replaced.iter().fold(sandbox, |text, (from, to)| {
            assert!(text.contains(from), "{from} is not in:\n{text}");
            text.replace(from, to)
        });
        let file = self.workdir.write("sandbox.yaml", &sandbox);
        let root = format!("root={}", self.root.path().display());
        let arguments = ["apply", "-f", &file, "--set", "bucket=states", "--set", &root];
        self.workdir.ebb(&[&arguments[..], more].concat()).await.done()
    }

    async fn keys(&self) -> Vec<String> {
        let response = reqwest::get(format!("{}/states?list-type=2", self.dev.s3)).await.unwrap();
        let (status, xml) = (response.status().as_u16(), response.text().await.unwrap());
        assert_eq!(status, 200, "{xml}");
        let keys = xml.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>"));
        keys.map(|(key, _)| key.to_owned()).collect()
    }

    fn folders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.path()).unwrap().map(Result::unwrap);
        let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    /// Waits until the first apply is in its middle. Returns the process of OpenTofu.
    async fn reaches_the_middle(&self) -> Pid {
        until("the middle of the apply", async || self.root.path().join("started").exists().then_some(())).await;
        let [folder]: [String; 1] = self.folders().try_into().unwrap();
        assert_eq!(self.keys().await, [format!("ebb/{folder}/terraform.tfstate.tflock")], "a lock and no state");
        assert!(!self.root.path().join(folder).join("settings.toml").exists());
        self.process()
    }

    fn process(&self) -> Pid {
        let root = self.root.path().to_str().unwrap();
        process(|process| runs(process, "tofu") && has_text(process, "environ", root)).expect("OpenTofu runs")
    }

    /// Checks that exactly these resources exist: a folder with this greeting, and its state without a lock.
    async fn assert_made(&self, folder: &str, greeting: &str) {
        let name = folder.rsplit('/').next().unwrap();
        assert_eq!(self.folders(), [name]);
        assert_eq!(self.keys().await, [format!("ebb/{name}/terraform.tfstate")]);
        let settings = fs::read_to_string(format!("{folder}/settings.toml")).unwrap();
        assert_eq!(settings, format!("greeting = \"{greeting}\"\n"));
    }

    async fn log(&self, unit: &str) -> String {
        self.workdir.ebb(&["logs", SANDBOX, "--unit", unit]).await.done().stdout
    }

    /// Deletes the sandbox, and checks that no resource, state or lock remains.
    async fn delete(&self) {
        self.workdir.ebb(&["delete", "sandbox", SANDBOX]).await.done();
        assert_eq!((self.folders(), self.keys().await), (vec![], vec![]));
        self.workdir.no_script_runs().await;
    }
}

#[tokio::test]
async fn resources_change_in_place_and_are_destroyed() {
    let life = TofuLife::start().await;
    life.workdir.ebb(&["apply", "-f", &example("opentofu/plugin.yaml")]).await.done();
    life.apply(&[], &[]).await;
    let target = life.workdir.get(SANDBOX).await;
    let (folder, id) = (output(&target, "site", "folder"), output(&target, "site", "id"));
    assert_eq!(output(&target, "site", "files"), r#"["settings.toml"]"#);
    life.assert_made(folder, "good evening").await;

    let changed = life.apply(&[("good evening", "good night")], &["--dry-run"]).await;
    assert!(format!("{changed:?}").contains("resource site: updated"), "{changed:#?}");
    life.apply(&[("good evening", "good night")], &[]).await;
    life.assert_made(folder, "good night").await;
    let log = life.log("site/change").await;
    assert!(log.contains(&format!("id = \"{id}\"")) && log.contains("1 added, 0 changed, 1 destroyed"), "{log}");

    life.delete().await;
    life.dev.stop().await;
}

#[tokio::test]
async fn a_plugin_of_signadot_makes_the_same_resources() {
    let life = TofuLife::start().await;
    life.workdir.ebb(&["apply", "-f", &example("opentofu/steps.yaml")]).await.done();
    life.apply(&[("opentofu@", "opentofu-steps@"), ("outputs.folder", "outputs['apply.folder']")], &[]).await;
    let target = life.workdir.get(SANDBOX).await;
    life.assert_made(output(&target, "site", "apply.folder"), "good evening").await;
    life.delete().await;
    life.dev.stop().await;
}

/// The server is killed as well, so the next attempt starts after a restart.
#[tokio::test]
async fn an_apply_continues_after_a_kill() {
    let mut life = TofuLife::start().await;
    life.publish_slow(3).await;
    life.apply(&[], &["--wait=false"]).await;
    let process = life.reaches_the_middle().await;
    life.dev.kill().await;
    kill(process, Signal::SIGKILL).unwrap();
    life.dev = life.workdir.dev_again().await;

    let target = life.workdir.reaches(SANDBOX, TargetPhase::Ready).await;
    let unit = &target.runs[0].units[0];
    assert_eq!((unit.key.as_str(), unit.attempt), ("site/apply", 2));
    let log = life.log("site/apply").await;
    assert!(log.contains("has left the lock") && log.contains("2 added, 0 changed, 0 destroyed"), "{log}");
    life.assert_made(output(&target, "site", "folder"), "good evening").await;
    life.delete().await;
    life.dev.stop().await;
}

/// The state does not have the folder that the killed apply has made.
#[tokio::test]
async fn resources_of_a_killed_apply_are_destroyed() {
    let life = TofuLife::start().await;
    life.publish_slow(1).await;
    life.apply(&[], &["--wait=false"]).await;
    kill(life.reaches_the_middle().await, Signal::SIGKILL).unwrap();
    life.workdir.reaches(SANDBOX, TargetPhase::Failed).await;
    assert_eq!(life.folders().len(), 1);
    life.delete().await;
    let log = life.log("site/destroy").await;
    assert!(log.contains("has left the lock") && log.contains("2 destroyed"), "{log}");
    life.dev.stop().await;
}
