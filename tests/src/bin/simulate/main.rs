//! Runs simulations of random targets until enough instances have ended, and prints their violations.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use ebb_tests::simulation::{FaultKind, TraceMode, simulate};

mod all;

#[derive(Parser)]
#[command(name = "simulate", about = "Simulates instances of random targets with random faults")]
struct SimulationArgs {
    /// Number of instances to simulate, with consecutive seeds from `--seed`. Default: one simulation
    #[arg(long)]
    instances: Option<u64>,
    /// Seed of the (first) simulation. Default: a random one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// Number of concurrent simulations
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Prints the events of the simulation
    #[arg(long)]
    trace: bool,
    /// Kinds of faults to leave out, by name
    #[arg(long, value_delimiter = ',', hide_possible_values = true)]
    without: Vec<FaultKind>,
}

fn main() -> ExitCode {
    let arguments = SimulationArgs::parse();
    let seed = arguments.seed.unwrap_or_else(|| rand::random::<u32>().into());
    match arguments.instances {
        Some(instances) => all::simulate_all(instances, seed, arguments.threads, &arguments.without),
        None => one(seed, &arguments.without, if arguments.trace { TraceMode::Kept } else { TraceMode::Off }),
    }
}

fn one(seed: u64, excluded: &[FaultKind], trace: TraceMode) -> ExitCode {
    let begun = Instant::now();
    let report = simulate(seed, excluded, trace);
    print!("{}", report.trace);
    println!(
        "simulation {seed}: {} instances, {} attempts, {} invocations, {:?}",
        report.instances,
        report.attempts,
        report.invocations,
        begun.elapsed()
    );
    for (kind, reached) in FaultKind::all().iter().zip(&report.injected).filter(|(_, reached)| **reached > 0) {
        println!("  {kind}: {reached}");
    }
    for wrong in &report.violations {
        println!("wrong: {wrong}");
    }
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
