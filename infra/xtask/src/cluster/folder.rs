//! Folders of the cluster: its sources in the repository, its programs and images in the user's cache.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context as _;

use crate::run::{command, output, root};

/// Returns the folder of the sources of programs and settings.
pub(crate) fn sources() -> PathBuf {
    root().join("infra/cluster")
}

/// Returns the folder of programs and images. It is kept after `cargo clean` and shared by clones.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(home.context("no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path")?.join("ebb/cluster"))
}

/// Returns the folder of the programs that Go builds from a folder of `infra/cluster`, such as `helm`. Builds them unless
/// the cache has them from the same sources and Go version, and shows its progress.
pub(crate) fn programs(sources_of: &str) -> anyhow::Result<PathBuf> {
    let mut script = command(sources().join("programs.sh"));
    script.arg(cache()?).arg(sources_of).stderr(Stdio::inherit());
    Ok(output(&mut script)?.trim_end().into())
}
