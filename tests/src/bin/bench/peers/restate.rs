//! The server of Restate with its default durability, and a worker with the code of the runs.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use ebb_tests::platform::http;
use ebb_tests::workdir::shared_folder;
use reqwest::{Client, RequestBuilder};
use serde_json::json;
use tempfile::TempDir;

use super::logged_child::LoggedChild;
use super::unit_receiver::UnitReceiver;
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
    pub(crate) worker: LoggedChild,
    pub(crate) server: LoggedChild,
    /// Removed after the processes have ended.
    _folder: TempDir,
}

impl RestateServer {
    pub(crate) async fn start(receiver: &UnitReceiver) -> anyhow::Result<Self> {
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
        let [fabric, ingress, admin] = free_addresses()?;
        let mut server = Command::new(&program);
        server.args(["--no-logo", "--base-dir"]).arg(folder.path().join("data"));
        server.env("RESTATE_LISTEN_MODE", "tcp").env("RESTATE_DISABLE_TELEMETRY", "true");
        for (part, address) in [("", fabric), ("INGRESS__", ingress), ("ADMIN__", admin)] {
            server.env(format!("RESTATE_{part}BIND_ADDRESS"), address.to_string());
        }
        let mut server = LoggedChild::start(&mut server, folder.path(), "restate-server")?;
        let mut worker = Command::new("node");
        worker.arg(tools.join("worker.js")).env("INGRESS", format!("http://{ingress}"));
        worker.env("RESTATE_LOGGING", "WARN").env("RECEIVER", format!("{}/units", receiver.url));
        let mut worker = LoggedChild::start(&mut worker, folder.path(), "worker")?;
        let port = worker.port().await?;
        let (http, health) = (http(), format!("http://{admin}/health"));
        server.until(async || http.get(&health).send().await.ok()?.status().is_success().then_some(())).await?;
        let registration = http.post(format!("http://{admin}/deployments"));
        let registration = registration.json(&json!({"uri": format!("http://127.0.0.1:{port}")}));
        sent(registration).await.context("the worker was not registered")?;
        let (note, url) = (format!("{version}; {durability}"), format!("http://{ingress}/runs"));
        Ok(Self { note, http, url, worker, server, _folder: folder })
    }

    pub(crate) async fn run(&self, RunGraph { shape, units, .. }: RunGraph) -> anyhow::Result<()> {
        // The worker adds the first and the last unit of a fan.
        let (shape, size) = if shape == RunShape::Chain { ("chain", units) } else { ("fan", units - 2) };
        sent(self.http.post(format!("{}/{shape}", self.url)).json(&size)).await
    }
}

/// Returns addresses that no process uses. All are bound at the same time, so they differ.
fn free_addresses() -> anyhow::Result<[SocketAddr; 3]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let [first, second, third] = [bind()?, bind()?, bind()?];
    Ok([first.local_addr()?, second.local_addr()?, third.local_addr()?])
}

async fn sent(request: RequestBuilder) -> anyhow::Result<()> {
    let response = request.send().await?;
    let (status, text) = (response.status(), response.text().await?);
    ensure!(status.is_success(), "Restate has answered with {status} {text}");
    Ok(())
}

fn printed(program: &Path, argument: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg(argument).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ended with {}: {errors}", program.display(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
