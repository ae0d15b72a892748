//! Measures what Ebb asks of its surroundings, and checks what is promised of it.
//!
//! Progress goes to standard error, figures to standard output. It ends with 0 where all holds, with 1 where something does
//! not, each on a line of standard error, and with 2 where it could not be measured.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

mod chains;
mod corpus;
mod counts;
mod crowd;
mod large;
mod prices;
mod server;

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "Measures Ebb")]
struct Program {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Measure {
    /// A chain of scripts in a cluster, beside the same as bare Jobs
    Chains(chains::Arguments),
    /// Loads and compiles every document of a folder
    Corpus(corpus::Arguments),
    /// Counts what runs ask of the table, and what that costs
    Counts(counts::Arguments),
    /// Many targets at once on one `ebb dev`, twice
    Crowd(crowd::Arguments),
    /// Measures invocations in large runs and large tables
    Large(large::Arguments),
    /// The price of a sandbox on AWS, by what is counted and list prices
    Prices(prices::Arguments),
}

fn main() -> ExitCode {
    match measured(Program::parse().measure) {
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
fn measured(measure: Measure) -> anyhow::Result<Vec<String>> {
    let none = |()| Vec::new();
    match measure {
        Measure::Chains(arguments) => Runtime::new()?.block_on(chains::chains(&arguments)).map(none),
        Measure::Corpus(arguments) => corpus::tried(&arguments),
        Measure::Counts(arguments) => counts::measured(&arguments),
        Measure::Crowd(arguments) => Runtime::new()?.block_on(Box::pin(crowd::crowd(&arguments))).map(none),
        Measure::Large(arguments) => large::measured(&arguments),
        Measure::Prices(arguments) => Runtime::new()?.block_on(Box::pin(prices::priced(&arguments))),
    }
}
