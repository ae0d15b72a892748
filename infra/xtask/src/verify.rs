//! `cargo xtask verify`: runs tests that take long or need more than Rust.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::run::{cargo, command, line, output, run};
use parts::PARTS;

mod parts;
mod rules;

#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// Names of the parts to run; by default all
    #[arg(value_name = "PART", conflicts_with = "since")]
    parts: Vec<String>,
    /// Run the parts that changes since a commit can affect
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// Print what each part covers, needs and watches; run nothing
    #[arg(long)]
    list: bool,
    /// Run the long form of each part
    #[arg(long)]
    full: bool,
    /// Options for the tool of a single part: `cargo xtask verify simulation -- --seed 7 --trace`
    #[arg(last = true)]
    options: Vec<OsString>,
}

struct VerifyPart {
    name: &'static str,
    covers: &'static str,
    /// Tools that must exist, and tools that the part installs.
    needs: &'static str,
    /// Prefixes of the paths that the part depends on, separated by spaces.
    paths: &'static str,
    run: fn(&mut PartRun) -> anyhow::Result<()>,
}

/// The options of a part and the number of its tests.
struct PartRun<'a> {
    /// True for the long form, which takes as long as is useful. The short form takes at most ten minutes on two cores
    /// if its tools are built.
    is_full: bool,
    options: &'a [OsString],
    /// The number of tests so far.
    tests: u64,
}

impl PartRun<'_> {
    /// Runs `cargo test` with the words of `arguments` and with environment variables, and prints its output.
    ///
    /// All tests run, even if some fail. It is an error if no test runs.
    fn test(&mut self, arguments: &str, variables: &[(&str, String)]) -> anyhow::Result<()> {
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

    /// Runs a command that counts as one test.
    fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        run(command)?;
        self.tests += 1;
        Ok(())
    }

    /// Returns the value for the depth of this run.
    fn pick<T>(&self, short: T, full: T) -> T {
        if self.is_full { full } else { short }
    }
}

/// Runs the selected parts in order. Each ends with the line `PART passed|failed, N tests, M s`.
///
/// Fails with the names of the failed parts. Rejects unknown parts and commits before anything runs.
pub(crate) fn all(arguments: &VerifyArgs) -> anyhow::Result<()> {
    let selected = selected(arguments)?;
    if arguments.list {
        return list(&selected);
    }
    ensure!(
        arguments.options.is_empty() || selected.len() == 1,
        "options after `--` need a single part; {} parts are selected",
        selected.len()
    );
    let mut failed = Vec::new();
    let mut lines = Vec::new();
    for part in selected {
        println!("== {}: {}", part.name, part.covers);
        let mut run = PartRun { is_full: arguments.full, options: &arguments.options, tests: 0 };
        let began = Instant::now();
        let ended = (part.run)(&mut run);
        let result = if ended.is_ok() { "passed" } else { "failed" };
        if let Err(error) = ended {
            eprintln!("error: {}: {error:#}", part.name);
            failed.push(part.name);
        }
        let line = format!("{} {result}, {} tests, {:.0} s", part.name, run.tests, began.elapsed().as_secs_f64());
        println!("{line}");
        lines.push(line);
    }
    if lines.len() > 1 {
        println!("\n{}", lines.join("\n"));
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn selected(arguments: &VerifyArgs) -> anyhow::Result<Vec<&'static VerifyPart>> {
    if let Some(commit) = &arguments.since {
        let changed = changed(commit)?;
        return Ok(PARTS.iter().filter(|part| changed.iter().any(|path| part.watches(path))).collect());
    }
    if arguments.parts.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let find = |name: &String| {
        PARTS.iter().find(|part| part.name == name).with_context(|| {
            let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
            format!("unknown part `{name}`; parts: {}", names.join(", "))
        })
    };
    arguments.parts.iter().map(find).collect()
}

impl VerifyPart {
    fn watches(&self, path: &str) -> bool {
        self.paths.split(' ').any(|beginning| path.starts_with(beginning))
    }
}

/// Returns the paths of files that differ from a commit, including new files.
fn changed(commit: &str) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for arguments in [&["diff", "--name-only", commit, "--"][..], &["ls-files", "--others", "--exclude-standard"]] {
        paths.extend(output(command("git").args(arguments))?.lines().map(str::to_owned));
    }
    Ok(paths)
}

/// Returns the tests of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`; 0 for other lines.
fn count(line: &str) -> u64 {
    let counts = line.trim_start().strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
    let counts =
        counts.into_iter().flat_map(|(_, counts)| counts.split("; ")).filter_map(|count| count.split_once(' '));
    let counts = counts.filter(|(_, what)| ["passed", "failed"].contains(what));
    counts.filter_map(|(number, _)| number.parse::<u64>().ok()).sum()
}

fn list(parts: &[&VerifyPart]) -> anyhow::Result<()> {
    let mut text = String::new();
    for part in parts {
        text += &format!("{}\n  covers   {}\n  needs    {}\n", part.name, part.covers, part.needs);
        text += &format!("  watches  {}\n", part.paths);
    }
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    #[test]
    fn every_watched_path_exists() {
        for part in PARTS {
            assert!(!part.paths.is_empty(), "{}", part.name);
            for path in part.paths.split(' ') {
                assert!(
                    !path.is_empty() && root().join(path).exists(),
                    "{} watches {path}, which does not exist",
                    part.name
                );
            }
        }
    }

    #[test]
    fn a_change_of_the_engine_needs_the_model() {
        let model = PARTS.iter().find(|part| part.name == "model").unwrap();
        assert!(model.watches("shared/engine/src/dag.rs"));
        assert!(!model.watches("README.md"));
    }

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
