//! `cargo xtask corpus`.

use std::path::Path;

use crate::run::{cargo, run};

/// Loads and compiles every document of `folder`, and says what each one is.
///
/// # Errors
/// When a document is refused.
pub(crate) fn all(folder: &Path) -> anyhow::Result<()> {
    run(cargo().args(["run", "--quiet", "--package", "ebb-tests", "--bin", "corpus", "--"]).arg(folder))
}
