//! Measures the requests of Ebb, and checks its promises about them.
//!
//! Progress goes to standard error, figures to standard output. It ends with 0 where all holds, with 1 where something does
//! not, each on a line of standard error, and with 2 where it could not be measured.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

mod chains;
mod corpus;
mod counts;
mod large;
mod many_targets;
mod prices;
mod server;

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "Measures Ebb")]
struct BenchCli {
    #[command(subcommand)]
    measure: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// A chain of scripts in a cluster, beside the same as bare Jobs
    Chains(chains::ChainsArgs),
    /// Loads and compiles every document of a folder
    Corpus(corpus::CorpusArgs),
    /// Counts what runs ask of the table, and what that costs
    Counts(counts::CountsArgs),
    /// Many targets at once on one `ebb dev`, twice
    ManyTargets(many_targets::ManyTargetsArgs),
    /// Measures invocations in large runs and large tables
    Large(large::LargeArgs),
    /// The price of a sandbox on AWS, by what is counted and list prices
    Prices(prices::PricesArgs),
}

fn main() -> ExitCode {
    match measured(BenchCli::parse().measure) {
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

/// Measures, and returns what does not hold.
fn measured(measure: BenchCommand) -> anyhow::Result<Vec<String>> {
    let none = |()| Vec::new();
    match measure {
        BenchCommand::Chains(arguments) => Runtime::new()?.block_on(chains::chains(&arguments)).map(none),
        BenchCommand::Corpus(arguments) => corpus::tried(&arguments),
        BenchCommand::Counts(arguments) => counts::measured(&arguments),
        BenchCommand::ManyTargets(arguments) => {
            Runtime::new()?.block_on(Box::pin(many_targets::measured(&arguments))).map(none)
        }
        BenchCommand::Large(arguments) => large::measured(&arguments),
        BenchCommand::Prices(arguments) => Runtime::new()?.block_on(Box::pin(prices::priced(&arguments))),
    }
}
