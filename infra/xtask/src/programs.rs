//! The chores that are programs of their own, with arguments of their own: `tests/src/bin`.

use std::ffi::OsString;

use crate::run::{cargo, run};

/// A program of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Measures chains of scripts in a cluster.
    Chains,
    /// Loads and compiles documents.
    Corpus,
    /// Counts what runs cost.
    Counts,
    /// Asks one server for many targets at once.
    Crowd,
    /// Explores the functions, built with switches for their rules.
    Model,
    /// Lives of random targets in simulated worlds.
    World,
}

/// Builds a program and runs it with `arguments`. The ordinary build: what is found and counted does not depend on how
/// fast it is.
///
/// # Errors
/// When it does not compile, or finds something wrong.
pub(crate) fn all(program: Program, arguments: &[OsString]) -> anyhow::Result<()> {
    let (name, features): (&str, &[&str]) = match program {
        Program::Chains => ("chains", &[]),
        Program::Corpus => ("corpus", &[]),
        Program::Counts => ("counts", &[]),
        Program::Crowd => ("crowd", &[]),
        Program::Model => ("model", &["--features", "switches"]),
        Program::World => ("world", &[]),
    };
    if matches!(program, Program::Chains | Program::Crowd) {
        // They start `ebb`.
        run(cargo().args(["build", "--quiet", "--package", "ebb", "--bin", "ebb"]))?;
    }
    let built = ["run", "--quiet", "--package", "ebb-tests", "--bin", name];
    run(cargo().args(built).args(features).arg("--").args(arguments))
}
