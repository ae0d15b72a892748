//! The program `aws-e2e`, which tries what was built.

use std::process::Command;

use anyhow::ensure;

use super::place;
use crate::packages::{self, OF_DEPLOYMENT};
use crate::python::PythonTools;
use crate::run::{cargo, command, folder, run, works};

/// Only the network that is made here has it. The functions, which call public addresses alone, take it for one.
const ADDRESS: &str = "11.0.0.1";
/// A network and processes of its own.
const APART: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"];

/// Refuses users and machines that can make no network.
///
/// # Errors
/// When there can be none; says what to do.
pub(super) fn possible() -> anyhow::Result<()> {
    let apart = works(command("unshare").args(APART).arg("true"));
    ensure!(apart, "functions run in a network of their own, which cannot be made here: run this as root, on Linux");
    Ok(())
}

/// The program, in a network and among processes of its own, which end with it; its order is to be added.
///
/// # Errors
/// When something cannot be had or does not compile.
pub(super) fn program() -> anyhow::Result<Command> {
    packages::install(&OF_DEPLOYMENT)?;
    run(cargo().args(["build", "--quiet", "-p", "ebb", "--bin", "ebb"]))?;
    run(cargo().args(["build", "--quiet", "-p", "ebb-tests", "--features", "verify", "--bin", "aws-e2e"]))?;
    let mut program = command("unshare");
    program.args(APART).args(["sh", "-c"]);
    let link = format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec \"$@\"");
    program.args([&link, "sh"]).arg(folder().join("debug/aws-e2e"));
    program.arg("--tools").arg(PythonTools::Sam.programs()).args(["--address", ADDRESS]);
    program.arg("--log").arg(place().join("ministack.log"));
    Ok(program)
}
