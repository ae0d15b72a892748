//! Folders of the cluster: its state in the repository, its programs and images in the user's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use crate::run::{output, root};

/// Returns the folder of state, logs and settings. `cluster down` removes it.
pub(crate) fn state() -> PathBuf {
    root().join("target/cluster")
}

/// Returns the kubeconfig of the cluster's administrator.
pub(crate) fn kubeconfig() -> PathBuf {
    state().join("kubeconfig")
}

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

/// Checks that the servers of the cluster can read the repository and the cache, because some folders are private to
/// the servers.
pub(crate) fn visible() -> anyhow::Result<()> {
    for path in [root(), cache()?] {
        if let Some(own) = ["/run", "/var/lib", "/var/log"].iter().find(|own| path.starts_with(own)) {
            bail!("{} is in {own}, which servers of the cluster cannot see: use another folder", path.display());
        }
    }
    Ok(())
}

/// Runs a script that makes something unless the cache has it, and shows its progress. Returns the path that it prints.
pub(crate) fn made(script: &mut Command) -> anyhow::Result<PathBuf> {
    Ok(output(script.stderr(Stdio::inherit()))?.trim_end().into())
}

/// Locks `path` until the file is dropped. Prints `why` if the lock is held by another process.
pub(crate) fn lock(path: &Path, why: &str) -> anyhow::Result<File> {
    let context = || format!("cannot lock {}", path.display());
    let file = File::options().create(true).append(true).open(path).with_context(context)?;
    if file.try_lock().is_err() {
        eprintln!("{why}; waiting for it");
        file.lock().with_context(context)?;
    }
    Ok(file)
}

pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until `done` returns true, and polls every 0.1 s.
///
/// Fails after `seconds`, or when `during` fails, which is called at each poll.
pub(crate) fn until(
    what: &str,
    seconds: u64,
    mut done: impl FnMut() -> bool,
    mut during: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !done() {
        during()?;
        if Instant::now() > end {
            bail!("waited {seconds} s for {what}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
