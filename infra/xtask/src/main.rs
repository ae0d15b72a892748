//! The chores of the repository: `cargo xtask CHORE`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod check;
mod corpus;
mod counts;
mod fuzz;
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
    /// What a change has to pass beside the tests: format, lints, documentation, dependencies
    Check,
    /// Loads and compiles every document of a folder
    Corpus {
        /// The folder
        folder: std::path::PathBuf,
    },
    /// Tries the promises about hostile input with inputs that coverage guides; needs a C++ compiler
    Fuzz(fuzz::Arguments),
    /// Counts what runs of some shapes and sizes ask of the table: --sizes, --shapes, --answers, --check, -o json
    #[command(disable_help_flag = true)]
    Counts {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Test => test::all(),
        Chore::Check => check::all(),
        Chore::Corpus { folder } => corpus::all(&folder),
        Chore::Fuzz(arguments) => fuzz::all(&arguments),
        Chore::Counts { arguments } => counts::all(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
