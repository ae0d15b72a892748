//! Pod units as processes or containers of this machine: a relay without a cluster. Linux only.
//!
//! All state is in folders. A task has the folder `<state>/pods/UNIT/ATTEMPT/` and a supervisor process. The supervisor
//! continues when the program that started it ends, and holds a lock in that folder until it ends itself.
//! [`LocalRelay::open`] therefore finds all tasks again after a crash.
//!
//! A script runs as a process, with the programs of this machine and the isolation of [`isolation`]. With
//! [`ContainerEngine`] it runs as a container of its image. In both cases an entrypoint runs it with [`ebb_script`].
//! Namespaces and pod templates have no effect.
//!
//! A program that opens a relay calls [`supervise_if_asked`] at the start of `main`, before it starts a thread.

mod container_engine;
mod container_task;
pub mod isolation;
mod leftovers;
mod logs;
mod process_entrypoint;
mod relay;
mod script;
pub mod secrets;
mod start;
mod supervisor;
mod task_folder;

use std::io;
use std::path::Path;

use crate::files::StateFileError;

pub use container_engine::ContainerEngine;
pub(crate) use logs::LogWriter;
pub use relay::{LocalRelay, LocalRelayOptions};
pub(crate) use script::{SupervisorConfig, SupervisorOutcome, TaskFailure};
pub use supervisor::supervise_if_asked;
pub(crate) use task_folder::TaskFolder;

/// An error of the relay on this machine.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    #[error(transparent)]
    File(#[from] StateFileError),
    #[error("{0} processes of a script survive SIGKILL")]
    Unkillable(usize),
    #[error(
        "{0:?} is not a valid name of a secret or key: use up to 253 letters, digits, `-`, `_` and `.`, not starting with `.`"
    )]
    SecretName(String),
    #[error("containers: {0}")]
    Containers(String),
    #[error("cannot start a supervisor: {0}")]
    Spawn(io::Error),
}

impl PodsError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::File(StateFileError::io(path, source))
    }
}
