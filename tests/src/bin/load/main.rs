//! Runs of the shape 1→20→1 whose units' completions come from many callers at once, over Amazon's DynamoDB Local: once
//! as it is, and once while calls of the table fail and replies get lost.
//!
//! Progress goes to standard error, the figures to standard output. What does not hold ends it with 1.

use std::process::ExitCode;

use clap::Parser;
use ebb_store::suite::DynamoDbLocal;

mod books;
mod documents;
mod figures;
mod way;
mod world;

use way::Chances;

#[derive(Parser)]
#[command(name = "cargo xtask load", about = "Fan-ins by many callers at once, on Amazon's DynamoDB Local")]
struct Arguments {
    /// Runs, each of 22 units
    #[arg(long, default_value_t = 1_000)]
    runs: usize,
    /// Callers at a time, and runs that are open at a time
    #[arg(long, default_value_t = 64)]
    callers: usize,
    /// Of a hundred calls of the table so many fail before they reach it, in the second round
    #[arg(long, default_value_t = 1.0)]
    failing: f64,
    /// Of a hundred calls of the table so many are done and their reply is lost, in the second round
    #[arg(long, default_value_t = 1.0)]
    lost: f64,
}

fn main() -> ExitCode {
    ebb_tests::verdict::exit(rounds(&Arguments::parse()))
}

/// Both rounds; gives what does not hold.
fn rounds(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let table = DynamoDbLocal::start()?;
    let mut broken = Vec::new();
    let faults = Chances { failing: arguments.failing / 100.0, lost: arguments.lost / 100.0 };
    for (name, chances) in [("as it is", Chances::NONE), ("with faults", faults)] {
        if name != "as it is" && chances == Chances::NONE {
            break;
        }
        let (runs, callers) = (arguments.runs, arguments.callers);
        let round = world::Round { runs, callers, chances, endpoint: table.endpoint() };
        let figures = runtime.block_on(Box::pin(world::run(&round)))?;
        println!("{name}:\n{figures}");
        broken.extend(figures.broken().into_iter().map(|line| format!("{name}: {line}")));
    }
    Ok(broken)
}
