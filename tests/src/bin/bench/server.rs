//! `ebb dev` in a folder of its own, and the commands that ask it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// It starts and ends within this, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; killed when this is dropped.
pub(crate) struct DevServer {
    ebb: PathBuf,
    child: Child,
    pub(crate) connection: ServerConnection,
    folder: tempfile::TempDir,
    /// Open as long as it runs.
    _stdout: tokio::io::Lines<BufReader<ChildStdout>>,
}

/// What the server says of itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerConnection {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) webhook_secret: String,
}

impl DevServer {
    /// Starts the program `ebb`, without it the one beside this, on free ports with further `options`.
    pub(crate) async fn start(
        ebb: Option<PathBuf>,
        options: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<Self> {
        let ebb = match ebb {
            Some(ebb) => ebb,
            None => std::env::current_exe()?.with_file_name("ebb"),
        };
        ensure!(ebb.is_file(), "there is no {}: `cargo build --package ebb` makes it", ebb.display());
        // Scripts see what is outside of /tmp: theirs is their own.
        let folder = tempfile::Builder::new().prefix("ebb-bench-").tempdir_in("/var/tmp")?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new(&ebb);
        options(command.args(["dev", "--port", "0", "--s3-port", "0", "--state", ".ebb"]));
        command.current_dir(folder.path()).env("RUST_LOG", "warn").stdin(Stdio::null()).kill_on_drop(true);
        let child = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", ebb.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("a pipe was asked for")?).lines();
        let started = async {
            while let Some(line) = lines.next_line().await? {
                if line.starts_with("stop with") {
                    return anyhow::Ok(());
                }
            }
            let log = std::fs::read_to_string(folder.path().join("log"))?;
            bail!("`ebb dev` ended: {log}")
        };
        tokio::time::timeout(PATIENCE, started).await.context("`ebb dev` does not start")??;
        let connection = std::fs::read(folder.path().join(".ebb/server.json"))?;
        let connection = serde_json::from_slice(&connection)?;
        Ok(Self { ebb, child, connection, folder, _stdout: lines })
    }

    /// Runs a command of `ebb` that asks the server, and returns its output.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.ebb);
        for name in ["EBB_URL", "EBB_TOKEN"] {
            command.env_remove(name);
        }
        let answer = command.args(arguments).current_dir(self.folder.path()).output().await?;
        let complained = String::from_utf8_lossy(&answer.stderr);
        ensure!(answer.status.success(), "`ebb {}`: {complained}", arguments.join(" "));
        Ok(String::from_utf8(answer.stdout)?)
    }

    /// Applies a document, a `plugin` or a `sandbox`, as its author does.
    pub(crate) async fn apply(&self, kind: &str, document: &str) -> anyhow::Result<()> {
        std::fs::write(self.folder.path().join("document.yaml"), document)?;
        self.ask(&[kind, "apply", "-f", "document.yaml"]).await.map(drop)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Ends it as a person does.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        use nix::sys::signal::{Signal, kill};
        kill(nix::unistd::Pid::from_raw(self.pid().cast_signed()), Signal::SIGINT)?;
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.context("`ebb dev` does not end")??;
        ensure!(status.success(), "`ebb dev` ended with {status}");
        Ok(())
    }
}
