//! The chores of the repository: `cargo xtask CHORE`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod aws;
mod bench;
mod build;
mod cargo_test;
mod chart;
mod cluster;
mod dynamodb_local;
mod entrypoint;
mod fuzz;
mod images;
mod mutants;
mod packages;
mod python;
mod run;
mod speed;
mod summary;
mod tools;
mod verify;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of the repository")]
struct XtaskCli {
    #[command(subcommand)]
    chore: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Runs what `cargo test` leaves out because it takes long or needs more than Rust
    Verify(verify::VerifyArgs),
    /// Measures runs, prices, invocations and loads
    #[command(disable_help_flag = true)]
    Bench {
        measurement: bench::BenchKind,
        /// Options of the measurement
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Builds what is shipped beside the `ebb` program
    Build {
        #[command(subcommand)]
        order: build::BuildCommand,
    },
    /// Runs a whole Kubernetes on this machine, built from package registries; needs root and Go
    Cluster {
        #[command(subcommand)]
        order: cluster::TestClusterCommand,
    },
    /// Measures how long the project takes to build and to test in a fresh clone
    Speed(speed::SpeedArgs),
}

fn main() -> ExitCode {
    let ended = match XtaskCli::parse().chore {
        XtaskCommand::Verify(arguments) => verify::all(&arguments),
        XtaskCommand::Bench { measurement, arguments } => bench::all(measurement, arguments),
        XtaskCommand::Build { order } => build::all(&order),
        XtaskCommand::Cluster { order } => cluster::all(order),
        XtaskCommand::Speed(arguments) => speed::all(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
