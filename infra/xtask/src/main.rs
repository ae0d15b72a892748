//! The chores of the repository: `cargo xtask CHORE`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod check;
mod packages;
mod run;
mod summary;
mod test;
mod tools;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of the repository")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Installs what the tests need and runs all of them
    Test,
    /// Everything that a change has to pass: format, lints, tests, documentation, dependencies
    Ci,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Test => test::all(),
        Chore::Ci => check::all(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
