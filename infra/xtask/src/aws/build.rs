//! The build of the Lambda functions with SAM.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::python::PythonTools;
use crate::run::{command, folder, root, run};

/// The functions, by the names of their resources in the template.
pub(crate) const FUNCTIONS: [&str; 4] = ["Receive", "Complete", "Sweep", "Api"];
/// The largest upload that Lambda accepts, in bytes.
const MAX_ZIP: u64 = 50 << 20;

#[derive(Clone, Copy, clap::Args)]
pub(crate) struct LambdaArchitecture {
    /// Build for arm64, not for x86_64; needs Rust's target aarch64-unknown-linux-gnu
    #[arg(long)]
    arm64: bool,
}

impl LambdaArchitecture {
    /// Returns the architecture of this machine, because the emulators run programs of the machine.
    pub(crate) fn of_this_machine() -> anyhow::Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self { arm64: false }),
            "aarch64" => Ok(Self { arm64: true }),
            other => bail!("Lambda runs x86_64 and arm64; this machine is {other}"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        if self.arm64 { "arm64" } else { "x86_64" }
    }
}

/// Builds all functions with SAM and prints the size of each.
///
/// Prints the sizes of the programs and of their uploads, in bytes, and compares them with an empty function. Fails if
/// an upload is too large for Lambda.
pub(crate) fn all(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    PythonTools::Sam.install()?;
    println!("== sam build, for {}", architecture.name());
    let mut build = PythonTools::Sam.program("sam");
    build.args(["build", "--config-file", "infra/aws/samconfig.toml"]);
    build.args(["--parameter-overrides", &format!("Architecture={}", architecture.name())]);
    // With one target folder for all functions, common code is compiled once.
    run(build.env("CARGO_TARGET_DIR", folder()))?;
    build_empty(architecture)?;
    let (least, zipped) = sizes(&empty())?;
    println!("{:<9}{:>12}{:>12}", "", "bytes", "zipped");
    println!("{:<9}{least:>12}{zipped:>12}", "empty");
    for name in FUNCTIONS {
        let (plain, zipped) = sizes(&built().join(name).join("bootstrap"))?;
        let times = plain as f64 / least as f64;
        println!("{name:<9}{plain:>12}{zipped:>12}  {times:.1} times empty");
        anyhow::ensure!(zipped < MAX_ZIP, "{name} is too large for Lambda");
    }
    Ok(())
}

/// Returns the size of a program, and its size after compression, as in the upload.
fn sizes(program: &Path) -> anyhow::Result<(u64, u64)> {
    let plain = fs::metadata(program).with_context(|| program.display().to_string())?.len();
    let packed = command("gzip").args(["--to-stdout", "-6"]).arg(program).output().context("gzip")?;
    anyhow::ensure!(packed.status.success(), "gzip ended with {}", packed.status);
    Ok((plain, packed.stdout.len() as u64))
}

/// Builds the empty function in the same way as SAM builds the others.
fn build_empty(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    let mut build = PythonTools::Sam.program("cargo-lambda");
    build.args(["lambda", "build", "--release", "--bin", "noop"]).current_dir(root().join("functions/lambda"));
    if architecture.arm64 {
        build.arg("--arm64");
    }
    run(build.env("CARGO_TARGET_DIR", folder()))?;
    fs::create_dir_all(output_folder().join("empty"))?;
    let program = folder().join("lambda/noop/bootstrap");
    fs::copy(program, empty()).context("cannot copy the empty function")?;
    Ok(())
}

pub(crate) fn empty() -> PathBuf {
    output_folder().join("empty/bootstrap")
}

/// Returns the folder of SAM's output, as `infra/aws/samconfig.toml` sets it.
pub(crate) fn built() -> PathBuf {
    output_folder().join("build")
}

/// Returns the folder of the tools and their output. It does not depend on `CARGO_TARGET_DIR`.
pub(super) fn output_folder() -> PathBuf {
    root().join("target/aws")
}
