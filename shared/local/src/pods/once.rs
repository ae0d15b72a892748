//! One script in the foreground.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_protocol::callback::{Callback, ReasonCode};
use ebb_protocol::id::short_digest;
use ebb_protocol::relay::{CallbackEndpoint, EnsureTask, ScriptTask, TaskId};
use tokio::io::AsyncReadExt as _;

use super::task_folder::{CancelRequest, FolderState, StoredRequest, SupervisorConfig, TaskFolder, TaskLifetime};
use super::{PodsError, folder, leftovers, start, supervisor};

/// A script to run once, outside of any run.
#[derive(Clone, Debug)]
pub struct OneOffScript {
    /// The script with its inputs and outputs.
    pub script: ScriptTask,
    pub timeout: Duration,
    /// Environment variables in addition to those of the script.
    pub extra_env: Vec<(String, String)>,
    /// The program to run as supervisor; `None`: this one.
    pub program: Option<PathBuf>,
}

/// Runs a script with the isolation of a unit, and waits for its end. Passes the output of the script to `print` as it
/// comes. Secrets and sensitive outputs are in the folder `state`, which is created if it is missing. The script is killed
/// if the future is dropped or this program is killed.
///
/// # Errors
/// [`PodsError`] if it cannot be run at all. The failure of the script is a result.
pub async fn run_once(
    state: &Path,
    once: OneOffScript,
    mut print: impl FnMut(&[u8]) + Send,
) -> Result<Callback, PodsError> {
    let all = state.join("once");
    folder::make_private(&all)?;
    let state = state.canonicalize().map_err(|error| PodsError::io(state, error))?;
    let all = state.join("once");
    sweep(&all)?;
    let kept = tempfile::Builder::new().prefix("r-").tempdir_in(&all).map_err(|error| PodsError::io(&all, error))?;
    let shown = kept.path().to_string_lossy().into_owned();
    let task = TaskId { unit: format!("once-{}", short_digest(&[&shown], 16)), attempt: 1 };
    let run = OneOffGuard { task: TaskFolder { folder: kept.keep() } };
    let request = EnsureTask {
        v: 1,
        task,
        valid_for_ms: u64::MAX,
        timeout_ms: u64::try_from(once.timeout.as_millis()).unwrap_or(u64::MAX),
        callback: CallbackEndpoint { url: String::new(), token: String::new(), installation: String::new() },
        body: once.script,
    };
    folder::write_json(&run.task.request(), &StoredRequest { at_ms: supervisor::now_ms(), request })?;
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    let config = SupervisorConfig {
        state,
        path,
        extra_env: once.extra_env,
        lifetime: TaskLifetime::BoundToStarter { starter: std::process::id() },
        containers: None,
    };
    let child = start::start(&run.task, &config, once.program.as_deref()).await?;
    if let Some(mut child) = child {
        if let Some(mut output) = child.stdout.take() {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = output.read(&mut buffer).await {
                print(&buffer[..count]);
            }
        }
        child.wait().await.map_err(PodsError::Spawn)?;
    }
    match run.task.state()? {
        FolderState::Ended(result) => Ok(*result),
        FolderState::Tombstoned => Ok(Callback::failed(ReasonCode::Cancelled, "the script was ended from outside")),
        _ => {
            leftovers::kill_marked(&run.task.process_marks());
            Ok(Callback::failed(ReasonCode::Lost, "the process that watched over the script was killed"))
        }
    }
}

/// Ends the script and removes its folder when the future is dropped.
struct OneOffGuard {
    task: TaskFolder,
}

impl Drop for OneOffGuard {
    fn drop(&mut self) {
        if self.task.is_locked().unwrap_or(false) {
            // The next run removes the folder.
            let _ = folder::write_json(&self.task.cancel(), &CancelRequest { grace_ms: 2_000 });
        } else {
            let _ = std::fs::remove_dir_all(&self.task.folder);
        }
    }
}

/// Removes the folders that earlier runs have left.
fn sweep(all: &Path) -> Result<(), PodsError> {
    for name in folder::names(all)? {
        let task = TaskFolder { folder: all.join(name) };
        // A run that is starting right now is `Waiting`.
        match task.state()? {
            FolderState::Ended(_) | FolderState::Tombstoned => {}
            FolderState::Lost => {
                leftovers::kill_marked(&task.process_marks());
            }
            FolderState::Absent | FolderState::Running | FolderState::Waiting => continue,
        }
        let _ = std::fs::remove_dir_all(&task.folder);
    }
    Ok(())
}
