//! Images without a registry, which `infra/cluster/images.sh` writes from folders.

use std::path::Path;
use std::process::Command;

use super::folder;
use crate::run::{command, run};

/// Writes an archive, in the format of `docker save`, of an image with one layer: the folder `root`.
pub(crate) fn archive(name: &str, root: &Path, entrypoint: &[String], to: &Path) -> anyhow::Result<()> {
    run(script("archive").arg(name).arg(root).arg(serde_json::to_string(entrypoint)?).arg(to))
}

/// Returns a command for an action of `infra/cluster/images.sh`. Callers add its arguments.
pub(crate) fn script(action: &str) -> Command {
    let mut script = command(folder::sources().join("images.sh"));
    script.arg(action);
    script
}
