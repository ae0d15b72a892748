//! Child processes whose output is in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// Maximum time until a process is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time until a process that was asked to end has ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of the output that an error shows.
const SHOWN_LINES: usize = 3;

/// A running process. It ends when this is dropped.
pub(crate) struct LoggedChild {
    child: Child,
    pub(crate) pid: u32,
    name: &'static str,
    log: PathBuf,
}

impl LoggedChild {
    /// Starts a process in `folder`, with its output in `NAME.log` there.
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &'static str) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).current_dir(folder).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.as_std().get_program()))?;
        let pid = child.id().context("the process has not been awaited")?;
        Ok(Self { child, pid, name, log })
    }

    /// Polls until `condition` returns a value. Fails if the process ends before.
    pub(crate) async fn until<T>(&mut self, mut condition: impl AsyncFnMut() -> Option<T>) -> anyhow::Result<T> {
        let began = Instant::now();
        loop {
            if let Some(value) = condition().await {
                return Ok(value);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.name, self.last_lines());
            }
            ensure!(began.elapsed() < START_TIMEOUT, "{} is not ready: {}", self.name, self.last_lines());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn last_lines(&self) -> String {
        last_lines(&fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Waits until the output has this text.
    pub(crate) async fn prints(&mut self, text: &str) -> anyhow::Result<()> {
        let log = self.log.clone();
        self.until(async || fs::read_to_string(&log).ok()?.contains(text).then_some(())).await
    }

    /// Waits until a worker prints its port.
    pub(crate) async fn port(&mut self) -> anyhow::Result<u16> {
        let log = self.log.clone();
        let port = |line: &str| line.strip_prefix("port ")?.parse::<u16>().ok();
        self.until(async || fs::read_to_string(&log).ok()?.lines().find_map(port)).await
    }
}

impl Drop for LoggedChild {
    fn drop(&mut self) {
        let began = Instant::now();
        while began.elapsed() < END_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            // PostgreSQL ends its own processes before it ends. What remains is killed.
            let _ = kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGINT);
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Runs a program to its end and returns what it prints.
pub(crate) async fn printed(command: &mut Command) -> anyhow::Result<String> {
    let program = command.as_std().get_program().to_owned();
    let output = command.stdin(Stdio::null()).output().await.with_context(|| format!("cannot start {program:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program:?} ended with {}: {}", output.status, last_lines(&errors));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("; ")
}
