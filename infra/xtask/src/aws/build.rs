//! The functions as they are deployed.

use std::fs;

use anyhow::Context as _;

use super::python::Tools;
use crate::run::{folder, run};

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

/// Builds all functions with SAM, and prints the size of each, plain and as it is uploaded.
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
    run(&mut build)?;
    for name in FUNCTIONS {
        let program = built().join(name).join("bootstrap");
        let size = fs::metadata(&program).with_context(|| program.display().to_string())?.len();
        println!("{}: {size} bytes", program.display());
        anyhow::ensure!(size < LARGEST_ZIP, "{name} is too large for Lambda");
    }
    Ok(())
}

/// Where SAM puts what it has built.
pub(crate) fn built() -> std::path::PathBuf {
    folder().join("aws/build")
}
