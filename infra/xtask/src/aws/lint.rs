//! Lints of the CloudFormation template.

use crate::python::PythonTools;
use crate::run::run;

/// Checks the template with SAM, cfn-lint and checkov. `infra/aws/checkov.yaml` lists the suppressed rules with
/// reasons.
pub(crate) fn all() -> anyhow::Result<()> {
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
