//! The chores that are programs of their own, with arguments of their own: `tests/src/bin`.

use std::ffi::OsString;

use crate::run::{cargo, command, folder, run};

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
    /// Measures invocations in large runs and large tables.
    Large,
    /// Fan-ins by many callers at once, on DynamoDB Local.
    Load,
    /// Explores the functions, built with switches for their rules.
    Model,
    /// Computes what Ebb costs.
    Prices,
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
        Program::Large => ("large", &[]),
        Program::Load => ("load", &[]),
        Program::Model => ("model", &["--features", "ebb-tests/switches"]),
        Program::Prices => ("prices", &[]),
        Program::World => ("world", &[]),
    };
    // Beside a test of their package, and of that of `ebb`, which some start. Of the workspace: so the packages of others
    // are those of all tests, and are not built once more with other features.
    let tests = ["--test", "threats", "--test", "commands"];
    run(cargo().args(["test", "--quiet", "--workspace", "--no-run"]).args(tests).args(features))?;
    run(command(folder().join("debug").join(name)).args(arguments))
}
