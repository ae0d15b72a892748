//! The server of Restate with its default durability, and a worker with the code of the runs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{self, Stdio};

use anyhow::{Context as _, anyhow, ensure};
use ebb_tests::platform::http;
use ebb_tests::program::free_addresses;
use ebb_tests::receiver::TestReceiver;
use ebb_tests::wait::until;
use ebb_tests::workdir::shared_folder;
use reqwest::{Client, RequestBuilder};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::shapes::{RunGraph, RunShape};

/// The folder in which `cargo xtask bench peers` installs the server and the worker.
const INSTALLED: &str = "target/peers/restate";

/// A running server and its worker. Both end when this is dropped.
pub(crate) struct RestateServer {
    /// The version, and the durability of the log.
    pub(crate) note: String,
    http: Client,
    /// The URL at which runs start.
    url: String,
    /// The server and the worker. Both are killed when they are dropped.
    pub(crate) processes: [Child; 2],
    _folder: TempDir,
}

impl RestateServer {
    pub(crate) async fn start(receiver: &TestReceiver) -> anyhow::Result<Self> {
        // The processes run in a folder of their own.
        let tools = std::path::absolute(INSTALLED)?;
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let program = tools.join(format!("node_modules/@restatedev/restate-server-linux-{machine}/bin/restate-server"));
        let (version, settings) = (printed(&program, "--version")?, printed(&program, "--dump-config")?);
        let log_server = settings.split_once("[log-server]").map_or("", |(_, rest)| rest);
        let durability = match log_server.lines().find_map(|line| line.strip_prefix("rocksdb-disable-wal-fsync = ")) {
            Some("false") => "log of RocksDB, synced before the answer: survives a power failure",
            _ => "log of RocksDB, not synced before the answer: survives the end of the process",
        };
        let folder = shared_folder();
        let [fabric, ingress, admin] = free_addresses();
        let mut server = Command::new(&program);
        server.args(["--no-logo", "--base-dir"]).arg(folder.path().join("data"));
        server.env("RESTATE_LISTEN_MODE", "tcp").env("RESTATE_DISABLE_TELEMETRY", "true");
        for (part, address) in [("", fabric), ("INGRESS__", ingress), ("ADMIN__", admin)] {
            server.env(format!("RESTATE_{part}BIND_ADDRESS"), address.to_string());
        }
        let mut worker = Command::new("node");
        worker.arg(tools.join("worker.js")).env("INGRESS", format!("http://{ingress}"));
        worker.env("RESTATE_LOGGING", "WARN").env("RECEIVER", format!("{}/units", receiver.url()));
        let port = |log: &str| log.lines().find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok());
        let (worker, port) = started(&mut worker, &folder.path().join("worker.log"), async |log| port(log)).await?;
        let (http, health) = (http(), format!("http://{admin}/health"));
        let log = folder.path().join("restate-server.log");
        let is_healthy = async || http.get(&health).send().await.ok()?.status().is_success().then_some(());
        let (server, ()) = started(&mut server, &log, async |_| is_healthy().await).await?;
        let registration = http.post(format!("http://{admin}/deployments"));
        let registration = registration.json(&json!({"uri": format!("http://127.0.0.1:{port}")}));
        sent(registration).await.context("the worker was not registered")?;
        let (note, url) = (format!("{version}; {durability}"), format!("http://{ingress}/runs"));
        Ok(Self { note, http, url, processes: [server, worker], _folder: folder })
    }

    pub(crate) async fn run(&self, RunGraph { shape, units, .. }: RunGraph) -> anyhow::Result<()> {
        // The worker adds the first and the last unit of a fan.
        let (shape, size) = if shape == RunShape::Chain { ("chain", units) } else { ("fan", units - 2) };
        sent(self.http.post(format!("{}/{shape}", self.url)).json(&size)).await
    }
}

/// Starts a program in the folder of its log. Waits until `condition` returns a value for the text of the log. Fails if the
/// program ends before.
async fn started<T>(
    command: &mut Command,
    log: &Path,
    mut condition: impl AsyncFnMut(&str) -> Option<T>,
) -> anyhow::Result<(Child, T)> {
    let (file, folder) = (File::create(log)?, log.parent().unwrap_or(log));
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).current_dir(folder).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| log.display().to_string())?;
    let shown = log.display().to_string();
    let ready = until(&shown, async || {
        let printed = fs::read_to_string(log).unwrap_or_default();
        match child.try_wait() {
            Ok(None) => condition(&printed).await.map(Ok),
            ended => Some(Err(anyhow!("{}: {ended:?}: {printed}", log.display()))),
        }
    });
    let ready = ready.await?;
    Ok((child, ready))
}

async fn sent(request: RequestBuilder) -> anyhow::Result<()> {
    let response = request.send().await?;
    let (status, text) = (response.status(), response.text().await?);
    ensure!(status.is_success(), "Restate has answered with {status} {text}");
    Ok(())
}

fn printed(program: &Path, argument: &str) -> anyhow::Result<String> {
    let output = process::Command::new(program).arg(argument).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ended with {}: {errors}", program.display(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
