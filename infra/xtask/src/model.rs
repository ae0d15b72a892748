//! `cargo xtask model`.

use std::ffi::OsString;

use crate::run::{cargo, run};

/// Builds the functions with switches for their rules, and runs the program that explores them, with `arguments` of
/// its own.
///
/// # Errors
/// When it does not compile, a promise is broken, or the absence of a rule is not noticed.
pub(crate) fn all(arguments: &[OsString]) -> anyhow::Result<()> {
    let built =
        ["run", "--quiet", "--package", "ebb-tests", "--features", "switches", "--bin", "model", "--"];
    run(cargo().args(built).args(arguments))
}
