//! Measures what single invocations take in large runs and large tables: time, requests and memory.
//!
//! One process fills a table and a bucket. Each case is measured in a process of its own, whose peak of resident memory
//! is that of one invocation together with the embedded table and bucket.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

mod cases;
pub(crate) mod filling;
pub(crate) mod harness;

use cases::{LargeCase, LargeMeasurement};

/// The sizes.
#[derive(clap::Args)]
pub(crate) struct LargeArgs {
    /// Units of the run whose target becomes ready, each with 4 KiB of outputs
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// Targets that are gone
    #[arg(long, default_value_t = 1_000_000)]
    gone: usize,
    /// Targets that live
    #[arg(long, default_value_t = 10_000)]
    living: usize,
    /// Resources of the sandbox that is created, all of one plugin
    #[arg(long, default_value_t = 500)]
    resources: usize,
    /// Measures one case in a folder that is filled already
    #[arg(long, hide = true, requires = "folder")]
    measure: Option<LargeCase>,
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

/// Measures all cases, and returns what does not hold.
pub(crate) fn measured(arguments: &LargeArgs) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Runtime::new()?;
    if let (Some(case), Some(folder)) = (arguments.measure, &arguments.folder) {
        let measured = runtime.block_on(cases::measure(case, folder, arguments.resources))?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir()?;
    let sizes = filling::TableSizes { units: arguments.units, gone: arguments.gone, living: arguments.living };
    runtime.block_on(filling::fill(folder.path(), &sizes))?;
    drop(runtime);
    let mut broken = Vec::new();
    for case in LargeCase::ALL {
        let measured = child(case, folder.path(), arguments.resources)?;
        println!("{}", measured.line());
        broken.extend(measured.broken());
    }
    Ok(broken)
}

/// Measures a case in a process of its own.
fn child(case: LargeCase, folder: &Path, resources: usize) -> anyhow::Result<LargeMeasurement> {
    let output = Command::new(std::env::current_exe()?)
        .args(["large", "--measure", case.name(), "--resources", &resources.to_string(), "--folder"])
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "{}: {}", case.name(), output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {} prints", case.name()))
}
