//! Starting a supervisor.

use std::fs::{File, TryLockError};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::process::Child;

use super::task_folder::{SupervisorConfig, TaskFolder, TaskLifetime};
use super::{PodsError, folder, supervisor};

/// How long somebody else may hold a lock that is only ever held for moments.
const MOMENTS: Duration = Duration::from_secs(10);

/// Starts the supervisor of task whose request is on disk. `program` is ours if `None`. Does nothing and gives `None`
/// if it has one, or has had one that came as far as the script.
///
/// The supervisor inherits the lock, so that there is no moment in which the task seems to be nobody's.
pub(super) async fn start(
    task: &TaskFolder,
    config: &SupervisorConfig,
    program: Option<&Path>,
) -> Result<Option<Child>, PodsError> {
    let Some(lock) = hold(task).await? else { return Ok(None) };
    if task.started().exists() || task.result().exists() || task.tombstone().exists() {
        return Ok(None);
    }
    folder::write_json(&task.supervisor_config(), config)?;
    let errors_path = task.folder.join("supervisor.err");
    let errors = File::create(&errors_path).map_err(|error| PodsError::io(&errors_path, error))?;
    // The link stays right when the file of our program is replaced.
    let mut command = Command::new(program.unwrap_or(Path::new("/proc/self/exe")));
    command
        .arg0("ebb")
        .arg(supervisor::ARGUMENT)
        .arg(&task.folder)
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(match config.lifetime {
            TaskLifetime::Detached => Stdio::null(),
            TaskLifetime::BoundToStarter { .. } => Stdio::piped(),
        })
        .stderr(Stdio::from(errors));
    // A script could read it there. Containers have one of their own, and the engine's command goes by ours.
    if config.containers.is_none() {
        command.env_clear();
    }
    tokio::process::Command::from(command).spawn().map(Some).map_err(PodsError::Spawn)
}

/// The task's lock; `None` if a supervisor has it. Those who only look hold it for moments too.
async fn hold(task: &TaskFolder) -> Result<Option<File>, PodsError> {
    let path = task.lock();
    let file = folder::lock_file(&path)?;
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

/// A lock on the tries of one unit: whoever starts or ends task of it holds it. `unit` is the folder of the unit,
/// which is made.
pub(super) async fn lock_unit(unit: &Path) -> Result<File, PodsError> {
    use std::os::unix::fs::MetadataExt as _;
    let path = unit.join("lock");
    loop {
        folder::make_private(unit)?;
        let file = match folder::lock_file(&path) {
            Ok(file) => file,
            // `prune` took the folder between the two.
            Err(PodsError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(TryLockError::Error(error)) => return Err(PodsError::io(&path, error)),
            }
        }
        // `prune` may have removed the file that we waited for.
        let ours = file.metadata().map_err(|error| PodsError::io(&path, error))?.ino();
        if std::fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
            return Ok(file);
        }
    }
}
