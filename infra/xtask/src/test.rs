//! `cargo xtask test`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::run::{cargo, line};
use crate::summary::Summary;
use crate::{dynamodb_local, packages};

/// Installs what is missing, runs all tests and ends with one line that sums them up.
///
/// # Errors
/// When something cannot be installed, does not compile, or a test fails.
pub(crate) fn all() -> anyhow::Result<()> {
    packages::install()?;
    dynamodb_local::fetch()?;
    let mut command = cargo();
    // A failure in one crate says nothing of the others: the whole picture in one go.
    command.args(["test", "--workspace", "--no-fail-fast"]).stdout(Stdio::piped());
    let shown = line(&command);
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = child.stdout.take().context("a pipe was asked for")?;
    let mut summary = Summary::default();
    for printed in BufReader::new(stdout).split(b'\n') {
        let printed = printed?;
        let printed = String::from_utf8_lossy(&printed);
        summary.read(&printed);
        // Whoever reads may be gone; the tests go on, and the exit code tells.
        let _ = writeln!(std::io::stdout(), "{printed}");
    }
    let status = child.wait()?;
    if !status.success() {
        let _ = writeln!(std::io::stdout(), "{summary}");
        bail!("`{shown}` failed: {status}");
    }
    if summary.passed == 0 {
        bail!("`{shown}` ran no test");
    }
    println!("{summary}");
    Ok(())
}
