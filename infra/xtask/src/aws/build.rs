//! The functions as they are deployed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::python::Tools;
use crate::run::{command, folder, root, run};

/// The functions by the names of their resources.
pub(crate) const FUNCTIONS: [&str; 4] = ["Receive", "Complete", "Sweep", "Api"];
/// What Lambda takes as an upload, in bytes.
const LARGEST_ZIP: u64 = 50 << 20;

/// How they are built.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// For Lambda's arm64 instead of x86_64; needs Rust's target aarch64-unknown-linux-gnu
    #[arg(long)]
    arm64: bool,
}

/// Builds all functions with SAM, and prints the size of each, plain and as it is uploaded, beside that of a function that
/// does nothing.
///
/// # Errors
/// When one does not compile, or is too large for Lambda.
pub(crate) fn all(arguments: &Arguments) -> anyhow::Result<()> {
    Tools::Sam.install()?;
    println!("== sam build");
    let mut build = Tools::Sam.program("sam");
    build.args(["build", "--config-file", "infra/aws/samconfig.toml"]).arg("--build-dir").arg(built());
    if arguments.arm64 {
        build.args(["--parameter-overrides", "Architecture=arm64"]);
    }
    // One folder for all functions: what they share, which is most of it, is compiled once.
    run(build.env("CARGO_TARGET_DIR", folder()))?;
    let least = Size::of(&empty(arguments)?)?;
    println!("{:<9}{:>12}{:>12}", "", "bytes", "zipped");
    println!("{:<9}{:>12}{:>12}", "empty", least.plain, least.zipped);
    for name in FUNCTIONS {
        let Size { plain, zipped } = Size::of(&built().join(name).join("bootstrap"))?;
        let times = plain as f64 / least.plain as f64;
        println!("{name:<9}{plain:>12}{zipped:>12}  {times:.1} times empty");
        anyhow::ensure!(zipped < LARGEST_ZIP, "{name} is too large for Lambda");
    }
    Ok(())
}

/// How large a program is, in bytes.
struct Size {
    plain: u64,
    /// Packed as in the upload.
    zipped: u64,
}

impl Size {
    fn of(program: &Path) -> anyhow::Result<Self> {
        let plain = fs::metadata(program).with_context(|| program.display().to_string())?.len();
        let packed = command("gzip").args(["--to-stdout", "-6"]).arg(program).output().context("gzip")?;
        anyhow::ensure!(packed.status.success(), "gzip ended with {}", packed.status);
        Ok(Self { plain, zipped: packed.stdout.len() as u64 })
    }
}

/// Builds the function that does nothing, as SAM builds the others. Gives where it is.
fn empty(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    let mut build = Tools::Sam.program("cargo-lambda");
    build.args(["lambda", "build", "--release", "--bin", "empty"]).current_dir(root().join("tests/empty"));
    if arguments.arm64 {
        build.arg("--arm64");
    }
    run(build.env("CARGO_TARGET_DIR", folder()))?;
    let program = folder().join("aws/empty/bootstrap");
    fs::create_dir_all(folder().join("aws/empty"))?;
    fs::copy(folder().join("lambda/empty/bootstrap"), &program).context("the function that does nothing")?;
    Ok(program)
}

/// Where SAM puts what it has built.
pub(crate) fn built() -> PathBuf {
    folder().join("aws/build")
}
