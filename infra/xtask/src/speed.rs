//! `cargo xtask speed`: measures builds, tests and their size.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::CommandFactory as _;

use crate::run::{command, output, remove, root, run};

#[derive(clap::Args)]
pub(crate) struct SpeedArgs {
    /// Folder for the clones; it must not exist and is removed at the end
    #[arg(long = "in", value_name = "FOLDER")]
    folder: PathBuf,
    /// Leave out the rows of `.ci/run`
    #[arg(long)]
    no_ci: bool,
}

/// A row of the table: description, measurement and goal.
struct SpeedRow(&'static str, String, &'static str);

/// Clones the last commit, runs the commands of the README and `.ci/run` in the clones, and prints a table.
///
/// Fails if a command fails. A missed goal appears in the table only.
pub(crate) fn all(arguments: &SpeedArgs) -> anyhow::Result<()> {
    let folder = std::path::absolute(&arguments.folder)?;
    ensure!(!folder.exists(), "{} exists already; choose a new folder", folder.display());
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let measured = rows(arguments, &folder);
    remove(&folder)?;
    println!("\n| | measured | goal |\n|---|---|---|");
    for SpeedRow(what, measured, goal) in measured? {
        println!("| {what} | {measured} | {goal} |");
    }
    Ok(())
}

fn rows(arguments: &SpeedArgs, folder: &Path) -> anyhow::Result<Vec<SpeedRow>> {
    let newcomer = CloneFolder::new(folder, "newcomer")?;
    let readme = fs::read_to_string(newcomer.folder.join("README.md"))?;
    let [first, second] = commands(&readme)?;
    let mut rows = vec![
        SpeedRow("README's first command, nothing built", newcomer.time(first)?, "4 min 30 s"),
        SpeedRow("README's second command after it", newcomer.time(second)?, "10 min"),
    ];
    let unit = "cargo test -p ebb-flow --lib";
    newcomer.time(unit)?;
    change(&newcomer.folder)?;
    rows.push(SpeedRow("one line changed in `flow`, until its unit tests have run", newcomer.time(unit)?, "45 s"));
    rows.push(SpeedRow("executables linked by the tests", newcomer.executables()?.to_string(), "25"));
    rows.push(SpeedRow("packages that the `ebb` program compiles", newcomer.packages()?.to_string(), "390"));
    let chores = crate::XtaskCli::command().get_subcommands().count();
    rows.push(SpeedRow("chores of `cargo xtask`", chores.to_string(), "8"));
    if !arguments.no_ci {
        let clone = CloneFolder::new(folder, "ci")?;
        rows.push(SpeedRow("`.ci/run`, nothing built", clone.time(".ci/run")?, "20 min"));
        change(&clone.folder)?;
        rows.push(SpeedRow("`.ci/run`, one line changed in `flow`", clone.time(".ci/run")?, "6 min"));
    }
    Ok(rows)
}

/// A clone with its own target folder.
struct CloneFolder {
    folder: PathBuf,
}

impl CloneFolder {
    /// Clones the last commit of this repository.
    fn new(above: &Path, name: &str) -> anyhow::Result<Self> {
        let folder = above.join(name);
        run(command("git").args(["clone", "--quiet"]).arg(root()).arg(&folder))?;
        Ok(Self { folder })
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = command(program.as_ref());
        command.current_dir(&self.folder).env_remove("CARGO_TARGET_DIR");
        command
    }

    /// Runs a command line and returns its duration.
    fn time(&self, shown: &str) -> anyhow::Result<String> {
        println!("== {shown}");
        let began = Instant::now();
        let status = self.command("sh").args(["-c", shown]).status()?;
        ensure!(status.success(), "`{shown}` failed: {status}");
        let took = minutes(began.elapsed());
        println!("== {took}");
        Ok(took)
    }

    /// Counts the programs and test programs that `cargo test` links.
    fn executables(&self) -> anyhow::Result<usize> {
        let messages = output(self.command("cargo").args(["test", "--no-run", "--quiet", "--message-format=json"]))?;
        let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
        let executables = messages.filter_map(|message: serde_json::Value| {
            let ours = message["package_id"].as_str()?.starts_with("path+");
            ours.then(|| message["executable"].as_str().map(str::to_owned)).flatten()
        });
        Ok(executables.collect::<BTreeSet<_>>().len())
    }

    /// Counts the packages of `ebb`, including build dependencies.
    fn packages(&self) -> anyhow::Result<usize> {
        let tree = ["tree", "-p", "ebb", "-e", "no-dev", "--prefix", "none", "--format", "{p}"];
        let tree = output(self.command("cargo").args(tree))?;
        Ok(tree.lines().map(|line| line.trim_end_matches(" (*)")).collect::<BTreeSet<_>>().len())
    }
}

/// Returns the first two commands of the README, each a code block.
fn commands(readme: &str) -> anyhow::Result<[&str; 2]> {
    let mut blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let mut next = || blocks.next().map(|(block, _)| block.trim()).context("the README has two commands");
    Ok([next()?, next()?])
}

/// Adds a new constant to `flow`.
fn change(clone: &Path) -> anyhow::Result<()> {
    let file = clone.join("shared/flow/src/lib.rs");
    let text = fs::read_to_string(&file)?;
    let number = text.matches("CHANGE_").count();
    fs::write(&file, format!("{text}/// A change.\npub const CHANGE_{number}: usize = {number};\n"))?;
    Ok(())
}

fn minutes(took: Duration) -> String {
    format!("{} min {:02} s", took.as_secs() / 60, took.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_two_commands() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let [first, second] = commands(&readme).unwrap();
        assert!(first.starts_with("cargo run"), "{first}");
        assert_eq!(second, "cargo test");
    }
}
