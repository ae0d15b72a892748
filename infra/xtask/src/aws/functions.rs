//! What was built, each function by itself under Lambda's runtime interface emulator.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::build;
use super::deploy;
use super::python::Tools;
use crate::run::{folder, root, run};
use crate::{dynamodb_local, packages};

/// Where SAM keeps the emulator, beside its programs.
const EMULATOR: &str = "site-packages/samcli/local/rapid/aws-lambda-rie-x86_64";

/// How often each is started.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How often each is started to be measured
    #[arg(long, default_value_t = 20)]
    rounds: usize,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { rounds: 20 }
    }
}

/// Has the program `deployed` give events to what was built, in front of DynamoDB Local, and measure them
/// beside a function that does nothing.
///
/// # Errors
/// When something cannot be had or does not compile, when a step fails, and when a function takes too long to start.
pub(crate) fn all(arguments: &Arguments) -> anyhow::Result<()> {
    packages::install(&packages::OF_TESTS)?;
    dynamodb_local::fetch()?;
    let mut inside = deploy::inside()?;
    println!("== the functions under the runtime interface emulator, in front of DynamoDB Local");
    inside.arg("functions").arg("--rie").arg(emulator()?).arg("--built").arg(build::built());
    inside
        .arg("--empty")
        .arg(folder().join("aws/empty/bootstrap"))
        .arg("--examples")
        .arg(root().join("tests/examples"));
    inside.arg("--rounds").arg(arguments.rounds.to_string());
    run(&mut inside)
}

/// A copy of SAM's emulator that may be run.
fn emulator() -> anyhow::Result<PathBuf> {
    let libraries = Tools::Sam.programs().join("../lib");
    let python = fs::read_dir(&libraries).with_context(|| libraries.display().to_string())?;
    let found = python.filter_map(Result::ok).map(|it| it.path().join(EMULATOR)).find(|it| it.is_file());
    let found = found.context("SAM has no runtime interface emulator")?;
    let copy = folder().join("aws/rie");
    fs::copy(&found, &copy).with_context(|| found.display().to_string())?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}
