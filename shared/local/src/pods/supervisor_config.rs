//! The settings of a supervisor, which its start writes to a file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ContainerEngine;

/// The settings of a supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SupervisorConfig {
    /// The state folder of the relay.
    pub(super) state: PathBuf,
    /// `PATH` of scripts.
    pub(super) path: String,
    pub(super) extra_env: Vec<(String, String)>,
    /// Runs scripts as containers. `None` means that scripts are processes of this machine.
    #[serde(default)]
    pub(super) containers: Option<ContainerEngine>,
}
