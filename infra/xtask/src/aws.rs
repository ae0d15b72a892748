//! The deployment: lints of its template, the build of its functions, and tests with emulators.

use anyhow::ensure;

use crate::python::PythonTools;
use crate::run::{command, run, works};
use build::LambdaArchitecture;

pub(crate) mod build;
mod emulators;

/// Lints the template, builds the functions, deploys them to an emulator, and starts each with Lambda's emulator.
///
/// Adds one test per step to `tests`.
pub(crate) fn all(tests: &mut u64) -> anyhow::Result<()> {
    // Fails before the build, which takes minutes, if tests cannot run here.
    let works = works(command("unshare").args(emulators::NAMESPACES).arg("true"));
    ensure!(works, "cannot create a network namespace: run this as root, on Linux");
    let architecture = LambdaArchitecture::of_this_machine()?;
    let steps: [&dyn Fn() -> anyhow::Result<()>; 4] =
        [&lint, &|| build::all(architecture), &emulators::test_deployment, &|| emulators::test_functions(architecture)];
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
