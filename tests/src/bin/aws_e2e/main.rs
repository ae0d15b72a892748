//! End-to-end checks of the deployment. `stack`: `sam deploy` deploys the build to an AWS of this machine, instances use its
//! HTTP API during a second deployment, and the stack is deleted. `functions`: each function by itself, as AWS runs it.
//! `cargo xtask verify aws` starts it in a network of its own, where an address that the functions take for public is this
//! machine's.

mod cloud;
mod functions;
mod inspect;
mod keys;
mod scripts;
mod servers;
mod stack;
mod steps;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

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
    /// Deploys, tries, deploys again, deletes
    Stack(StackArgs),
    /// Runs each function under Lambda's runtime interface emulator
    Functions(functions::FunctionsCheckArgs),
}

impl DeployedCommand {
    fn examples(&self) -> &Path {
        match self {
            Self::Stack(arguments) => &arguments.examples,
            Self::Functions(arguments) => &arguments.examples,
        }
    }
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
    let scripts = scripts::ScriptRunner { folder: command.examples().join("s3"), s3: cloud::ENDPOINT.to_owned() };
    let outside = servers::OutsideServers::start(args.address, scripts).await?;
    match command {
        DeployedCommand::Stack(arguments) => stack::all(&arguments, &cloud, &outside).await?,
        DeployedCommand::Functions(arguments) => functions::all(&arguments, &args, &cloud, &outside).await?,
    }
    outside.signed()?;
    steps::say("all of it went as it should");
    Ok(())
}
