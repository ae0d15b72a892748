//! Many targets at once on one `ebb dev`: all made, all taken away, and again. Nothing is left, nothing is made twice,
//! and the server's memory is after the second round what it was after the first.
//!
//! Progress goes to standard error, the figures to standard output.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;

mod documents;
mod memory;
mod platform;
mod receiver;

use memory::{ProcessMemory, mib};
use platform::BenchPlatform;
use receiver::ManyTargetsReceiver;

use crate::server::DevServer;

/// Resident memory may be larger after the second round by this many bytes, and by [`GROWTH`] of what it was: an
/// allocator does not give back every page.
const SLACK: u64 = 8 << 20;
/// A part of the memory after the first round.
const GROWTH: f64 = 0.1;

/// The size of the load.
#[derive(clap::Args)]
pub(crate) struct ManyTargetsArgs {
    /// Targets at once
    #[arg(long, default_value_t = 1_000)]
    targets: usize,
    /// So many of them have a unit that is a script
    #[arg(long, default_value_t = 10)]
    pods: usize,
    /// The program; without it the one beside this
    #[arg(long, value_name = "PATH")]
    ebb: Option<PathBuf>,
}

/// Makes and takes away all targets, twice.
pub(crate) async fn measured(arguments: &ManyTargetsArgs) -> anyhow::Result<()> {
    let receiver = ManyTargetsReceiver::start().await?;
    let server =
        DevServer::start(arguments.ebb.clone(), |dev| dev.args(["--platform-url", &receiver.outcomes()])).await?;
    server.apply("plugin", &documents::webhook_plugin(&receiver.url())).await?;
    server.apply("plugin", documents::POD_PLUGIN).await?;
    let platform = BenchPlatform::new(&server)?;
    let begun = ProcessMemory::of(server.pid())?;
    println!(
        "{} targets, {} of them with a script; {} MiB at first",
        arguments.targets,
        arguments.pods,
        mib(begun.resident)
    );
    let mut rounds = Vec::new();
    for round in 1..=2 {
        let time = Instant::now();
        let names: Vec<String> = (0..arguments.targets).map(|n| format!("target-{round}-{n}")).collect();
        let documents = names.iter().zip(0..).map(|(name, n)| documents::sandbox(name, n < arguments.pods));
        let documents: Vec<String> = documents.collect();
        platform.create(&names, &documents).await?;
        receiver.all_are(&names, receiver::READY).await?;
        let ready = time.elapsed();
        eprintln!("round {round}: all ready");
        receiver.expect_objects(&names, receiver::ObjectExpectation::Made)?;
        platform.delete(&names).await?;
        receiver.all_are(&names, receiver::GONE).await?;
        let gone = time.elapsed();
        eprintln!("round {round}: all gone");
        receiver.expect_objects(&names, receiver::ObjectExpectation::TakenAway)?;
        platform.all_are_gone(&names).await?;
        let memory = ProcessMemory::of(server.pid())?;
        println!(
            "round {round}: all ready after {:.1} s, all gone after {:.1} s; {} MiB resident, {} MiB at most",
            ready.as_secs_f64(),
            gone.as_secs_f64(),
            mib(memory.resident),
            mib(memory.peak)
        );
        rounds.push(memory);
    }
    server.stop().await?;
    let (first, second) = (rounds[0].resident, rounds[1].resident);
    let bound = first + SLACK + (first as f64 * GROWTH) as u64;
    ensure!(
        second <= bound,
        "{} MiB after the second round, {} MiB after the first: it grows",
        mib(second),
        mib(first)
    );
    println!("every make has one drop, twice {}; memory is flat", arguments.targets);
    Ok(())
}
