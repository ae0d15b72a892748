//! What was built, deployed to an AWS of this machine.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use super::{aws_e2e, build};
use crate::run::{folder, root, run};

/// Has the program `aws-e2e` deploy what was built to MiniStack.
///
/// # Errors
/// When something cannot be had or does not compile, and when a step fails.
pub(crate) fn all() -> anyhow::Result<()> {
    let template = staged()?;
    let mut program = aws_e2e::program()?;
    println!("== sam deploy, to MiniStack");
    program.arg("stack").arg("--template").arg(template);
    program.arg("--ebb").arg(folder().join("debug/ebb")).arg("--examples").arg(root().join("tests/examples"));
    run(&mut program)
}

/// The template as SAM has built it, without what the emulator does not know; says what that is.
fn staged() -> anyhow::Result<PathBuf> {
    let built = build::built().join("template.yaml");
    let text = fs::read_to_string(&built).with_context(|| built.display().to_string())?;
    let mut template: Value = serde_saphyr::from_str(&text).context("SAM's template")?;
    let resources = template["Resources"].as_object_mut().context("SAM's template has resources")?;
    // Arithmetic over metrics.
    let is_unknown =
        |resource: &Value| resource["Type"] == "AWS::CloudWatch::Alarm" && resource["Properties"]["Metrics"].is_array();
    let unknown: Vec<String> =
        resources.iter().filter(|(_, it)| is_unknown(it)).map(|(name, _)| name.clone()).collect();
    println!("the emulator does not know: {}", unknown.join(", "));
    resources.retain(|name, _| !unknown.contains(name));
    let dashboard = &mut template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"];
    let mut body = dashboard.as_str().context("the dashboard is a text with places")?.to_owned();
    for name in unknown {
        body = body.replace(&format!(",\"${{{name}.Arn}}\""), "");
    }
    *dashboard = body.into();
    let staged = build::built().join("staged.json");
    fs::write(&staged, serde_json::to_vec_pretty(&template)?).with_context(|| staged.display().to_string())?;
    Ok(staged)
}
