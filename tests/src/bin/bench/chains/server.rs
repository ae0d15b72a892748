//! `ebb dev`, and the commands that ask it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Arguments, UNITS};

/// A running server; killed when this is dropped.
pub(crate) struct Server {
    ebb: PathBuf,
    folder: TempDir,
    child: Child,
}

impl Server {
    /// Starts one whose units run in the cluster.
    pub(crate) fn start(ebb: &Path, arguments: &Arguments) -> anyhow::Result<Self> {
        ensure!(ebb.is_file(), "there is no {}: `cargo build --package ebb` makes it", ebb.display());
        let folder = tempfile::Builder::new().prefix("ebb-chains-").tempdir_in("/var/tmp")?;
        let mut dev = Command::new(ebb);
        dev.args(["dev", "--port", "0", "--s3-port", "0", "--kubeconfig"]).arg(&arguments.kubeconfig);
        dev.args(["--reach", &arguments.reach, "--reach-port", "7881"]);
        dev.args(["--runner-image", &arguments.runner_image, "--units", UNITS]).current_dir(folder.path());
        // What it says of each unit is nothing to wait for here.
        dev.env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = dev.spawn().context("cannot start ebb")?;
        let said = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
        let server = Self { ebb: ebb.to_owned(), folder, child };
        for line in said.lines() {
            if line?.starts_with("stop with") {
                return Ok(server);
            }
        }
        bail!("`ebb dev` does not start")
    }

    fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.ebb);
        let done = command.args(arguments).current_dir(self.folder.path()).output()?;
        let complained = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "`ebb {}`: {complained}", arguments.join(" "));
        Ok(String::from_utf8(done.stdout)?)
    }

    fn with_file(&self, arguments: &[&str], document: &str) -> anyhow::Result<()> {
        let file = self.folder.path().join("document.yaml");
        fs::write(&file, document)?;
        let file = file.to_string_lossy();
        self.ask(&[arguments, &["-f", &file]].concat()).map(drop)
    }

    pub(crate) fn publish(&self, plugin: &str) -> anyhow::Result<()> {
        self.with_file(&["plugin", "apply"], plugin)
    }

    /// Asks for a sandbox and waits until it is ready.
    pub(crate) fn apply(&self, sandbox: &str) -> anyhow::Result<()> {
        self.with_file(&["sandbox", "apply"], sandbox)
    }

    pub(crate) fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.ask(&["sandbox", "delete", name]).map(drop)
    }

    /// When its scripts have ended, in their order.
    pub(crate) fn ends(&self, name: &str, units: usize) -> anyhow::Result<Vec<SystemTime>> {
        let seen: Value = serde_json::from_str(&self.ask(&["sandbox", "get", name, "-o", "json"])?)?;
        let end = |unit| {
            let text = seen["resources"]["it"]["outputs"][format!("end{unit}")]["value"].as_str();
            let millis =
                text.and_then(|text| text.trim().parse().ok()).context("a script says when it ends")?;
            Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
        };
        (0..units).map(end).collect()
    }

    /// Ends it as a person does.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "`ebb dev` has ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
