//! The check of the console in Chromium, `infra/console`.

use std::path::PathBuf;
use std::process::Command;

use crate::run::{command, root};
use crate::tools;

/// Packages of the browser. The pictures of the book have these fonts.
const PACKAGES: &[&str] = &["chromium", "fonts-liberation"];

/// Installs the browser and its driver. Returns the program, which `node` runs.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    tools::packages(PACKAGES)?;
    let folder = root().join("target/console");
    tools::node(&root().join("infra/console"), &folder)?;
    Ok(folder.join("console.mjs"))
}

/// Returns the command of the check. Callers add its server.
pub(crate) fn check() -> anyhow::Result<Command> {
    let program = program()?;
    let mut check = command("node");
    check.arg(&program).arg("--repository").arg(root());
    check.arg("--output").arg(program.with_file_name("output"));
    Ok(check)
}
