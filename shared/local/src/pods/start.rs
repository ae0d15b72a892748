//! Starts the supervisor of a task.

use std::fs::{File, TryLockError};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{PodsError, SupervisorConfig, TaskFolder, supervisor};
use crate::files::{self, StateFileError};

/// The timeout for a lock that other processes hold only briefly.
const MOMENTS: Duration = Duration::from_secs(10);

/// Starts the supervisor of a task whose request is on disk. The supervisor is this program, whose `main` calls
/// [`super::supervise_if_asked`]. Does nothing if the task has a supervisor, or if an earlier one may have started the
/// script. The caller holds the unit's lock.
///
/// The supervisor inherits the lock, so the task always has an owner.
pub(super) async fn start(task: &TaskFolder, config: &SupervisorConfig) -> Result<(), PodsError> {
    let Some(lock) = hold(task).await? else { return Ok(()) };
    if task.started().exists() || task.result().exists() || task.tombstone().exists() {
        return Ok(());
    }
    files::write_json(&task.supervisor_config(), config)?;
    let errors_path = task.folder.join("supervisor.err");
    let errors = File::create(&errors_path).map_err(|error| PodsError::io(&errors_path, error))?;
    // The link stays valid when the file of this program is replaced.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("ebb")
        .arg(supervisor::ARGUMENT)
        .arg(&task.folder)
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::null())
        .stderr(Stdio::from(errors));
    // A script could read the environment of its supervisor. Only the command of a container engine needs it.
    if config.containers.is_none() {
        command.env_clear();
    }
    let mut child = tokio::process::Command::from(command).spawn().map_err(PodsError::Spawn)?;
    // The child would otherwise stay a zombie. Its result is in its folder.
    tokio::spawn(async move { child.wait().await });
    Ok(())
}

/// Takes the lock of the task. Returns `None` if a supervisor holds it. A process that reads the state holds it only
/// briefly.
async fn hold(task: &TaskFolder) -> Result<Option<File>, PodsError> {
    let path = task.lock();
    let file = files::lock_file(&path)?;
    let until = Instant::now() + MOMENTS;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                if task.started().exists() {
                    return Ok(None);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(PodsError::io(&path, error)),
        }
    }
}

/// Takes the lock of a unit, which is held to start or end an attempt of it. `unit` is the folder of the unit. It is
/// created if it is missing.
pub(super) async fn lock_unit(unit: &Path) -> Result<File, PodsError> {
    use std::os::unix::fs::MetadataExt as _;
    let path = unit.join("lock");
    loop {
        files::private_folder(unit)?;
        let file = match files::lock_file(&path) {
            Ok(file) => file,
            // `prune` has removed the folder between the two calls.
            Err(StateFileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(TryLockError::Error(error)) => return Err(PodsError::io(&path, error)),
            }
        }
        // `prune` may have removed the file while this process waited for it.
        let ours = file.metadata().map_err(|error| PodsError::io(&path, error))?.ino();
        if std::fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
            return Ok(file);
        }
    }
}
