//! Measures Ebb and checks the documented limits.
//!
//! Progress is printed to standard error, figures to standard output. The exit code is 0 if all limits hold, 1 if some
//! do not (each is a line of standard error), and 2 if a measurement failed.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod counts;
mod lists;
mod peers;
mod polling;
mod prices;
mod scale;
mod shapes;
mod virtual_stack;

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "Measures Ebb")]
struct BenchCli {
    #[command(subcommand)]
    measure: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Counts the requests and write units of runs
    Counts(counts::CountsArgs),
    /// Counts the requests and units of an observation of what exists at the sender of a source
    Lists,
    /// Compares Ebb with Restate; needs Node.js
    Peers(peers::PeersArgs),
    /// Counts the write units of a unit that waits for a provider
    Polling,
    /// Computes the price of a sandbox on AWS from counted requests and list prices
    Prices(prices::PricesArgs),
    /// Measures one `ebb dev` over decades of runs, units and gone targets
    Scale(scale::ScaleArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let measured = match BenchCli::parse().measure {
        BenchCommand::Counts(arguments) => counts::measured(&arguments).await,
        BenchCommand::Lists => Ok(Box::pin(lists::measured()).await),
        BenchCommand::Peers(arguments) => Box::pin(peers::compared(&arguments)).await.map(|()| Vec::new()),
        BenchCommand::Polling => Box::pin(polling::measured()).await,
        BenchCommand::Prices(arguments) => Box::pin(prices::priced(&arguments)).await,
        BenchCommand::Scale(arguments) => Box::pin(scale::measured(&arguments)).await,
    };
    match measured {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            for line in broken {
                eprintln!("{line}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
