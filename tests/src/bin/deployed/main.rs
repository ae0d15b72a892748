//! The deployment, for real. `stack`: what was built goes by `sam deploy` to an AWS of this machine, lives go through its
//! entry while it is deployed anew, and the stack is deleted. `functions`: each function by itself, as AWS runs it.
//! `cargo xtask verify aws` starts it in a network of its own, where an address that the functions take for public is this
//! machine's.

mod cloud;
mod functions;
mod keys;
mod look;
mod outside;
mod scripts;
mod steps;
mod stories;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

#[derive(Parser, Debug)]
struct Program {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    order: Order,
}

/// Where it happens.
#[derive(Args, Debug)]
pub(crate) struct Place {
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
enum Order {
    /// Deploys, tries, deploys again, deletes
    Stack(Arguments),
    /// Runs each function under Lambda's runtime interface emulator
    Functions(functions::Arguments),
}

impl Order {
    fn examples(&self) -> &Path {
        match self {
            Self::Stack(arguments) => &arguments.examples,
            Self::Functions(arguments) => &arguments.examples,
        }
    }
}

/// What is deployed.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
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
    let Program { place, order } = Program::parse();
    let cloud = cloud::Cloud::start(&place).await?;
    let scripts = scripts::Scripts { folder: order.examples().join("s3"), s3: cloud::ENDPOINT.to_owned() };
    let outside = outside::Outside::start(place.address, scripts).await?;
    match order {
        Order::Stack(arguments) => stories::all(&arguments, &cloud, &outside).await?,
        Order::Functions(arguments) => functions::all(&arguments, &place, &cloud, &outside).await?,
    }
    outside.signed()?;
    steps::say("all of it went as it should");
    Ok(())
}
