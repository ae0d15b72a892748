//! `cargo xtask api`: the HTTP interface, tested by tools that others have written. `cargo xtask test` includes it.

use crate::python::Tools;
use crate::run::{cargo, folder, root, run};

/// The options of the command.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Generated requests for each operation and phase
    #[arg(long, default_value_t = Arguments::default().examples)]
    examples: u32,
    /// Chooses the requests
    #[arg(long, default_value_t = Arguments::default().seed)]
    seed: u64,
    /// How many operations are tested at one time
    #[arg(long, default_value_t = Arguments::default().workers)]
    workers: u32,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { examples: 200, seed: 1, workers: 1 }
    }
}

/// Starts `ebb dev`, validates its OpenAPI document, tests each operation with generated requests, and exchanges events
/// with the SDKs of Standard Webhooks and CloudEvents.
///
/// # Errors
/// When the tools cannot be installed, or one finds something.
pub(crate) fn all(arguments: &Arguments) -> anyhow::Result<()> {
    Tools::Api.install()?;
    // Builds `ebb` beside a test of its own, with the features of packages that all tests have.
    run(cargo().args(["test", "--workspace", "--no-run", "--test", "commands"]))?;
    let mut program = Tools::Api.program("python");
    program.arg(root().join("infra/api/conformance.py")).arg("--ebb").arg(folder().join("debug/ebb"));
    program.args(["--examples", &arguments.examples.to_string()]);
    program.args(["--seed", &arguments.seed.to_string(), "--workers", &arguments.workers.to_string()]);
    run(&mut program)
}
