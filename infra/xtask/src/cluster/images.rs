//! Images without a registry: archives with one layer, which `infra/cluster/images.sh` writes from folders, imported
//! into containerd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::build::BinarySet;
use super::folder;
use super::netns::ClusterNetns;
use super::servers::CONTAINERD;
use crate::run::{command, output, remove, run};

pub(crate) const PAUSE: &str = "ebb.test/pause:1";
/// A shell and the tools of busybox.
pub(crate) const BUSYBOX: &str = "ebb.test/busybox:1";
pub(crate) const DEBIAN: &str = "ebb.test/debian:1";

/// Returns the archive of Debian's image. debootstrap creates it once.
pub(crate) fn debian() -> anyhow::Result<PathBuf> {
    folder::made(script("debian").arg(folder::cache()?).arg(DEBIAN))
}

pub(crate) fn import_all(netns: &ClusterNetns) -> anyhow::Result<()> {
    let present = ctr(netns, &["images", "list", "--quiet"])?;
    let missing = |name: &str| !present.lines().any(|line| line == name);
    let folder = folder::state().join("images");
    if missing(PAUSE) {
        let root = folder.join("pause");
        fs::create_dir_all(&root)?;
        fs::copy(BinarySet::Pause.built()?.join("pause"), root.join("pause"))?;
        import(netns, PAUSE, &root, &["/pause".to_owned()])?;
    }
    if missing(BUSYBOX) {
        let root = folder.join("busybox");
        run(script("busybox").arg(&root))?;
        import(netns, BUSYBOX, &root, &[])?;
    }
    if missing(DEBIAN) {
        import(netns, DEBIAN, &debian()?, &[])?;
    }
    remove(&folder)
}

/// Imports an image. `from` is an archive, or a folder that becomes the only layer of `name`.
pub(crate) fn import(netns: &ClusterNetns, name: &str, from: &Path, entrypoint: &[String]) -> anyhow::Result<()> {
    let from = fs::canonicalize(from).with_context(|| format!("cannot find {}", from.display()))?;
    if !from.is_dir() {
        return ctr(netns, &["images", "import", &from.display().to_string()]).map(drop);
    }
    let made = folder::state().join(format!("import-{}.tar", std::process::id()));
    let imported = archive(name, &from, entrypoint, &made)
        .and_then(|()| ctr(netns, &["images", "import", &made.display().to_string()]));
    remove(&made)?;
    imported.map(drop)
}

fn ctr(netns: &ClusterNetns, arguments: &[&str]) -> anyhow::Result<String> {
    output(netns.command("ctr").args(["--address", CONTAINERD, "--namespace", "k8s.io"]).args(arguments))
}

/// Writes an archive, in the format of `docker save`, of an image with one layer: the folder `root`.
pub(crate) fn archive(name: &str, root: &Path, entrypoint: &[String], to: &Path) -> anyhow::Result<()> {
    run(script("archive").arg(name).arg(root).arg(serde_json::to_string(entrypoint)?).arg(to))
}

/// Writes images in place of those that Signadot's plugins name, as the files of a registry, to a folder that is empty
/// or missing.
///
/// Nothing is pulled from outside of this machine. A test serves the files, and containerd pulls from it.
pub(crate) fn registry(to: &Path) -> anyhow::Result<()> {
    let terraform = BinarySet::Opentofu.built()?.join("tofu");
    run(script("registry").arg(std::path::absolute(to)?).arg(debian()?).arg(terraform))
}

/// Returns a command for an action of `infra/cluster/images.sh`. Callers add its arguments.
pub(crate) fn script(action: &str) -> Command {
    let mut script = command(folder::sources().join("images.sh"));
    script.arg(action);
    script
}
