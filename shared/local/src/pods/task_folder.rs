//! The folder of one task: its files, and the state that follows from them.
//!
//! Invariant: `started` is on disk before the script can run, and `result.json` or `tombstone` before the supervisor
//! ends. A supervisor runs as long as its lock is held. Its pid is not proof that it runs.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use ebb_protocol::{Callback, TaskId};
use serde::{Deserialize, Serialize};

use super::PodsError;
use crate::files::{self, StateFileError};

#[derive(Clone, Debug)]
pub(crate) struct TaskFolder {
    pub(super) folder: PathBuf,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CancelRequest {
    /// Milliseconds between `SIGTERM` and `SIGKILL`.
    pub(super) grace_ms: u64,
}

#[derive(Debug)]
pub(super) enum FolderState {
    Absent,
    /// The task does not run and never will.
    Tombstoned,
    Ended(Box<Callback>),
    Running,
    /// The task was requested and has certainly not run.
    Waiting,
    /// The task may have run, and its end is not known.
    Lost,
}

/// Defines a method for the path of each file.
macro_rules! files {
    ($($(#[$doc:meta])* $name:ident: $file:literal,)*) => {
        impl TaskFolder {
            $($(#[$doc])* pub(super) fn $name(&self) -> PathBuf { self.folder.join($file) })*
        }
    };
}

files! {
    request: "request.json",
    supervisor_config: "surroundings.json",
    started: "started",
    result: "result.json",
    tombstone: "tombstone",
    cancel: "cancel.json",
    /// Exists once the control plane has acknowledged the result.
    acknowledged: "taken",
    lock: "lock",
    root: "root",
}

impl TaskFolder {
    pub(super) fn of(pods: &Path, name: &TaskId) -> Self {
        Self { folder: pods.join(&name.unit).join(name.attempt.to_string()) }
    }

    /// Returns the grace period of a cancellation in milliseconds, once the task is cancelled.
    pub(super) fn cancellation(&self) -> Option<u64> {
        files::read_json::<CancelRequest>(&self.cancel()).ok().flatten().map(|request| request.grace_ms)
    }

    /// Returns the environment variable that marks the processes of this task.
    pub(super) fn mark(&self) -> (&'static str, String) {
        ("EBB_SUPERVISED_IN", self.folder.to_string_lossy().into_owned())
    }

    /// Returns true if a supervisor holds the lock of the task, or a program that is about to start one.
    pub(super) fn is_locked(&self) -> Result<bool, PodsError> {
        let path = self.lock();
        let failed = |error| PodsError::io(&path, error);
        let Some(file) = files::existing(File::open(&path)).map_err(failed)? else { return Ok(false) };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    pub(super) fn state(&self) -> Result<FolderState, PodsError> {
        // The lock comes first: once it is free, the files of the task no longer change.
        let held = self.is_locked()?;
        if let Some(result) = files::read_json(&self.result())? {
            return Ok(FolderState::Ended(Box::new(result)));
        }
        if self.tombstone().exists() {
            return Ok(FolderState::Tombstoned);
        }
        if held {
            return Ok(FolderState::Running);
        }
        if self.started().exists() {
            return Ok(FolderState::Lost);
        }
        Ok(if self.request().exists() { FolderState::Waiting } else { FolderState::Absent })
    }

    /// Writes a tombstone: the task never starts, or was killed.
    pub(super) fn write_tombstone(&self) -> Result<(), StateFileError> {
        files::private_folder(&self.folder)?;
        files::write_whole(&self.tombstone(), b"")
    }

    /// Removes the files that are not needed once the result was acknowledged. The log, the result and the request
    /// stay. A repeated request needs the stored one.
    pub(super) fn cleanup(&self) {
        // A failure only costs space until `prune` removes the folder.
        let _ = fs::remove_dir_all(self.root());
        let _ = fs::remove_file(self.supervisor_config());
    }
}
