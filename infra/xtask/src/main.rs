//! The chores of the repository: `cargo xtask CHORE`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod aws;
mod bench;
mod chart;
mod cluster;
mod console;
mod dynamodb_local;
mod entrypoint;
mod images;
mod python;
mod run;
mod tools;
mod verify;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Run a chore of the repository")]
struct XtaskCli {
    #[command(subcommand)]
    chore: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run the tests that take long or need more than Rust
    Verify(verify::VerifyArgs),
    /// Measure requests, costs, load and latency
    #[command(disable_help_flag = true)]
    Bench {
        /// Measurement and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Build the artifacts of a release other than `ebb`
    Build {
        #[command(subcommand)]
        command: BuildCommand,
    },
    /// Run a Kubernetes cluster on this machine; needs root and Go
    #[command(disable_help_flag = true)]
    Cluster {
        /// Action of `infra/cluster/cluster.sh`, which describes them, and its values
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Subcommand)]
enum BuildCommand {
    /// Build the static program that is copied into pods, at most 3 MB
    Entrypoint,
    /// Build images of the relay and the entrypoint, as archives for container engines
    Images(images::ImagesArgs),
    /// Build the four Lambda functions and print their sizes
    Functions(aws::build::LambdaArchitecture),
}

fn main() -> ExitCode {
    let ended = match XtaskCli::parse().chore {
        XtaskCommand::Verify(arguments) => verify::all(&arguments),
        XtaskCommand::Bench { arguments } => bench::all(&arguments),
        XtaskCommand::Build { command: BuildCommand::Entrypoint } => entrypoint::all(),
        XtaskCommand::Build { command: BuildCommand::Images(arguments) } => images::all(&arguments),
        XtaskCommand::Build { command: BuildCommand::Functions(architecture) } => aws::build::all(architecture),
        XtaskCommand::Cluster { arguments } => cluster::all(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
