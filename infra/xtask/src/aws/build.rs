//! The functions as they are deployed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::place;
use crate::python::PythonTools;
use crate::run::{command, folder, root, run};

/// The functions by the names of their resources.
pub(crate) const FUNCTIONS: [&str; 4] = ["Receive", "Complete", "Sweep", "Api"];
/// What Lambda takes as an upload, in bytes.
const LARGEST_ZIP: u64 = 50 << 20;

/// How they are built.
#[derive(clap::Args)]
pub(crate) struct FunctionsBuildArgs {
    /// For Lambda's arm64 instead of x86_64; needs Rust's target aarch64-unknown-linux-gnu
    #[arg(long)]
    arm64: bool,
}

impl FunctionsBuildArgs {
    pub(crate) fn architecture(&self) -> LambdaArchitecture {
        if self.arm64 { LambdaArchitecture::Arm64 } else { LambdaArchitecture::X86 }
    }
}

/// What Lambda runs functions on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LambdaArchitecture {
    X86,
    Arm64,
}

impl LambdaArchitecture {
    /// That of this machine, whose own programs the emulators start.
    ///
    /// # Errors
    /// When Lambda has no such machines.
    pub(crate) fn of_this_machine() -> anyhow::Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::X86),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("Lambda runs programs for x86_64 and arm64, and this machine none of them: it is {other}"),
        }
    }

    /// Lambda's name of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Builds all functions with SAM, and prints the size of each, plain and as it is uploaded, beside that of a function that
/// does nothing.
///
/// # Errors
/// When one does not compile, or is too large for Lambda.
pub(crate) fn all(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    PythonTools::Sam.install()?;
    println!("== sam build, for {}", architecture.name());
    let mut build = PythonTools::Sam.program("sam");
    build.args(["build", "--config-file", "infra/aws/samconfig.toml"]);
    if architecture == LambdaArchitecture::Arm64 {
        build.args(["--parameter-overrides", "Architecture=arm64"]);
    }
    // One folder for all functions: what they share, which is most of it, is compiled once.
    run(build.env("CARGO_TARGET_DIR", folder()))?;
    build_empty(architecture)?;
    let least = ProgramSize::of(&empty())?;
    println!("{:<9}{:>12}{:>12}", "", "bytes", "zipped");
    println!("{:<9}{:>12}{:>12}", "empty", least.plain, least.zipped);
    for name in FUNCTIONS {
        let ProgramSize { plain, zipped } = ProgramSize::of(&built().join(name).join("bootstrap"))?;
        let times = plain as f64 / least.plain as f64;
        println!("{name:<9}{plain:>12}{zipped:>12}  {times:.1} times empty");
        anyhow::ensure!(zipped < LARGEST_ZIP, "{name} is too large for Lambda");
    }
    Ok(())
}

/// How large a program is, in bytes.
struct ProgramSize {
    plain: u64,
    /// Packed as in the upload.
    zipped: u64,
}

impl ProgramSize {
    fn of(program: &Path) -> anyhow::Result<Self> {
        let plain = fs::metadata(program).with_context(|| program.display().to_string())?.len();
        let packed = command("gzip").args(["--to-stdout", "-6"]).arg(program).output().context("gzip")?;
        anyhow::ensure!(packed.status.success(), "gzip ended with {}", packed.status);
        Ok(Self { plain, zipped: packed.stdout.len() as u64 })
    }
}

/// Builds the function that does nothing, as SAM builds the others.
fn build_empty(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    let mut build = PythonTools::Sam.program("cargo-lambda");
    build.args(["lambda", "build", "--release", "--bin", "noop"]).current_dir(root().join("functions/lambda"));
    if architecture == LambdaArchitecture::Arm64 {
        build.arg("--arm64");
    }
    run(build.env("CARGO_TARGET_DIR", folder()))?;
    fs::create_dir_all(place().join("empty"))?;
    let program = folder().join("lambda/noop/bootstrap");
    fs::copy(program, empty()).context("the function that does nothing")?;
    Ok(())
}

/// Where the bootstrap of the function that does nothing is.
pub(crate) fn empty() -> PathBuf {
    place().join("empty/bootstrap")
}

/// Where SAM puts what it has built, by its settings.
pub(crate) fn built() -> PathBuf {
    place().join("build")
}
