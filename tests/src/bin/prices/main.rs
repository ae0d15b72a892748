//! What Ebb costs on AWS by what is counted and by list prices, beside other ways to run the same units.
//!
//! A life is counted with a clock that stands still in between, so the same version always prints the same.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

mod bill;
mod documents;
mod life;
mod list;
mod others;
mod stack;

use bill::{Bill, Machine};
use list::List;
use stack::Stack;

/// What cannot be counted here, and what is asked for.
#[derive(Parser)]
#[command(
    name = "cargo xtask bench prices",
    about = "What Ebb costs on AWS, by what is counted and list prices"
)]
pub(crate) struct Arguments {
    /// Sandboxes a day of the worked example
    #[arg(long, default_value_t = 1_000)]
    sandboxes: u32,
    /// Units of a sandbox; as many take away what these make
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..))]
    units: u32,
    /// Assumed: milliseconds that an invocation takes, waiting for units' servers included
    #[arg(long, default_value_t = 100)]
    took_ms: u32,
    /// Assumed: seconds that a unit works
    #[arg(long, default_value_t = 10)]
    unit_seconds: u32,
    /// Assumed: bytes of state that a unit has where state is priced by its bytes
    #[arg(long, default_value_t = 1_000)]
    state_bytes: u32,
    /// The prices; without it those of the repository
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

fn main() -> ExitCode {
    match printed(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn printed(arguments: &Arguments) -> anyhow::Result<()> {
    let file = arguments.prices.clone().unwrap_or_else(|| root().join("infra/aws/prices.json"));
    let list = List::read(&file)?;
    let template = std::fs::read_to_string(root().join("template.yaml")).context("template.yaml")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stack = Stack::read(&template)?;
    let life = runtime.block_on(Box::pin(life::counted(arguments, &stack)))?;
    let bill = Bill { arguments, list: &list, life: &life, stack: &stack };
    println!("{}", bill.per_unit()?);
    println!();
    println!("{}", others::beside(&bill)?);
    println!();
    let (x86, arm64) = (bill.month(Machine::X86)?, bill.month(Machine::Arm64)?);
    let sandboxes = arguments.sandboxes;
    println!("{sandboxes} such sandboxes a day, for 30 days: ${:.2} (arm64: ${:.2})", x86.0, arm64.0);
    println!("even without sandboxes: ${:.2} (arm64: ${:.2}) of it", x86.1, arm64.1);
    Ok(())
}
