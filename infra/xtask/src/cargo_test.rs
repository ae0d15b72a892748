//! `cargo test`, with its counts.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::run::{cargo, line};
use crate::summary::TestSummary;

/// Runs `cargo test` with variables, shows its output, and adds its counts to `summary`. Tests that fail do not keep
/// the others from running.
///
/// # Errors
/// Returns an error if something does not compile, a test fails, or no test ran.
pub(crate) fn cargo_test(
    arguments: &[&str],
    variables: &[(&str, String)],
    summary: &mut TestSummary,
) -> anyhow::Result<()> {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast"]).args(arguments).stdout(Stdio::piped());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let shown = line(&command);
    let before = summary.passed;
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = child.stdout.take().context("a pipe was asked for")?;
    for printed in BufReader::new(stdout).split(b'\n') {
        let printed = printed?;
        let printed = String::from_utf8_lossy(&printed);
        summary.read(&printed);
        // The reader may be gone; the tests go on, and the exit code tells.
        let _ = writeln!(std::io::stdout(), "{printed}");
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    if summary.passed == before {
        bail!("`{shown}` ran no test");
    }
    Ok(())
}
