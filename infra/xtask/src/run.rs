//! Commands that run at the root of the repository.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// The maximum number of attempts of a command that needs the network.
const ATTEMPTS: u32 = 5;

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Returns the target folder of cargo.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Returns the cargo that runs this chore.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns a command at the root of the repository.
pub(crate) fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(root());
    // Variables of the outer cargo would make the inner one rebuild more than necessary.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        command.env_remove(name);
    }
    command
}

/// Returns the platform that rustc runs on.
pub(crate) fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = output(command(rustc).arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` prints no host")
}

/// Runs a command to its end. Its output is not captured. Fails if the exit code is not 0.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = line(command);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs a command to its end and returns its standard output. Fails with its standard error if the exit code is not 0.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let line = line(command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(output.status.success(), "`{line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{line}` is not UTF-8"))
}

/// Runs a command that needs the network, up to five times, with growing pauses.
pub(crate) fn retry(command: &mut Command) -> anyhow::Result<()> {
    for attempt in 1..ATTEMPTS {
        match run(command) {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{error:#}; attempt {attempt} of {ATTEMPTS}"),
        }
        std::thread::sleep(Duration::from_secs(u64::from(attempt) * 5));
    }
    eprintln!("last attempt: {}", line(command));
    run(command)
}

/// Returns true if a command starts and exits with 0. Its output is dropped.
pub(crate) fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let words = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

pub(crate) fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}
