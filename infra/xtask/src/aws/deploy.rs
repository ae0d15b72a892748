//! The deployment of the built functions to MiniStack, an emulator of AWS.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use super::{aws_e2e, build};
use crate::run::{folder, root, run};

/// Deploys the functions to MiniStack and tests them with `aws-e2e`.
pub(crate) fn all() -> anyhow::Result<()> {
    let template = staged()?;
    let mut program = aws_e2e::program()?;
    println!("== sam deploy, to MiniStack");
    program.arg("stack").arg("--template").arg(template);
    program.arg("--ebb").arg(folder().join("debug/ebb")).arg("--examples").arg(root().join("tests/examples"));
    run(&mut program)
}

/// Writes the template without the resources that MiniStack does not support, and prints their names.
fn staged() -> anyhow::Result<PathBuf> {
    let built = build::built().join("template.yaml");
    let text = fs::read_to_string(&built).with_context(|| built.display().to_string())?;
    let mut template: Value = serde_saphyr::from_str(&text).context("SAM's template")?;
    let resources = template["Resources"].as_object_mut().context("SAM's template has resources")?;
    // Alarms over several metrics.
    let is_unsupported =
        |resource: &Value| resource["Type"] == "AWS::CloudWatch::Alarm" && resource["Properties"]["Metrics"].is_array();
    let unsupported: Vec<String> =
        resources.iter().filter(|(_, it)| is_unsupported(it)).map(|(name, _)| name.clone()).collect();
    println!("not supported by the emulator: {}", unsupported.join(", "));
    resources.retain(|name, _| !unsupported.contains(name));
    let dashboard = &mut template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"];
    let mut body = dashboard.as_str().context("the dashboard is a string with placeholders")?.to_owned();
    for name in unsupported {
        body = body.replace(&format!(",\"${{{name}.Arn}}\""), "");
    }
    *dashboard = body.into();
    let staged = build::built().join("staged.json");
    fs::write(&staged, serde_json::to_vec_pretty(&template)?).with_context(|| staged.display().to_string())?;
    Ok(staged)
}
