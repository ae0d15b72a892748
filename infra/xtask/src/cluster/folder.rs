//! Folders of the cluster: its sources in the repository, its programs and images in the user's cache.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::ValueEnum;

use crate::run::{output, root};

/// Returns the folder of the sources of programs and settings.
pub(crate) fn sources() -> PathBuf {
    root().join("infra/cluster")
}

/// Returns the name of a server or of programs on the command line. Their files and folders have the same name.
pub(super) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Returns the folder of programs and images. It is kept after `cargo clean` and shared by clones.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(home.context("no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path")?.join("ebb/cluster"))
}

/// Runs a script that makes something unless the cache has it, and shows its progress. Returns the path that it prints.
pub(crate) fn made(script: &mut Command) -> anyhow::Result<PathBuf> {
    Ok(output(script.stderr(Stdio::inherit()))?.trim_end().into())
}
