//! End-to-end checks of the deployment.
//!
//! `stack` deploys the build with `sam deploy` to an AWS emulator on this machine, and creates and deletes a sandbox
//! with a second deployment in between. `functions` measures each function. `cargo xtask verify aws` starts this
//! program in a network namespace in which this machine has a public address.

mod cloud;
mod functions;
mod inspect;
mod keys;
mod servers;
mod stack;
mod steps;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[derive(Parser, Debug)]
struct DeployedCli {
    #[command(flatten)]
    args: DeployedArgs,
    #[command(subcommand)]
    command: DeployedCommand,
}

/// The environment of the checks.
#[derive(Args, Debug)]
pub(crate) struct DeployedArgs {
    /// Folder of `sam` and `ministack`
    #[arg(long)]
    tools: PathBuf,
    /// An address of this machine that is public to the functions
    #[arg(long)]
    address: IpAddr,
    /// Log file of the emulator. Other logs are written to its folder
    #[arg(long)]
    log: PathBuf,
}

#[derive(Subcommand, Debug)]
enum DeployedCommand {
    /// Deploys the stack twice and uses it
    Stack(StackArgs),
    /// Runs each function under Lambda's runtime interface emulator
    Functions(functions::FunctionsCheckArgs),
}

/// The deployed files.
#[derive(Args, Debug)]
pub(crate) struct StackArgs {
    /// The built template
    #[arg(long)]
    template: PathBuf,
    /// The program `ebb`
    #[arg(long)]
    ebb: PathBuf,
    /// The folder of the examples
    #[arg(long)]
    examples: PathBuf,
    /// The check of the console, which `node` runs
    #[arg(long)]
    console: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let DeployedCli { args, command } = DeployedCli::parse();
    let cloud = cloud::CloudEmulator::start(&args).await?;
    match command {
        DeployedCommand::Stack(arguments) => {
            let outside = servers::OutsideServers::start(args.address).await?;
            stack::all(&arguments, &cloud, &outside).await?;
            outside.signed()?;
        }
        DeployedCommand::Functions(arguments) => functions::all(&arguments, &args, &cloud).await?,
    }
    steps::say("all checks passed");
    Ok(())
}
