//! What was built, each function by itself under Lambda's runtime interface emulator.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::build::LambdaArchitecture;
use super::{aws_e2e, build, place};
use crate::python::PythonTools;
use crate::run::{root, run};
use crate::{dynamodb_local, packages};

/// Where SAM keeps the emulators, beside its programs.
const EMULATORS: &str = "site-packages/samcli/local/rapid";

/// How often each is started to be measured.
const ROUNDS: &str = "20";

/// Has the program `aws-e2e` give events to what was built, in front of DynamoDB Local, and measure them
/// beside a function that does nothing.
///
/// # Errors
/// When something cannot be had or does not compile, when a step fails, and when a function takes too long to start.
pub(crate) fn all(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    packages::install(&packages::OF_DYNAMODB_LOCAL)?;
    dynamodb_local::fetch()?;
    let mut program = aws_e2e::program()?;
    println!("== the functions under the runtime interface emulator, in front of DynamoDB Local");
    program.arg("functions").arg("--rie").arg(emulator(architecture)?).arg("--built").arg(build::built());
    program.arg("--empty").arg(build::empty()).arg("--examples").arg(root().join("tests/examples"));
    program.args(["--rounds", ROUNDS]);
    run(&mut program)
}

/// A copy of SAM's emulator that may be run.
fn emulator(architecture: LambdaArchitecture) -> anyhow::Result<PathBuf> {
    let libraries = PythonTools::Sam.programs().join("../lib");
    let python = fs::read_dir(&libraries).with_context(|| libraries.display().to_string())?;
    let name = format!("aws-lambda-rie-{}", architecture.name());
    let mut places = python.filter_map(Result::ok).map(|it| it.path().join(EMULATORS).join(&name));
    let found = places.find(|it| it.is_file());
    let found = found.with_context(|| format!("SAM has no runtime interface emulator {name}"))?;
    let copy = place().join("rie");
    fs::copy(&found, &copy).with_context(|| found.display().to_string())?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}
