//! `cargo xtask crowd`.

use std::ffi::OsString;

use crate::run::{cargo, run};

/// Builds `ebb` and the program that asks it for many targets at once, and runs that with `arguments` of its own.
///
/// # Errors
/// When it does not compile, a target is not made or not taken away, something is made twice, or the server's memory
/// grows.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
    run(cargo().args(["build", "--quiet", "--package", "ebb", "--bin", "ebb"]))?;
    run(cargo().args(["run", "--quiet", "--package", "ebb-tests", "--bin", "crowd", "--"]).args(arguments))
}
