//! `verify mutants`: changes of the code that a test must notice.

use std::ffi::OsString;

use anyhow::{Context as _, ensure};

use crate::run::{command, root};
use crate::tools;

/// Exit codes of cargo-mutants: all changes were noticed, or some tests did not end.
const CAUGHT: i32 = 0;
const TIMEOUT: i32 = 3;

/// Changes the engine and the store in one folder at a time, and runs the tests of the changed crate.
///
/// `.cargo/mutants.toml` selects the places. Results are in `target/mutants/mutants.out`. Returns the number of noticed
/// changes; fails if a change is not noticed.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<u64> {
    tools::install("cargo-mutants", &["mutants", "--version"], tools::CARGO_MUTANTS, &[])?;
    let folder = root().join("target/mutants");
    std::fs::create_dir_all(&folder)?;
    let status = command("cargo-mutants")
        .args(["mutants", "--package", "ebb-engine", "--package", "ebb-store", "--output"])
        .arg(&folder)
        .args(arguments)
        // Dependencies do not depend on the copied sources and are built once.
        .env("CARGO_TARGET_DIR", &folder)
        .status()
        .context("cannot start cargo-mutants")?;
    let (mut noticed, mut missed) = (0, 0);
    for kind in ["caught", "timeout", "unviable", "missed"] {
        let found = std::fs::read_to_string(folder.join(format!("mutants.out/{kind}.txt")))?;
        let count = found.lines().count();
        println!("== {kind}: {count}");
        match kind {
            "missed" => missed = count,
            "unviable" => {}
            _ => noticed += count as u64,
        }
    }
    // An endless test counts as noticed, but its exit code hides changes that are not noticed.
    ensure!(missed == 0, "no test notices {missed} changes: target/mutants/mutants.out/missed.txt");
    ensure!([Some(CAUGHT), Some(TIMEOUT)].contains(&status.code()), "cargo-mutants failed: {status}");
    Ok(noticed)
}
