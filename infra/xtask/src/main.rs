//! The chores of the repository: `cargo xtask CHORE`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use programs::Program;

mod api;
mod aws;
mod chart;
mod check;
mod cluster;
mod collector;
mod dynamodb_local;
mod fuzz;
mod images;
mod kills;
mod mutants;
mod packages;
mod programs;
mod python;
mod run;
mod runner;
mod summary;
mod test;
mod tools;
mod turns;

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
    /// Fetches Amazon's DynamoDB Local, which the tests of the table need
    DynamodbLocal,
    /// The HTTP interface of `ebb dev`, tested by tools of others from PyPI: its OpenAPI document, generated requests, SDKs
    Api(api::Arguments),
    /// The deployment: lint, build, deploy to an AWS of this machine; without an order all of it
    Aws {
        #[command(subcommand)]
        order: Option<aws::Order>,
    },
    /// What a change has to pass beside the tests: format, lints, documentation, dependencies
    Check,
    /// Renders the relay's chart into infra/relay/manifests.yaml; needs helm, which is built with Go
    Chart {
        /// Fails instead when the file is another one
        #[arg(long)]
        check: bool,
    },
    /// A whole Kubernetes on this machine, from package registries; needs root and Go
    Cluster {
        #[command(subcommand)]
        order: cluster::Order,
    },
    /// Builds the OpenTelemetry collector that tests send spans to, and says where it is; needs Go
    Collector,
    /// Kills `ebb dev` at random moments of every example's life, its table in DynamoDB Local
    Kills {
        /// Kills any part of Ebb and of a cluster instead, over the example with all kinds of units; needs root and Go
        #[arg(long)]
        cluster: bool,
        /// How often; without it 200 times, 100 times with a cluster
        #[arg(long)]
        kills: Option<u32>,
        /// Chooses the moments; without it always the same
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Many targets at once on one `ebb dev`, twice: --targets, --pods
    #[command(disable_help_flag = true)]
    Crowd {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Loads and compiles every document of a folder
    Corpus {
        /// The folder
        folder: std::path::PathBuf,
    },
    /// Tries the promises about hostile input with inputs that coverage guides; needs a C++ compiler
    Fuzz(fuzz::Arguments),
    /// How long scripts of a chain take in a real cluster, beside the same as bare Jobs: --units, --rounds; needs root and Go
    #[command(disable_help_flag = true)]
    Chains {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// What Ebb costs on AWS, by what is counted and list prices: --sandboxes, --units, --took-ms
    #[command(disable_help_flag = true)]
    Prices {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Builds the relay and the runner and writes an image of each, as an archive to load
    Images(images::Arguments),
    /// Counts what runs of some shapes and sizes ask of the table: --sizes, --shapes, --answers, --check, -o json
    #[command(disable_help_flag = true)]
    Counts {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Time, requests and memory of invocations in large runs and tables: --units, --gone, --living, --resources
    #[command(disable_help_flag = true)]
    Large {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Fan-ins by many callers at once, on DynamoDB Local, without and with faults: --runs, --callers, --failing, --lost
    #[command(disable_help_flag = true)]
    Load {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Explores every order of the steps of small graphs, and shows that no rule can be left out: --case, --large, --rule, --schedules
    #[command(disable_help_flag = true)]
    Model {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Changes the engine and the store at one place at a time, to see whether a test notices: --re, --iterate
    #[command(disable_help_flag = true)]
    Mutants {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Many works at once on a relay that lets few of them run at one time, and a script that writes a large log
    Turns(turns::Arguments),
    /// Builds the program that is copied into pods, and says how large it is and that it is static
    Runner,
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
        Chore::DynamodbLocal => packages::install(&packages::OF_TESTS).and_then(|()| dynamodb_local::fetch()),
        Chore::Api(arguments) => api::all(&arguments),
        Chore::Aws { order } => aws::all(order),
        Chore::Check => check::all(),
        Chore::Chart { check } => chart::all(if check { chart::Do::Compare } else { chart::Do::Write }),
        Chore::Cluster { order } => cluster::all(order),
        Chore::Collector => collector::all(),
        Chore::Kills { cluster, kills, seed } => {
            kills::all(if cluster { kills::What::Cluster } else { kills::What::Server }, kills, seed)
        }
        Chore::Crowd { arguments } => programs::all(Program::Crowd, &arguments),
        Chore::Corpus { folder } => programs::all(Program::Corpus, &[folder.into_os_string()]),
        Chore::Fuzz(arguments) => fuzz::all(&arguments),
        Chore::Counts { arguments } => programs::all(Program::Counts, &arguments),
        Chore::Large { arguments } => programs::all(Program::Large, &arguments),
        Chore::Load { arguments } => {
            dynamodb_local::fetch().and_then(|()| programs::all(Program::Load, &arguments))
        }
        Chore::Model { arguments } => programs::all(Program::Model, &arguments),
        Chore::Chains { arguments } => cluster::chains(arguments),
        Chore::Images(arguments) => images::all(&arguments),
        Chore::Mutants { arguments } => mutants::all(&arguments),
        Chore::Turns(arguments) => turns::all(&arguments),
        Chore::Prices { arguments } => programs::all(Program::Prices, &arguments),
        Chore::Runner => runner::all(),
        Chore::World { arguments } => programs::all(Program::World, &arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
