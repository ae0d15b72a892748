//! `cargo test` with counts of its tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::run::{cargo, line};
use crate::summary::TestSummary;

/// Runs `cargo test` with environment variables, prints its output, and adds its counts to `summary`.
///
/// All tests run, even if some fail. No test at all is an error.
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
    let stdout = child.stdout.take().context("standard output is piped")?;
    for printed in BufReader::new(stdout).split(b'\n') {
        let printed = printed?;
        let printed = String::from_utf8_lossy(&printed);
        summary.read(&printed);
        // A closed standard output does not stop the tests.
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
