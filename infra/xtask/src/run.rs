//! Starting other programs at the root of the repository.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// Tries of what needs the network.
const ATTEMPTS: u32 = 5;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The folder of what is built.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The cargo that runs this chore.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program, at the root of the repository.
pub(crate) fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(root());
    // A chore of cargo sees these of the outer cargo; the inner one finds its own, or rebuilds more than it has to.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        command.env_remove(name);
    }
    command
}

/// Runs a program to its end; what it prints is shown as it comes.
///
/// # Errors
/// When it cannot be started or does not exit with 0.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = line(command);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs a program that needs the network until it has done its work, up to five times: mirrors, and the locks of those
/// who install from them, have bad moments.
///
/// # Errors
/// When the last try fails.
pub(crate) fn retried(make: impl Fn() -> Command) -> anyhow::Result<()> {
    for tried in 1..ATTEMPTS {
        match run(&mut make()) {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{error:#}; trying again ({tried} of {ATTEMPTS})"),
        }
        std::thread::sleep(Duration::from_secs(u64::from(tried) * 5));
    }
    let mut last = make();
    eprintln!("last try: {}", line(&last));
    run(&mut last)
}

/// Returns true if a program can be started and exits with 0; what it prints is not shown.
pub(crate) fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let words = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}
