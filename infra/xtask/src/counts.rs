//! `cargo xtask counts`.

use std::ffi::OsString;

use crate::run::{cargo, run};

/// Builds and runs the program that counts, with `arguments` of its own. The ordinary build: its packages are compiled
/// for the tests anyway, and what is counted does not depend on how fast it is.
///
/// # Errors
/// When it does not compile, a run does not end, or a figure is worse than promised and it was asked to check.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
    run(cargo().args(["run", "--quiet", "--package", "ebb-tests", "--bin", "counts", "--"]).args(arguments))
}
