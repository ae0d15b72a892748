//! The deployment, for real: what was built goes by `sam deploy` to an AWS of this machine, lives go through its entry while
//! it is deployed anew, and the stack is deleted. `cargo xtask aws deploy` starts it in a network of its own, where an
//! address that the functions take for public is this machine's.

mod cloud;
mod look;
mod receiver;
mod scripts;
mod steps;
mod stories;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Parser;

/// Deploys, tries, deploys again, deletes.
#[derive(Parser, Debug)]
pub(crate) struct Arguments {
    /// The folder of `sam` and `ministack`
    #[arg(long)]
    tools: PathBuf,
    /// The template as it was built
    #[arg(long)]
    template: PathBuf,
    /// The program `ebb`
    #[arg(long)]
    ebb: PathBuf,
    /// The folder of the examples
    #[arg(long)]
    examples: PathBuf,
    /// An address of this machine that is public to the functions
    #[arg(long)]
    address: IpAddr,
    /// Where the emulator's log goes
    #[arg(long)]
    log: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let cloud = cloud::Cloud::start(&arguments).await?;
    let scripts = scripts::Scripts { folder: arguments.examples.join("s3"), s3: cloud.url() };
    let receiver = receiver::Receiver::start(arguments.address, scripts).await?;
    stories::all(&arguments, &cloud, &receiver).await?;
    steps::say("all of it went as it should");
    Ok(())
}
