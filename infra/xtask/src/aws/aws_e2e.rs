//! The program `aws-e2e`, which tests the built functions.

use std::process::Command;

use anyhow::ensure;

use super::output_folder;
use crate::packages;
use crate::python::PythonTools;
use crate::run::{cargo, command, folder, run, works};

/// The address of the emulators, on a network of their own. The functions call public addresses only, and this is one.
const ADDRESS: &str = "11.0.0.1";
/// Options of `unshare` for a network and a process namespace.
const NAMESPACES: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"];

/// Checks that this user can create a network namespace.
pub(super) fn check_namespaces() -> anyhow::Result<()> {
    let works = works(command("unshare").args(NAMESPACES).arg("true"));
    ensure!(works, "cannot create a network namespace: run this as root, on Linux");
    Ok(())
}

/// Returns a command that runs `aws-e2e` in namespaces. When it ends, all its processes end. Callers add its arguments.
pub(super) fn program() -> anyhow::Result<Command> {
    packages::install(&["curl", "iproute2"])?;
    run(cargo().args(["build", "--quiet", "-p", "ebb", "--bin", "ebb"]))?;
    run(cargo().args(["build", "--quiet", "-p", "ebb-tests", "--features", "verify", "--bin", "aws-e2e"]))?;
    let mut program = command("unshare");
    program.args(NAMESPACES).args(["sh", "-c"]);
    let link = format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec \"$@\"");
    program.args([&link, "sh"]).arg(folder().join("debug/aws-e2e"));
    program.arg("--tools").arg(PythonTools::Sam.programs()).args(["--address", ADDRESS]);
    program.arg("--log").arg(output_folder().join("ministack.log"));
    Ok(program)
}
