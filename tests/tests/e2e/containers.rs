//! Scripts in containers of their image, by Podman.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::{fs, io};

use tempfile::TempDir;

use crate::prelude::*;

/// An image with a shell and [`TOOLS`].
const IMAGE: &str = "ebb.test/busybox:1";
const TOOLS: [&str; 8] = ["sh", "cat", "mkdir", "nc", "printf", "sleep", "true", "test"];

/// A Podman with its own storage.
pub(crate) struct PodmanEngine {
    folder: TempDir,
}

impl PodmanEngine {
    fn new() -> Self {
        let engine = Self { folder: shared_folder() };
        let settings = [include_str!("documents/containers.conf"), include_str!("documents/storage.conf")];
        for ((_, file), settings) in engine.variables().into_iter().zip(settings) {
            fs::write(file, settings.replace("FOLDER", engine.folder.path().to_str().unwrap())).unwrap();
        }
        let root = engine.folder.path().join("image");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("tmp")).unwrap();
        fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
        TOOLS.iter().for_each(|tool| symlink("busybox", root.join("bin").join(tool)).unwrap());
        let archive = engine.folder.path().join("image.tar");
        let tar = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status();
        assert!(tar.unwrap().success());
        engine.output(&["import", archive.to_str().unwrap(), IMAGE]);
        engine
    }

    /// Returns the environment variables that select this Podman.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("CONTAINERS_CONF", "containers.conf"), ("CONTAINERS_STORAGE_CONF", "storage.conf")]
            .map(|(name, file)| (name, self.folder.path().join(file)))
    }

    fn podman(&self, arguments: &[&str]) -> io::Result<Output> {
        Command::new("podman").args(arguments).envs(self.variables()).output()
    }

    /// Runs a Podman command. Returns its standard output.
    fn output(&self, arguments: &[&str]) -> String {
        let result = self.podman(arguments);
        let result =
            result.expect("podman starts: install it (Debian: podman and runc), as `cargo xtask verify scripts` does");
        assert!(result.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&result.stderr));
        String::from_utf8(result.stdout).unwrap()
    }

    fn containers(&self) -> Vec<String> {
        let list = self.output(&["ps", "--all", "--format", "{{.Names}} {{.State}}"]);
        list.lines().map(str::to_owned).collect()
    }
}

impl Drop for PodmanEngine {
    fn drop(&mut self) {
        let _ = self.podman(&["rm", "--all", "--force", "--time", "0"]);
    }
}

/// Returns the rest of the document of a sandbox with a plugin.
fn resource(plugin: &str, params: &str) -> String {
    format!("resources: {{r: {{plugin: {plugin}, params: {params}}}}}\n")
}

#[tokio::test]
async fn scripts_run_in_their_images() {
    let engine = PodmanEngine::new();
    let workdir = workdir_setup::with_containers(&engine);
    let dev = workdir.dev().await;
    workdir.apply("plugin", include_str!("documents/boxed.yaml")).await;

    workdir.create("stubborn", &resource("stubborn", "{}")).await;
    let mut log = workdir.start(&["logs", "stubborn", "--unit", "stubborn", "--follow"]);
    log.says("started").await;
    // Its grace period ends before this test does.
    workdir.ebb(&["delete", "sandbox", "stubborn", "--wait=false"]).await.done();

    let [address] = program::free_addresses();
    workdir.create("boxed", &resource("boxed", &format!("{{port: \"{}\"}}", address.port()))).await;
    let key = until("the second container", async || {
        let log = workdir.ebb(&["logs", "boxed", "--unit", "wait"]).await.stdout;
        log.strip_prefix("for ").map(|key| key.trim().to_owned())
    })
    .await;
    dev.kill().await;
    let running = engine.containers();
    assert!(running.iter().any(|it| it.contains("-1-1 Up ")), "{running:?}");
    let dev = workdir.dev_again().await;
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let target = workdir.reaches("boxed", TargetPhase::Ready).await;
    let outputs = serde_json::json!(target.resources["r"].outputs);
    assert_eq!((&outputs["name"]["value"], &outputs["word"]["value"]), (&key.into(), &"done".into()));
    assert!(target.runs[0].units.iter().all(|unit| unit.attempt == 1), "{target:#?}");
    workdir.ebb(&["delete", "sandbox", "boxed"]).await.done();
    let gone = workdir.reaches("stubborn", TargetPhase::Gone).await;
    assert_eq!(gone.runs[0].units[0].state, UnitState::Cancelled);
    assert_eq!(log.end().await.done().stdout, "started\n");
    until("the end of all containers", async || engine.containers().is_empty().then_some(())).await;
    dev.stop().await;
}

/// A registry accepts connections and does not respond. Of two units with its image, one is cancelled and the other times
/// out.
#[tokio::test]
async fn image_pulls_that_hang() {
    let engine = PodmanEngine::new();
    let workdir = workdir_setup::with_containers(&engine);
    let dev = workdir.dev().await;
    let registry = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = registry.local_addr().unwrap().port();
    for (name, timeout) in [("cancelled", "10m"), ("late", "3s")] {
        let rest = format!(
            "runners: {{shell: {{image: \"127.0.0.1:{port}/never:1\"}}}}\n\
             preStart: {{it: {{timeout: {timeout}, retry: {{attempts: 1}}, pod: {{script: \"#!/bin/sh\\ntrue\"}}}}}}\n"
        );
        workdir.publish(&format!("{name}@1.0.0"), &rest).await;
    }
    workdir.create("cancelled", &resource("cancelled", "{}")).await;
    let pull = tokio::time::timeout(WAIT_TIMEOUT, registry.accept()).await;
    let _connection = pull.expect("a pull of the image").unwrap();
    workdir.ebb(&["delete", "sandbox", "cancelled"]).await.done();
    let gone = workdir.get("cancelled").await;
    assert_eq!(gone.runs[0].units[0].state, UnitState::Cancelled, "{gone:#?}");

    let late = workdir.write_sandbox("late", &resource("late", "{}"));
    let failed = workdir.ebb(&["apply", "-f", &late]).await;
    let message = "the container did not start within the 3 s of the unit";
    assert!(failed.code == Some(1) && failed.stderr.contains(message), "{failed:#?}");
    assert!(engine.containers().is_empty());
    dev.stop().await;
}
