//! End-to-end checks of the deployment. `stack`: `sam deploy` deploys the build to an AWS of this machine, and an instance
//! uses its HTTP API during a second deployment. `functions`: measures each function, as AWS runs it.
//! `cargo xtask verify aws` starts it in a network of its own, where an address that the functions take for public is this
//! machine's.

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

/// Where it happens.
#[derive(Args, Debug)]
pub(crate) struct DeployedArgs {
    /// The folder of `sam` and `ministack`
    #[arg(long)]
    tools: PathBuf,
    /// An address of this machine that is public to the functions
    #[arg(long)]
    address: IpAddr,
    /// Where the emulator's log goes; others go to its folder
    #[arg(long)]
    log: PathBuf,
}

#[derive(Subcommand, Debug)]
enum DeployedCommand {
    /// Deploys, tries, and deploys again
    Stack(StackArgs),
    /// Runs each function under Lambda's runtime interface emulator
    Functions(functions::FunctionsCheckArgs),
}

/// What is deployed.
#[derive(Args, Debug)]
pub(crate) struct StackArgs {
    /// The template as it was built
    #[arg(long)]
    template: PathBuf,
    /// The program `ebb`
    #[arg(long)]
    ebb: PathBuf,
    /// The folder of the examples
    #[arg(long)]
    examples: PathBuf,
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
    steps::say("all of it went as it should");
    Ok(())
}
