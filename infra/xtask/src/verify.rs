//! `cargo xtask verify`: runs tests that take long or need more than Rust.

use std::ffi::OsString;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::run::{command, output};
use part::{PartRun, VerifyPart};
use parts::{CODES, PARTS};

mod part;
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
        let code = CODES.iter().find(|(name, _)| *name == part.name);
        let ended = code.context("it has no code").and_then(|(_, code)| code(&mut run));
        let result = if ended.is_ok() { "passed" } else { "failed" };
        if let Err(error) = ended {
            eprintln!("error: {}: {error:#}", part.name);
            failed.push(part.name.as_str());
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
        PARTS.iter().find(|part| part.name == *name).with_context(|| {
            let names: Vec<&str> = PARTS.iter().map(|part| part.name.as_str()).collect();
            format!("unknown part `{name}`; parts: {}", names.join(", "))
        })
    };
    arguments.parts.iter().map(find).collect()
}

/// Returns the paths of files that differ from a commit, including new files.
fn changed(commit: &str) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for arguments in [&["diff", "--name-only", commit, "--"][..], &["ls-files", "--others", "--exclude-standard"]] {
        paths.extend(output(command("git").args(arguments))?.lines().map(str::to_owned));
    }
    Ok(paths)
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
    fn every_watched_path_exists_and_each_part_has_code() {
        assert!(PARTS.iter().map(|part| part.name.as_str()).eq(CODES.iter().map(|(name, _)| *name)));
        for part in PARTS.iter() {
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
}
