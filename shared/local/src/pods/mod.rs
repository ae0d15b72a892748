//! Pod units as processes of this machine: a relay without a cluster.
//!
//! Folders are its only memory. Work lives in `<state>/pods/UNIT/ATTEMPT/`, and each script runs under a supervisor
//! process of its own, which outlives the program that started it and holds a lock on a file there for as long as it
//! lives. [`LocalRelay::open`] after a crash therefore finds everything again.
//!
//! Images, namespaces and pod templates are not looked at: scripts run with what this machine has, see [`isolation`]
//! for what is kept apart. With [`ContainerEngine`] they run as containers of their image, each with a supervisor all the
//! same; namespaces and pod templates are not looked at either. Linux only.
//!
//! A program that opens a relay calls [`supervise_if_asked`] first thing in `main`, before any thread exists.

mod container_engine;
mod container_task;
mod deliver;
mod folder;
pub mod isolation;
mod leftovers;
mod logs;
mod once;
mod process_entrypoint;
mod relay;
mod script;
pub mod secrets;
mod start;
mod supervisor;
mod task_folder;

use std::io;
use std::path::{Path, PathBuf};

pub use container_engine::ContainerEngine;
pub use once::{OneOffScript, run_once};
pub use relay::{LocalRelay, LocalRelayOptions};
pub use supervisor::supervise_if_asked;

/// Why the relay cannot do its work on this machine.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    /// A file or folder of the state cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file of the state holds something else than we write.
    #[error("{} is damaged: {message}", path.display())]
    Damaged { path: PathBuf, message: String },
    /// A secret or key with a name that cannot be a file's.
    #[error(
        "{0:?} is no name of a secret or key: use up to 253 letters, digits, `-`, `_` and `.`, not starting with `.`"
    )]
    SecretName(String),
    /// No engine of containers does what it is asked for.
    #[error("containers: {0}")]
    Containers(String),
    /// No supervisor process can be started.
    #[error("cannot start a supervisor: {0}")]
    Spawn(io::Error),
}

impl PodsError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}
