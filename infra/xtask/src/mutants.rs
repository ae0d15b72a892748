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
/// `.cargo/mutants.toml` selects the places. Results are in `target/mutants/mutants.out`. Fails if a change is not noticed.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
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
    // An endless test counts as noticed, but its exit code hides changes that are not noticed.
    let missed = std::fs::read_to_string(folder.join("mutants.out/missed.txt"))?;
    ensure!(missed.is_empty(), "no test notices {} changes:\n{missed}", missed.lines().count());
    ensure!([Some(CAUGHT), Some(TIMEOUT)].contains(&status.code()), "cargo-mutants failed: {status}");
    Ok(())
}
