//! Changes that a test has to notice.

use std::ffi::OsString;

use anyhow::{Context as _, ensure};

use crate::run::{command, root};
use crate::tools;

/// How cargo-mutants says that every change was noticed, and that some kept their tests from ending.
const CAUGHT: i32 = 0;
const TIMEOUT: i32 = 3;

/// Changes the engine and the store at one place at a time and runs the tests of the changed crate. Which places, and
/// which are left out for which reason, stands in `.cargo/mutants.toml`. It works on a copy of the sources, built in
/// `target/mutants`; what it found is kept in `target/mutants/mutants.out`. Returns how many changes were noticed.
///
/// # Errors
/// When no test notices a change, or the tests fail without one.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<u64> {
    tools::cargo_mutants()?;
    let place = root().join("target/mutants");
    std::fs::create_dir_all(&place)?;
    let status = command("cargo-mutants")
        .args(["mutants", "--package", "ebb-engine", "--package", "ebb-store", "--output"])
        .arg(&place)
        .args(arguments)
        // The packages of others are built once: a copy elsewhere does not change them.
        .env("CARGO_TARGET_DIR", &place)
        .status()
        .context("cannot start cargo-mutants")?;
    let (mut noticed, mut missed) = (0, 0);
    for kind in ["caught", "timeout", "unviable", "missed"] {
        let found = std::fs::read_to_string(place.join(format!("mutants.out/{kind}.txt")))?;
        let count = found.lines().count();
        println!("== {kind}: {count}");
        match kind {
            "missed" => missed = count,
            "unviable" => {}
            _ => noticed += count as u64,
        }
    }
    // A change after which a test never ends is noticed too, but its exit code hides those that are not.
    ensure!(missed == 0, "{missed} changes are noticed by no test: target/mutants/mutants.out/missed.txt");
    ensure!([Some(CAUGHT), Some(TIMEOUT)].contains(&status.code()), "cargo-mutants failed: {status}");
    Ok(noticed)
}
