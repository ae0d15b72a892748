//! Child processes whose output is in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of the output that an error shows.
const SHOWN_LINES: usize = 3;

/// A running process. It is killed when this is dropped.
pub(crate) struct LoggedChild {
    pub(crate) child: Child,
    name: &'static str,
    log: PathBuf,
}

impl LoggedChild {
    /// Starts a process in `folder`, with its output in `NAME.log` there.
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &'static str) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).current_dir(folder);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { child, name, log })
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
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("; ")
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
        // The folder of the log can only be removed after the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
