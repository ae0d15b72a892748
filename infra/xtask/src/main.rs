//! The chores of the repository: `cargo xtask CHORE`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod check;
mod corpus;
mod counts;
mod packages;
mod run;
mod summary;
mod test;
mod tools;
mod world;

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
    /// What a change has to pass beside the tests: format, lints, documentation, dependencies
    Check,
    /// Loads and compiles every document of a folder
    Corpus {
        /// The folder
        folder: std::path::PathBuf,
    },
    /// Counts what runs of some shapes and sizes ask of the table: --sizes, --shapes, --answers, --check, -o json
    #[command(disable_help_flag = true)]
    Counts {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Lives of random targets in a simulated world where anything may fail: --lives, --seed, --threads, --trace
    #[command(disable_help_flag = true)]
    World {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Test => test::all(),
        Chore::Check => check::all(),
        Chore::Corpus { folder } => corpus::all(&folder),
        Chore::Counts { arguments } => counts::all(&arguments),
        Chore::World { arguments } => world::all(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
