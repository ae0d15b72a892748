//! The build of the Lambda functions with SAM.

use anyhow::bail;

use crate::python::PythonTools;
use crate::run::{folder, root, run};

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

/// Builds all functions and an empty one with SAM. Prints the size of each, and fails if one is too large for Lambda.
pub(crate) fn all(architecture: LambdaArchitecture) -> anyhow::Result<()> {
    PythonTools::Sam.install()?;
    let script = root().join("infra/aws/build.sh");
    run(PythonTools::Sam.program(script).arg(architecture.name()).env("CARGO_TARGET_DIR", folder()))
}
