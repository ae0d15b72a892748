//! `cargo xtask speed`: measures builds, tests and their size.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

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
type SpeedRow = (&'static str, String, &'static str);

/// Clones the last commit, runs the commands of the README and `.ci/run` in the clones, and prints a table.
///
/// `chores` is the number of chores of `cargo xtask`. Fails if a command fails. A missed goal appears in the table
/// only.
pub(crate) fn all(arguments: &SpeedArgs, chores: usize) -> anyhow::Result<()> {
    let folder = std::path::absolute(&arguments.folder)?;
    ensure!(!folder.exists(), "{} exists already; choose a new folder", folder.display());
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let measured = rows(arguments, chores, &folder);
    remove(&folder)?;
    println!("\n| | measured | goal |\n|---|---|---|");
    for (what, measured, goal) in measured? {
        println!("| {what} | {measured} | {goal} |");
    }
    Ok(())
}

fn rows(arguments: &SpeedArgs, chores: usize, folder: &Path) -> anyhow::Result<Vec<SpeedRow>> {
    let newcomer = cloned(folder, "newcomer")?;
    let readme = fs::read_to_string(newcomer.join("README.md"))?;
    let [first, second] = commands(&readme)?;
    let mut rows = vec![
        ("README's first command, nothing built", time(&newcomer, first)?, "4 min 30 s"),
        ("README's second command after it", time(&newcomer, second)?, "10 min"),
    ];
    let unit = "cargo test -p ebb-flow --lib";
    time(&newcomer, unit)?;
    change(&newcomer)?;
    rows.push(("one line changed in `flow`, until its unit tests have run", time(&newcomer, unit)?, "45 s"));
    rows.push(("executables linked by the tests", executables(&newcomer)?.to_string(), "25"));
    rows.push(("packages that the `ebb` program compiles", packages(&newcomer)?.to_string(), "390"));
    rows.push(("chores of `cargo xtask`", chores.to_string(), "8"));
    if !arguments.no_ci {
        let clone = cloned(folder, "ci")?;
        rows.push(("`.ci/run`, nothing built", time(&clone, ".ci/run")?, "20 min"));
        change(&clone)?;
        rows.push(("`.ci/run`, one line changed in `flow`", time(&clone, ".ci/run")?, "6 min"));
    }
    Ok(rows)
}

/// Clones the last commit of this repository. Returns the folder.
fn cloned(above: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let folder = above.join(name);
    run(command("git").args(["clone", "--quiet"]).arg(root()).arg(&folder))?;
    Ok(folder)
}

/// Returns a command in a clone, which has its own target folder.
fn inside(clone: &Path, program: &str) -> Command {
    let mut command = command(program);
    command.current_dir(clone).env_remove("CARGO_TARGET_DIR");
    command
}

fn time(clone: &Path, shown: &str) -> anyhow::Result<String> {
    println!("== {shown}");
    let began = Instant::now();
    let status = inside(clone, "sh").args(["-c", shown]).status()?;
    ensure!(status.success(), "`{shown}` failed: {status}");
    let seconds = began.elapsed().as_secs();
    let took = format!("{} min {:02} s", seconds / 60, seconds % 60);
    println!("== {took}");
    Ok(took)
}

/// Counts the programs and test programs that `cargo test` links.
fn executables(clone: &Path) -> anyhow::Result<usize> {
    let messages = output(inside(clone, "cargo").args(["test", "--no-run", "--quiet", "--message-format=json"]))?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    let executables = messages.filter_map(|message: serde_json::Value| {
        let ours = message["package_id"].as_str()?.starts_with("path+");
        ours.then(|| message["executable"].as_str().map(str::to_owned)).flatten()
    });
    Ok(executables.collect::<BTreeSet<_>>().len())
}

/// Counts the packages of `ebb`, including build dependencies.
fn packages(clone: &Path) -> anyhow::Result<usize> {
    let tree = ["tree", "-p", "ebb", "-e", "no-dev", "--prefix", "none", "--format", "{p}"];
    let tree = output(inside(clone, "cargo").args(tree))?;
    Ok(tree.lines().map(|line| line.trim_end_matches(" (*)")).collect::<BTreeSet<_>>().len())
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
