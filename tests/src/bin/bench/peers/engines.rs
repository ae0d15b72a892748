//! Starts the engines, each with its default durability, and starts runs on them.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ebb_tests::platform::http;
use ebb_tests::workdir::{Workdir, shared_folder};
use reqwest::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::ebb::EbbServer;
use super::logged_child::{LoggedChild, printed};
use super::process_tree::{TreeUsage, usage};
use super::unit_receiver::UnitReceiver;
use super::{EngineKind, PeerGraph};

/// Maximum time of a run.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// The ID of an unprivileged user and its group. PostgreSQL does not run as root.
const UNPRIVILEGED: u32 = 65534;

/// The programs and addresses with which engines start.
pub(crate) struct EngineSetup<'a> {
    /// The folder of installed engines.
    pub(crate) tools: &'a Path,
    /// Arguments of `ebb dev`.
    pub(crate) dev: &'a [String],
    pub(crate) receiver: &'a UnitReceiver,
}

/// A running engine. It ends when this is dropped.
pub(crate) struct RunningEngine {
    pub(crate) kind: EngineKind,
    pub(crate) version: String,
    /// The state that is stored when the engine answers, and the failures that it survives.
    pub(crate) durability: String,
    access: EngineAccess,
    /// The processes of the engine, then a worker that is not part of it.
    servers: Vec<u32>,
    worker: Option<u32>,
    _processes: Vec<LoggedChild>,
    _folder: Option<TempDir>,
}

/// How a run is started, and what reports its end.
enum EngineAccess {
    /// A lifecycle webhook; a notification.
    Ebb(Box<EbbServer>),
    /// A request; its response.
    Http { http: Client, url: String },
}

impl RunningEngine {
    /// Starts a run and waits until the engine reports its end.
    pub(crate) async fn run(&self, graph: PeerGraph) -> anyhow::Result<()> {
        let run = async {
            match &self.access {
                EngineAccess::Ebb(server) => server.run(graph, 1).await,
                EngineAccess::Http { http, url } => {
                    let (shape, size) = graph.request();
                    let response = http.post(format!("{url}/{shape}")).json(&size).send().await?;
                    let (status, text) = (response.status(), response.text().await?);
                    ensure!(status.is_success(), "a run was answered with {status} {text}");
                    Ok(())
                }
            }
        };
        tokio::time::timeout(RUN_TIMEOUT, run).await.with_context(|| format!("{graph:?} has not ended in time"))?
    }

    /// Returns what the engine has used, without and with its worker.
    pub(crate) fn usage(&self) -> anyhow::Result<(TreeUsage, TreeUsage)> {
        let engine = usage(&self.servers)?;
        let all: Vec<u32> = self.servers.iter().copied().chain(self.worker).collect();
        Ok((engine, usage(&all)?))
    }
}

impl EngineSetup<'_> {
    pub(crate) async fn start(&self, kind: EngineKind) -> anyhow::Result<RunningEngine> {
        match kind {
            EngineKind::Ebb => Box::pin(self.ebb()).await,
            EngineKind::Restate => Box::pin(self.restate()).await,
            EngineKind::Dbos => Box::pin(self.dbos()).await,
            EngineKind::Temporal => Box::pin(self.temporal()).await,
        }
    }

    async fn ebb(&self) -> anyhow::Result<RunningEngine> {
        let arguments: Vec<&str> = self.dev.iter().map(String::as_str).collect();
        let server = Box::pin(EbbServer::start(self.receiver, Workdir::with(&arguments), &PeerGraph::ALL)).await?;
        let durability = match self.dev.iter().any(|argument| argument.ends_with("full")) {
            true => "log of SQLite, synced before the answer: survives a power failure",
            false => "log of SQLite, written before the answer and not synced: survives the end of the process",
        };
        Ok(RunningEngine {
            kind: EngineKind::Ebb,
            version: format!("ebb {} dev {}", env!("CARGO_PKG_VERSION"), self.dev.join(" ")).trim().to_owned(),
            durability: durability.to_owned(),
            servers: vec![server.pid()],
            worker: None,
            access: EngineAccess::Ebb(Box::new(server)),
            _processes: Vec::new(),
            _folder: None,
        })
    }

    /// Starts the server of Restate and a worker, and tells the server about the worker.
    async fn restate(&self) -> anyhow::Result<RunningEngine> {
        let tools = self.tools.join("restate");
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let program = tools.join(format!("node_modules/@restatedev/restate-server-linux-{machine}/bin/restate-server"));
        let version = printed(Command::new(&program).arg("--version")).await?;
        let settings = printed(Command::new(&program).arg("--dump-config")).await?;
        let log_server = settings.split_once("[log-server]").map_or("", |(_, rest)| rest);
        let durability = match log_server.lines().find_map(|line| line.strip_prefix("rocksdb-disable-wal-fsync = ")) {
            Some("false") => "log of RocksDB, synced before the answer: survives a power failure",
            _ => "log of RocksDB, not synced before the answer: survives the end of the process",
        };
        let folder = shared_folder();
        let [fabric, ingress, admin] = free_ports()?;
        let mut server = Command::new(&program);
        server.args(["--no-logo", "--base-dir"]).arg(folder.path().join("data"));
        server.env("RESTATE_LISTEN_MODE", "tcp").env("RESTATE_DISABLE_TELEMETRY", "true");
        let addresses = [("", fabric), ("INGRESS__", ingress), ("ADMIN__", admin)];
        server.envs(addresses.map(|(part, port)| (format!("RESTATE_{part}BIND_ADDRESS"), format!("127.0.0.1:{port}"))));
        let mut server = LoggedChild::start(&mut server, folder.path(), "restate-server")?;
        let (ingress, admin) = (format!("http://127.0.0.1:{ingress}"), format!("http://127.0.0.1:{admin}"));
        let mut worker = Command::new("node");
        worker.arg(tools.join("worker.js")).env("INGRESS", &ingress).env("RESTATE_LOGGING", "WARN");
        worker.env("RECEIVER", self.receiver.units_url());
        let mut worker = LoggedChild::start(&mut worker, folder.path(), "worker")?;
        let port = worker.port().await?;
        let http = http();
        let health = format!("{admin}/health");
        server.until(async || http.get(&health).send().await.ok()?.status().is_success().then_some(())).await?;
        let registration = http.post(format!("{admin}/deployments"));
        let registration = registration.json(&json!({"uri": format!("http://127.0.0.1:{port}")})).send().await?;
        let (status, text) = (registration.status(), registration.text().await?);
        ensure!(status.is_success(), "the worker was not registered: {status} {text}");
        Ok(RunningEngine {
            kind: EngineKind::Restate,
            version,
            durability: durability.to_owned(),
            servers: vec![server.pid],
            worker: Some(worker.pid),
            access: EngineAccess::Http { http, url: format!("{ingress}/runs") },
            _processes: vec![worker, server],
            _folder: Some(folder),
        })
    }

    /// Starts PostgreSQL and a worker. DBOS is a library of the worker, so the worker is part of the engine.
    async fn dbos(&self) -> anyhow::Result<RunningEngine> {
        let tools = self.tools.join("dbos");
        let python = tools.join("bin/python");
        let show = "from importlib.metadata import version; print('dbos', version('dbos'))";
        let version = printed(Command::new(&python).args(["-c", show])).await?;
        let programs = postgres_programs().context("PostgreSQL is missing: install Debian's package postgresql")?;
        let folder = shared_folder();
        let is_root = fs::metadata("/proc/self")?.uid() == 0;
        if is_root {
            chown(folder.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED))?;
        }
        let data = folder.path().join("data");
        let program = |name: &str| {
            let mut command = Command::new(programs.join(name));
            if is_root {
                command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
            }
            command.current_dir(folder.path());
            command
        };
        let mut initdb = program("initdb");
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "--pgdata"]);
        printed(initdb.arg(&data)).await?;
        let [port] = free_ports()?;
        let mut server = program("postgres");
        server.arg("-D").arg(&data).args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c"]);
        server.arg(format!("unix_socket_directories={}", folder.path().display()));
        let mut server = LoggedChild::start(&mut server, folder.path(), "postgres")?;
        server.prints("ready to accept connections").await?;
        let commits = printed(program("postgres").args(["-C", "synchronous_commit", "-D"]).arg(&data)).await?;
        let mut worker = Command::new(&python);
        worker.arg(tools.join("worker.py")).env("RECEIVER", self.receiver.units_url());
        worker.env("DATABASE", format!("postgresql://postgres@127.0.0.1:{port}/dbos"));
        let mut worker = LoggedChild::start(&mut worker, folder.path(), "worker")?;
        let own_port = worker.port().await?;
        Ok(RunningEngine {
            kind: EngineKind::Dbos,
            version: format!("{version}, {}", printed(program("postgres").arg("--version")).await?),
            durability: format!("PostgreSQL with synchronous_commit {commits}: on survives a power failure"),
            servers: vec![server.pid, worker.pid],
            worker: None,
            access: EngineAccess::Http { http: http(), url: format!("http://127.0.0.1:{own_port}") },
            _processes: vec![worker, server],
            _folder: Some(folder),
        })
    }

    /// Starts the development server of Temporal and a worker.
    async fn temporal(&self) -> anyhow::Result<RunningEngine> {
        let tools = self.tools.join("temporal");
        let version = printed(Command::new(tools.join("temporal")).arg("--version")).await?;
        let folder = shared_folder();
        let [port] = free_ports()?;
        let mut server = Command::new(tools.join("temporal"));
        server.args(["server", "start-dev", "--headless", "--log-level", "error", "--ip", "127.0.0.1", "--port"]);
        let mut server = LoggedChild::start(server.arg(port.to_string()), folder.path(), "temporal")?;
        server.prints("Server:").await?;
        let mut worker = Command::new(tools.join("worker"));
        worker.env("RECEIVER", self.receiver.units_url()).env("TEMPORAL", format!("127.0.0.1:{port}"));
        let mut worker = LoggedChild::start(&mut worker, folder.path(), "worker")?;
        let own_port = worker.port().await?;
        Ok(RunningEngine {
            kind: EngineKind::Temporal,
            version,
            durability: "SQLite in memory: lost with the process".to_owned(),
            servers: vec![server.pid],
            worker: Some(worker.pid),
            access: EngineAccess::Http { http: http(), url: format!("http://127.0.0.1:{own_port}") },
            _processes: vec![worker, server],
            _folder: Some(folder),
        })
    }
}

/// Returns ports that no process uses.
fn free_ports<const COUNT: usize>() -> anyhow::Result<[u16; COUNT]> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All are bound at the same time, so they differ.
    let listeners = (0..COUNT).map(bind).collect::<Result<Vec<_>, _>>()?;
    let mut ports = [0; COUNT];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Returns the folder of the programs of PostgreSQL. Debian has a folder for each version outside of `PATH`.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let in_path: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    debian.chain(in_path).find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}
