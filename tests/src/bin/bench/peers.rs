//! Compares Ebb with Restate, which does the same work on this machine. A unit is a request to one receiver, which
//! answers 202 and calls back with a result. The engines are measured one after the other in each round.
//!
//! Progress is printed to standard error, the table to standard output.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use ebb_tests::figures::median;
use ebb_tests::receiver::{CannedReply, TestReceiver};
use ebb_tests::workdir::Workdir;
use futures::future::try_join_all;
use serde_json::json;
use tokio::process::Child;

pub(crate) mod ebb;
pub(crate) mod process_tree;
mod restate;

use ebb::EbbServer;
use process_tree::{TreeUsage, usage};
use restate::RestateServer;

use crate::shapes::{RunGraph, RunShape, UnitOutputs};

/// Minimum number of timed runs, such as those of a graph in a round.
const MIN_RUNS: usize = 3;
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// The measurements, and their duration.
#[derive(clap::Args)]
pub(crate) struct PeersArgs {
    /// Number of rounds. An additional first round warms up and does not count
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Number of concurrent callers
    #[arg(long, default_value_t = 32)]
    callers: usize,
    /// Time for each measurement of an engine in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    seconds: u64,
    /// Measure Ebb without Restate, which is then not installed
    #[arg(long)]
    only_ebb: bool,
    /// Measurements to make instead of all
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', num_args = 1..)]
    shapes: Vec<PeerShape>,
    /// Further argument of `ebb dev`, such as --dev=--retention-days=0; can be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    dev: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerShape {
    /// A run of one unit
    One,
    /// Ten units, one after the other
    Chain,
    /// One unit, then ten, then one
    Fan10,
    /// One unit, then a hundred, then one
    Fan100,
    /// Chains of ten units by all callers, with CPU and memory
    Load,
}

/// Returns units. Each waits for the previous one.
pub(crate) const fn chain(units: usize) -> RunGraph {
    RunGraph { shape: RunShape::Chain, units, outputs: UnitOutputs::Kept }
}

/// Returns one unit, then this number at the same time, then one.
const fn fan(width: usize) -> RunGraph {
    RunGraph { shape: RunShape::Diamond, units: width + 2, outputs: UnitOutputs::Kept }
}

const GRAPHS: [RunGraph; 4] = [chain(1), chain(10), fan(10), fan(100)];

/// The titles of rows and their values in one round.
type PeerFigures = Vec<(&'static str, f64)>;

/// A running engine. It ends when this is dropped.
enum RunningEngine {
    Ebb(Box<EbbServer>),
    Restate(Box<RestateServer>),
}

impl RunningEngine {
    fn name(&self) -> &'static str {
        match self {
            Self::Ebb(_) => "Ebb",
            Self::Restate(_) => "Restate",
        }
    }

    /// Returns the version, the state that is stored when the engine answers, and the failures that it survives.
    fn note(&self, dev: &[String]) -> String {
        match self {
            Self::Ebb(_) => {
                let durability = match dev.iter().any(|argument| argument.ends_with("full")) {
                    true => "log of SQLite, synced before the answer: survives a power failure",
                    false => "log of SQLite, written before the answer and not synced: survives the end of the process",
                };
                let version = format!("ebb {} dev {}", env!("CARGO_PKG_VERSION"), dev.join(" "));
                format!("{}; {durability}", version.trim())
            }
            Self::Restate(server) => server.note.clone(),
        }
    }

    async fn run(&self, graph: RunGraph) -> anyhow::Result<()> {
        let run = async {
            match self {
                Self::Ebb(server) => server.run(graph, 1).await,
                Self::Restate(server) => server.run(graph).await,
            }
        };
        tokio::time::timeout(RUN_TIMEOUT, run).await.with_context(|| format!("{graph:?} has not ended in time"))?
    }

    /// Returns what the engine has used, without and with its worker.
    fn usage(&self) -> anyhow::Result<(TreeUsage, TreeUsage)> {
        let pids = match self {
            Self::Ebb(server) => vec![server.dev.pid()],
            Self::Restate(restate) => restate.processes.iter().filter_map(Child::id).collect(),
        };
        Ok((usage(&pids[..1])?, usage(&pids)?))
    }
}

pub(crate) const UNIT_REQUESTS: &str = "POST /units";

/// Returns the receiver of the units of both engines: it answers 202 and calls back.
pub(crate) async fn unit_receiver() -> TestReceiver {
    let receiver = TestReceiver::start().await;
    receiver.on(UNIT_REQUESTS, |_, _| {
        let result = json!({"status": "succeeded", "outputs": {"id": "done"}});
        CannedReply::status(202).then(async { vec![result] })
    });
    receiver
}

pub(crate) async fn compared(arguments: &PeersArgs) -> anyhow::Result<()> {
    ensure!(arguments.rounds > 0 && arguments.callers > 0, "--rounds and --callers are at least 1");
    let receiver = unit_receiver().await;
    let dev: Vec<&str> = arguments.dev.iter().map(String::as_str).collect();
    let server = Box::pin(EbbServer::start(&receiver, Workdir::with(&dev), &GRAPHS)).await?;
    let mut engines = vec![RunningEngine::Ebb(Box::new(server))];
    if !arguments.only_ebb {
        let server = Box::pin(RestateServer::start(&receiver)).await.context("Restate does not start")?;
        engines.push(RunningEngine::Restate(Box::new(server)));
    }
    let mut figures: Vec<Vec<PeerFigures>> = vec![Vec::new(); engines.len()];
    for round in 0..=arguments.rounds {
        let mut order: Vec<_> = engines.iter().zip(&mut figures).collect();
        // No engine is always the one after another.
        if round % 2 == 1 {
            order.reverse();
        }
        for (engine, rounds) in order {
            eprintln!("round {round} of {}: {}", arguments.rounds, engine.name());
            let values = Box::pin(measured(engine, &receiver, arguments)).await;
            let values = values.with_context(|| format!("{} failed in round {round}", engine.name()))?;
            if round > 0 {
                rounds.push(values);
            }
        }
    }
    let names: Vec<&str> = engines.iter().map(RunningEngine::name).collect();
    let cores = std::thread::available_parallelism()?;
    println!("{}", drawn(&names, &figures));
    println!("medians of {} rounds (least–greatest); {} callers; {cores} cores", arguments.rounds, arguments.callers);
    for engine in &engines {
        println!("{}: {}", engine.name(), engine.note(&arguments.dev));
    }
    Ok(())
}

async fn measured(
    engine: &RunningEngine,
    receiver: &TestReceiver,
    arguments: &PeersArgs,
) -> anyhow::Result<PeerFigures> {
    let phase = Duration::from_secs(arguments.seconds);
    let shapes = if arguments.shapes.is_empty() { PeerShape::value_variants() } else { &arguments.shapes };
    let mut values = Vec::new();
    for shape in shapes {
        receiver.forget();
        let alone = match shape {
            PeerShape::One => Some((chain(1), "run of one unit, ms")),
            PeerShape::Chain => Some((chain(10), "chain of 10, ms per unit")),
            PeerShape::Fan10 => Some((fan(10), "1→10→1, ms per unit")),
            PeerShape::Fan100 => Some((fan(100), "1→100→1, ms per unit")),
            PeerShape::Load => None,
        };
        let units = if let Some((graph, title)) = alone {
            let times = timed(phase, async || engine.run(graph).await).await?;
            values.push((title, median(&times) / graph.units as f64));
            times.len() * graph.units
        } else {
            loaded(engine, arguments.callers, phase, &mut values).await?
        };
        let received = receiver.count(UNIT_REQUESTS);
        ensure!(received >= units, "{received} units were received of {units}");
        if received > units {
            eprintln!("{received} units were received of {units}: some were sent again");
        }
    }
    Ok(values)
}

/// Runs something again and again, one run at a time. Returns the time of each run, in ms.
pub(crate) async fn timed(phase: Duration, run: impl AsyncFn() -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < MIN_RUNS || began.elapsed() < phase {
        let begun = Instant::now();
        run().await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Runs chains by several callers. Adds units per second, CPU and memory, and returns the number of units.
async fn loaded(
    engine: &RunningEngine,
    callers: usize,
    phase: Duration,
    values: &mut PeerFigures,
) -> anyhow::Result<usize> {
    let graph = chain(10);
    let (engine_before, all_before) = engine.usage()?;
    let began = Instant::now();
    let runs: usize = try_join_all((0..callers).map(|_| caller(engine, graph, began + phase))).await?.iter().sum();
    let (seconds, units) = (began.elapsed().as_secs_f64(), runs * graph.units);
    let (engine_after, all_after) = engine.usage()?;
    let cpu = |before: f64, after: f64| (after - before) * 1e6 / units as f64;
    values.extend([
        ("units/s, all callers, chains of 10", units as f64 / seconds),
        ("memory of the engine, MiB", engine_after.memory_mib),
        ("memory with the worker, MiB", all_after.memory_mib),
        ("CPU of the engine, µs per unit", cpu(engine_before.cpu_seconds, engine_after.cpu_seconds)),
        ("CPU with the worker, µs per unit", cpu(all_before.cpu_seconds, all_after.cpu_seconds)),
    ]);
    Ok(units)
}

async fn caller(engine: &RunningEngine, graph: RunGraph, end: Instant) -> anyhow::Result<usize> {
    let mut runs = 0;
    while runs == 0 || Instant::now() < end {
        engine.run(graph).await?;
        runs += 1;
    }
    Ok(runs)
}

/// Returns the medians with the least and the greatest value, as a table in Markdown. Each engine has a name and the
/// figures of at least one round.
fn drawn(names: &[&str], figures: &[Vec<PeerFigures>]) -> String {
    let ratio = (names.len() > 1).then(|| names.join(" / "));
    let titles: Vec<String> = names.iter().map(|&name| name.to_owned()).chain(ratio).collect();
    let mut text = line("", &titles) + &line("---", &vec!["---".to_owned(); titles.len()]);
    for (row, (title, _)) in figures[0][0].iter().enumerate() {
        let values: Vec<Vec<f64>> =
            figures.iter().map(|rounds| rounds.iter().map(|round| round[row].1).collect()).collect();
        let mut cells: Vec<String> = values.iter().map(|values| cell(values)).collect();
        if let [ebb, restate] = values.as_slice() {
            cells.push(format!("{:.2}", median(ebb) / median(restate)));
        }
        text += &line(title, &cells);
    }
    text
}

fn line(title: &str, cells: &[String]) -> String {
    format!("| {title} | {} |\n", cells.join(" | "))
}

fn cell(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let digits = if median(values) < 100.0 { 2 } else { 0 };
    format!("{:.digits$} ({least:.digits$}–{most:.digits$})", median(values))
}
