//! A part of `cargo xtask verify` and its run, which counts tests.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::run::{cargo, line, run};

/// A part by `parts.yaml`, which describes the fields.
#[derive(Deserialize)]
pub(super) struct VerifyPart {
    pub(super) name: String,
    pub(super) covers: String,
    pub(super) needs: String,
    pub(super) paths: String,
}

impl VerifyPart {
    pub(super) fn watches(&self, path: &str) -> bool {
        self.paths.split(' ').any(|beginning| path.starts_with(beginning))
    }
}

/// The options of a part and the number of its tests.
pub(super) struct PartRun<'a> {
    /// True for the long form, which takes as long as is useful. The short form takes at most ten minutes on two cores
    /// if its tools are built.
    pub(super) is_full: bool,
    pub(super) options: &'a [OsString],
    pub(super) tests: u64,
}

impl PartRun<'_> {
    /// Runs `cargo test` with the words of `arguments` and with environment variables, and prints its output.
    ///
    /// All tests run, even if some fail. It is an error if no test runs.
    pub(super) fn test(&mut self, arguments: &str, variables: &[(&str, String)]) -> anyhow::Result<()> {
        let mut command = cargo();
        command.args(["test", "--no-fail-fast"]).args(arguments.split(' ')).stdout(Stdio::piped());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let shown = line(&command);
        let before = self.tests;
        let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        for printed in BufReader::new(stdout).split(b'\n') {
            let printed = printed?;
            let printed = String::from_utf8_lossy(&printed);
            self.tests += count(&printed);
            // A closed standard output does not stop the tests.
            let _ = writeln!(std::io::stdout(), "{printed}");
        }
        let status = child.wait()?;
        ensure!(status.success(), "`{shown}` failed: {status}");
        ensure!(self.tests > before, "`{shown}` ran no test");
        Ok(())
    }

    pub(super) fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        run(command)?;
        self.tests += 1;
        Ok(())
    }

    /// Runs a command with the options of the command line, or with `default`.
    pub(super) fn run_with(&mut self, command: &mut Command, default: &[&str]) -> anyhow::Result<()> {
        if self.options.is_empty() {
            command.args(default)
        } else {
            command.args(self.options)
        };
        self.run(command)
    }

    /// Returns the value for the depth of this run.
    pub(super) fn pick<T>(&self, short: T, full: T) -> T {
        if self.is_full { full } else { short }
    }
}

/// Returns the tests of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`; 0 for other lines.
fn count(line: &str) -> u64 {
    let counts = line.trim_start().strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
    let counts =
        counts.into_iter().flat_map(|(_, counts)| counts.split("; ")).filter_map(|count| count.split_once(' '));
    let counts = counts.filter(|(_, what)| ["passed", "failed"].contains(what));
    counts.filter_map(|(number, _)| number.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn tests_are_counted_by_their_results() {
        for (line, expected) in [
            ("running 3 tests", 0),
            ("test of::result: ok", 0),
            ("test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s", 3),
            ("test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s", 3),
        ] {
            assert_eq!(count(line), expected, "{line}");
        }
    }
}
