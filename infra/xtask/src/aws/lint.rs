//! What tools say of the template.

use crate::python::PythonTools;
use crate::run::run;

/// Has the template checked by SAM, which makes plain CloudFormation of it, by cfn-lint, and by checkov, which looks for
/// what is less safe than it could be. What is not done of that stands in `infra/aws/checkov.yaml` with the reason.
///
/// # Errors
/// When one finds something.
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
