//! `cargo xtask verify`: what `cargo test` leaves out because it takes long or needs more than Rust.

use std::ffi::OsString;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};

use crate::run::command;
use crate::summary::TestSummary;
use parts::PARTS;

mod parts;

/// The options of the command.
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {
    /// The parts to run, by name; without a name all of them
    #[arg(value_name = "PART", conflicts_with = "since")]
    parts: Vec<String>,
    /// Runs the parts that the changes since a commit can affect
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// Prints what each part covers, needs and watches, and runs nothing
    #[arg(long)]
    list: bool,
    /// Runs the long form of each part
    #[arg(long)]
    full: bool,
    /// Options of the tool of a single part: `cargo xtask verify simulation -- --seed 7 --trace`
    #[arg(last = true)]
    options: Vec<OsString>,
}

/// A part of the verification.
struct VerifyPart {
    name: &'static str,
    covers: &'static str,
    /// The tools that it installs or builds first, and those that have to exist.
    needs: &'static str,
    /// The files that it depends on, by the beginnings of their paths.
    paths: &'static [&'static str],
    run: fn(&mut PartRun) -> anyhow::Result<()>,
}

/// How a part runs, and what it has counted.
struct PartRun<'a> {
    depth: VerifyDepth,
    options: &'a [OsString],
    summary: TestSummary,
}

/// How much a part does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerifyDepth {
    /// At most ten minutes on two cores, once its tools are built.
    Short,
    /// As much as is useful.
    Full,
}

impl PartRun<'_> {
    /// Returns the first value for a short run and the second one for a full run.
    fn pick<T>(&self, short: T, full: T) -> T {
        match self.depth {
            VerifyDepth::Short => short,
            VerifyDepth::Full => full,
        }
    }
}

/// Runs the chosen parts one after the other. Each ends with the line `PART passed|failed, N tests, M s`.
///
/// # Errors
/// Returns the names of the parts that failed. An unknown part or commit is refused before anything runs.
pub(crate) fn all(arguments: &VerifyArgs) -> anyhow::Result<()> {
    let chosen = chosen(arguments)?;
    if arguments.list {
        return list(&chosen);
    }
    ensure!(
        arguments.options.is_empty() || chosen.len() == 1,
        "options after `--` go to the tool of one part; {} parts are chosen",
        chosen.len()
    );
    let mut failed = Vec::new();
    let mut lines = Vec::new();
    for part in chosen {
        println!("== {}: {}", part.name, part.covers);
        let depth = if arguments.full { VerifyDepth::Full } else { VerifyDepth::Short };
        let mut run = PartRun { depth, options: &arguments.options, summary: TestSummary::default() };
        let began = Instant::now();
        let ended = (part.run)(&mut run);
        let verdict = if ended.is_ok() { "passed" } else { "failed" };
        if let Err(error) = ended {
            eprintln!("error: {}: {error:#}", part.name);
            failed.push(part.name);
        }
        let tests = run.summary.passed + run.summary.failed;
        let line = format!("{} {verdict}, {tests} tests, {:.0} s", part.name, began.elapsed().as_secs_f64());
        println!("{line}");
        lines.push(line);
    }
    if lines.len() > 1 {
        println!("\n{}", lines.join("\n"));
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn chosen(arguments: &VerifyArgs) -> anyhow::Result<Vec<&'static VerifyPart>> {
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
            format!("there is no part `{name}`; the parts are {}", names.join(", "))
        })
    };
    arguments.parts.iter().map(find).collect()
}

impl VerifyPart {
    fn watches(&self, path: &str) -> bool {
        self.paths.iter().any(|beginning| path.starts_with(beginning))
    }
}

/// Returns the paths of the files that differ from those of a commit, new files included.
fn changed(commit: &str) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for arguments in [&["diff", "--name-only", commit, "--"][..], &["ls-files", "--others", "--exclude-standard"]] {
        let output = command("git").args(arguments).output().context("cannot start git")?;
        if !output.status.success() {
            bail!("git: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        paths.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
    }
    Ok(paths)
}

fn list(parts: &[&VerifyPart]) -> anyhow::Result<()> {
    let mut text = String::new();
    for part in parts {
        text += &format!("{}\n  covers   {}\n  needs    {}\n", part.name, part.covers, part.needs);
        text += &format!("  watches  {}\n", part.paths.join(" "));
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
            for path in part.paths {
                assert!(root().join(path).exists(), "{} watches {path}, which does not exist", part.name);
            }
        }
    }

    #[test]
    fn a_change_of_the_engine_needs_the_model() {
        let model = PARTS.iter().find(|part| part.name == "model").unwrap();
        assert!(model.watches("shared/engine/src/dag.rs"));
        assert!(!model.watches("README.md"));
    }
}
