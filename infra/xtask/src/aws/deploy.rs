//! What was built, deployed to an AWS of this machine.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::build;
use super::python::Tools;
use crate::packages::{self, OF_DEPLOYMENT};
use crate::run::{cargo, command, folder, root, run};

/// Only the network that is made here has it. The functions, which call public addresses alone, take it for one.
const ADDRESS: &str = "11.0.0.1";

/// Has the program `deployed` deploy what was built to MiniStack.
///
/// # Errors
/// When something cannot be had or does not compile, and when a step fails.
pub(crate) fn all() -> anyhow::Result<()> {
    let template = staged()?;
    let mut inside = inside()?;
    println!("== sam deploy, to MiniStack");
    inside.arg("stack").arg("--template").arg(template);
    inside.arg("--ebb").arg(folder().join("debug/ebb")).arg("--examples").arg(root().join("tests/examples"));
    run(&mut inside)
}

/// The program `deployed`, in a network and among programs of its own, which end with it; its order is to be added.
///
/// # Errors
/// When something cannot be had or does not compile.
pub(super) fn inside() -> anyhow::Result<Command> {
    packages::install(&OF_DEPLOYMENT)?;
    // Beside a test of their packages `ebb` and `deployed` are built, with what all tests use.
    let tests = ["--test", "threats", "--test", "commands"];
    run(cargo().args(["test", "--quiet", "--workspace", "--no-run"]).args(tests))?;
    let mut inside = command("unshare");
    inside.args(["--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c"]);
    let link = format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec \"$@\"");
    inside.args([&link, "sh"]).arg(folder().join("debug/deployed"));
    inside.arg("--tools").arg(Tools::Sam.programs()).args(["--address", ADDRESS]);
    inside.arg("--log").arg(folder().join("aws/ministack.log"));
    Ok(inside)
}

/// The template as SAM has built it, without what the emulator does not know; says what that is.
fn staged() -> anyhow::Result<PathBuf> {
    let built = build::built().join("template.yaml");
    let text = fs::read_to_string(&built).with_context(|| built.display().to_string())?;
    let mut template: Value = serde_saphyr::from_str(&text).context("SAM's template")?;
    let resources = template["Resources"].as_object_mut().context("SAM's template has resources")?;
    // Arithmetic over metrics.
    let is_unknown = |resource: &Value| {
        resource["Type"] == "AWS::CloudWatch::Alarm" && resource["Properties"]["Metrics"].is_array()
    };
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
    fs::write(&staged, serde_json::to_vec_pretty(&template)?)
        .with_context(|| staged.display().to_string())?;
    Ok(staged)
}
