//! Where a cluster keeps what: its state in the repository, what was built for it in the user's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::run::root;

/// State, logs and settings of the cluster of this clone; `cluster down` removes it.
pub(crate) fn state() -> PathBuf {
    root().join("target/cluster")
}

/// What may authenticate as administrator of the cluster.
pub(crate) fn kubeconfig() -> PathBuf {
    state().join("kubeconfig")
}

/// The folder of what is built from files of the repository.
pub(crate) fn sources() -> PathBuf {
    root().join("infra/cluster")
}

/// What outlives `cargo clean` and clones: programs and images, each under the digest of what it was made from.
///
/// # Errors
/// When neither `XDG_CACHE_HOME` nor `HOME` says where.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(home.context("neither XDG_CACHE_HOME nor HOME says where built programs are kept")?.join("ebb/cluster"))
}

/// Refuses folders that a cluster's servers cannot see, because they have these for themselves.
///
/// # Errors
/// When the repository or the cache is in one of them.
pub(crate) fn visible() -> anyhow::Result<()> {
    for path in [root(), cache()?] {
        if let Some(own) = ["/run", "/var/lib", "/var/log"].iter().find(|own| path.starts_with(own)) {
            bail!("{} is in {own}, which a cluster has for itself: use another place", path.display());
        }
    }
    Ok(())
}

/// Gives `cache()/name`, made by `make` unless it is there: in a folder or file beside it that takes the name when it is
/// complete. Who else wants to make something waits.
///
/// # Errors
/// When `make` fails or the cache cannot be written.
pub(crate) fn kept(name: &str, make: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<PathBuf> {
    let cache = cache()?;
    let kept = cache.join(name);
    if kept.exists() {
        return Ok(kept);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let _lock = lock(&cache.join("lock"), "something else is being built for a cluster")?;
    // Who was waited for may have made it.
    if kept.exists() {
        return Ok(kept);
    }
    let made = cache.join(format!("{name}.part"));
    remove(&made)?;
    let began = Instant::now();
    make(&made)?;
    fs::rename(&made, &kept).with_context(|| format!("cannot make {}", kept.display()))?;
    eprintln!("  {name}: {:.0} s", began.elapsed().as_secs_f64());
    Ok(kept)
}

/// Holds `path` until the answer is dropped; waits for who has it, and says `why` then.
///
/// # Errors
/// When it cannot be made or locked.
pub(crate) fn lock(path: &Path, why: &str) -> anyhow::Result<File> {
    let context = || format!("cannot lock {}", path.display());
    let file = File::options().create(true).append(true).open(path).with_context(context)?;
    if file.try_lock().is_err() {
        eprintln!("{why}; waiting for it");
        file.lock().with_context(context)?;
    }
    Ok(file)
}

/// Removes a file or a folder with all that is in it, if it is there.
///
/// # Errors
/// When it is there and stays.
pub(crate) fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// Writes a file and the folders above it.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until `done`, looking every tenth of a second; `during` looks whether it is still worth it.
///
/// # Errors
/// Those of `during`, and when `seconds` have passed; says `what` was waited for.
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
