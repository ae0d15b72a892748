//! `cargo xtask world`.

use std::ffi::OsString;

use crate::run::{cargo, run};

/// Builds the simulated world, and runs it with `arguments` of its own.
///
/// # Errors
/// When it does not compile, something is wrong with a world, or a kind of mishap was never reached.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "ebb-tests", "--bin", "world", "--"]);
    run(command.args(arguments))
}
