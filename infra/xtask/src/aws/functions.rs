//! Tests of each function with Lambda's runtime interface emulator.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::build::LambdaArchitecture;
use super::{aws_e2e, build, output_folder};
use crate::dynamodb_local;
use crate::python::PythonTools;
use crate::run::{root, run};

/// The folder of the emulators in SAM's installation.
const EMULATORS: &str = "site-packages/samcli/local/rapid";

/// The number of measured starts of each function.
const ROUNDS: &str = "20";

/// Invokes the functions with `aws-e2e`, on DynamoDB Local, and measures them against an empty function.
///
/// Fails if a function takes too long to start.
pub(crate) fn all(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    dynamodb_local::fetch()?;
    let mut program = aws_e2e::program()?;
    println!("== the functions under the runtime interface emulator, in front of DynamoDB Local");
    program.arg("functions").arg("--rie").arg(emulator(architecture)?).arg("--built").arg(build::built());
    program.arg("--empty").arg(build::empty()).arg("--examples").arg(root().join("tests/examples"));
    program.args(["--rounds", ROUNDS]);
    run(&mut program)
}

/// Copies SAM's emulator and makes it executable.
fn emulator(architecture: LambdaArchitecture) -> anyhow::Result<PathBuf> {
    let libraries = PythonTools::Sam.programs().join("../lib");
    let python = fs::read_dir(&libraries).with_context(|| libraries.display().to_string())?;
    let name = format!("aws-lambda-rie-{}", architecture.name());
    let mut candidates = python.filter_map(Result::ok).map(|it| it.path().join(EMULATORS).join(&name));
    let found = candidates.find(|it| it.is_file());
    let found = found.with_context(|| format!("SAM has no runtime interface emulator {name}"))?;
    let copy = output_folder().join("rie");
    fs::copy(&found, &copy).with_context(|| found.display().to_string())?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}
