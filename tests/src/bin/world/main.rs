//! Lets worlds of random targets happen until enough lives have been lived, and says what was wrong with them.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use ebb_tests::sim::crowd::{Report, Trace, happen};
use ebb_tests::sim::{Mishap, Spared};

mod all;
mod shrink;

#[derive(Parser)]
#[command(name = "world", about = "Lives of random targets in a simulated world where anything may fail")]
struct Arguments {
    /// Live as many lives as this, in worlds whose seeds follow `--seed`; without it one world
    #[arg(long)]
    lives: Option<u64>,
    /// The seed of the world, or of the first one; without it a random one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// Worlds at a time
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Tell what happened in the world
    #[arg(long)]
    trace: bool,
    /// Kinds of mishaps to leave out, by name
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    without: Vec<Mishap>,
}

fn kind(name: &str) -> Result<Mishap, String> {
    Mishap::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Mishap::ALL.iter().map(|kind| kind.name()).collect();
        format!("the kinds are {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let spared = Spared::of(arguments.without.iter().copied());
    let seed = arguments.seed.unwrap_or_else(|| rand::random::<u32>().into());
    match arguments.lives {
        Some(lives) => all::live(lives, seed, arguments.threads, &spared),
        None => one(seed, &spared, if arguments.trace { Trace::Kept } else { Trace::Off }),
    }
}

fn one(seed: u64, spared: &Spared, trace: Trace) -> ExitCode {
    let begun = Instant::now();
    let report = happen(seed, spared, trace);
    for line in &report.story {
        println!("{line}");
    }
    println!(
        "world {seed}: {} lives, {} tries, {} invocations, {:?}",
        report.lives,
        report.tries,
        report.invocations,
        begun.elapsed()
    );
    for (kind, reached) in Mishap::ALL.iter().zip(&report.reached).filter(|(_, reached)| **reached > 0) {
        println!("  {kind}: {reached}");
    }
    verdict(&report)
}

fn verdict(report: &Report) -> ExitCode {
    for wrong in &report.wrong {
        println!("wrong: {wrong}");
    }
    if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
