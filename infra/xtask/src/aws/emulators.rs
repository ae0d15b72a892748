//! Tests of the built functions with emulators: MiniStack for AWS, and Lambda's runtime interface emulator.
//!
//! The program `aws-e2e` runs them in namespaces. When it ends, all its processes end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::build::{self, LambdaArchitecture, output_folder};
use crate::console;
use crate::python::{self, PythonTools};
use crate::run::{cargo, command, folder, root, run};
use crate::tools;

/// The address of the emulators, on their own network. The functions call only public addresses, and this is one.
const ADDRESS: &str = "11.0.0.1";
/// Options of `unshare` for a network and a process namespace.
pub(super) const NAMESPACES: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"];
/// The folder of the runtime interface emulators in SAM's installation.
const RUNTIMES: &str = "site-packages/samcli/local/rapid";

/// Returns a command that runs `aws-e2e`. Callers add its arguments.
fn program() -> anyhow::Result<Command> {
    tools::packages(&["curl", "iproute2"])?;
    run(cargo().args(["build", "--quiet", "-p", "ebb", "--bin", "ebb"]))?;
    run(cargo().args(["build", "--quiet", "-p", "ebb-tests", "--features", "verify", "--bin", "aws-e2e"]))?;
    let mut program = command("unshare");
    python::without_settings(&mut program);
    program.args(NAMESPACES).args(["sh", "-c"]);
    let link = format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec \"$@\"");
    program.args([&link, "sh"]).arg(folder().join("debug/aws-e2e"));
    program.arg("--tools").arg(PythonTools::Sam.programs()).args(["--address", ADDRESS]);
    program.arg("--log").arg(output_folder().join("ministack.log"));
    Ok(program)
}

pub(super) fn test_deployment() -> anyhow::Result<()> {
    let template = staged()?;
    let mut program = program()?;
    println!("== sam deploy, to MiniStack");
    program.arg("stack").arg("--template").arg(template);
    program.arg("--ebb").arg(folder().join("debug/ebb")).arg("--examples").arg(root().join("tests/examples"));
    program.arg("--console").arg(console::program()?);
    run(&mut program)
}

/// Measures the functions against an empty function.
///
/// Fails if a function takes too long to start.
pub(super) fn test_functions(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    let mut program = program()?;
    println!("== the functions under the runtime interface emulator");
    program.arg("functions").arg("--rie").arg(runtime(architecture)?).arg("--built").arg(build::built());
    run(program.arg("--empty").arg(build::empty()))
}

/// Writes the template without the resources that MiniStack does not support, and prints their names.
fn staged() -> anyhow::Result<PathBuf> {
    let built = build::built().join("template.yaml");
    let text = fs::read_to_string(&built).with_context(|| built.display().to_string())?;
    let mut template: Value = serde_saphyr::from_str(&text).context("SAM's template")?;
    let resources = template["Resources"].as_object_mut().context("SAM's template has resources")?;
    // These are alarms over several metrics.
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

fn runtime(architecture: LambdaArchitecture) -> anyhow::Result<PathBuf> {
    let libraries = PythonTools::Sam.programs().join("../lib");
    let python = fs::read_dir(&libraries).with_context(|| libraries.display().to_string())?;
    let name = format!("aws-lambda-rie-{}", architecture.name());
    let mut candidates = python.filter_map(Result::ok).map(|it| it.path().join(RUNTIMES).join(&name));
    let found = candidates.find(|it| it.is_file());
    let found = found.with_context(|| format!("SAM has no runtime interface emulator {name}"))?;
    let copy = output_folder().join("rie");
    fs::copy(&found, &copy).with_context(|| found.display().to_string())?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}
