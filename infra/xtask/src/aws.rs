//! The deployment: lints of its template, the build of its functions, and tests with emulators.

use std::ffi::OsStr;

use anyhow::ensure;

use crate::console;
use crate::python::PythonTools;
use crate::run::{cargo, command, folder, root, run, works};
use build::LambdaArchitecture;

pub(crate) mod build;

const EMULATORS: &str = "infra/aws/emulators.sh";

/// Lints the template, builds the functions, deploys them to an emulator, and starts each with Lambda's emulator.
///
/// Adds one test per step to `tests`.
pub(crate) fn all(tests: &mut u64) -> anyhow::Result<()> {
    // Fails before the build, which takes minutes, if tests cannot run here.
    let works = works(command(EMULATORS).arg("possible"));
    ensure!(works, "cannot create a network namespace: run this as root, on Linux");
    let architecture = LambdaArchitecture::of_this_machine()?;
    let deployed = || emulated("stack", console::program()?.as_os_str());
    let measured = || emulated("functions", architecture.name().as_ref());
    let steps: [&dyn Fn() -> anyhow::Result<()>; 4] = [&lint, &|| build::all(architecture), &deployed, &measured];
    for step in steps {
        step()?;
        *tests += 1;
    }
    Ok(())
}

/// Checks the template with SAM, cfn-lint and checkov. `infra/aws/checkov.yaml` lists the suppressed rules with
/// reasons.
fn lint() -> anyhow::Result<()> {
    PythonTools::Sam.install()?;
    PythonTools::Checkov.install()?;
    println!("== sam validate, with lint");
    run(PythonTools::Sam.program("sam").args(["validate", "--config-file", "infra/aws/samconfig.toml"]))?;
    println!("== cfn-lint");
    run(PythonTools::Sam.program("cfn-lint").arg("template.yaml"))?;
    println!("== checkov");
    let settings = ["--config-file", "infra/aws/checkov.yaml", "--file", "template.yaml"];
    run(PythonTools::Checkov.program("checkov").args(settings))
}

/// Runs a check of the built functions with the emulators.
fn emulated(check: &str, of: &OsStr) -> anyhow::Result<()> {
    run(cargo().args(["build", "--quiet", "-p", "ebb", "--bin", "ebb"]))?;
    run(cargo().args(["build", "--quiet", "-p", "ebb-tests", "--features", "verify", "--bin", "aws-e2e"]))?;
    let mut script = PythonTools::Sam.program(root().join(EMULATORS));
    run(script.arg(check).arg(of).env("CARGO_TARGET_DIR", folder()))
}
