//! Compares Ebb with other engines that do the same work on this machine. A unit is a request to one receiver, which
//! answers 202 and calls back with a result. The engines are measured one after the other in each round.
//!
//! Progress is printed to standard error, the table to standard output.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::ValueEnum;
use ebb_tests::figures::median;
use futures::future::try_join_all;

mod comparison;
pub(crate) mod ebb;
mod engines;
mod logged_child;
pub(crate) mod process_tree;
pub(crate) mod unit_receiver;

use comparison::{Comparison, PeerRow};
use engines::{EngineSetup, RunningEngine};
use unit_receiver::UnitReceiver;

/// Minimum number of runs of a graph in a round.
const MIN_RUNS: usize = 3;

/// The engines and measurements, and their duration.
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
    /// Engines to run instead of all
    #[arg(long, value_name = "ENGINE", value_delimiter = ',', num_args = 1..)]
    only: Vec<EngineKind>,
    /// Measurements to make instead of all
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', num_args = 1..)]
    shapes: Vec<PeerShape>,
    /// Further argument of `ebb dev`, such as --dev=--retention-days=0; can be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    dev: Vec<String>,
    /// Folder of the installed engines
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    tools: PathBuf,
    /// An engine that is not installed, and the reason
    #[arg(long, value_name = "ENGINE=REASON", hide = true)]
    missing: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum EngineKind {
    Ebb,
    Restate,
    Dbos,
    /// The development server
    Temporal,
}

impl EngineKind {
    fn title(self) -> &'static str {
        match self {
            Self::Ebb => "Ebb",
            Self::Restate => "Restate",
            Self::Dbos => "DBOS",
            Self::Temporal => "Temporal",
        }
    }
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

/// The units of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerGraph {
    /// Each unit waits for the previous one.
    Chain(usize),
    /// The first unit, then this number at the same time, then the last.
    Fan(usize),
}

impl PeerGraph {
    pub(crate) const ALL: [Self; 4] = [Self::Chain(1), Self::Chain(10), Self::Fan(10), Self::Fan(100)];

    /// Returns the name and the number that the workers of the other engines take.
    pub(crate) fn request(self) -> (&'static str, usize) {
        match self {
            Self::Chain(size) => ("chain", size),
            Self::Fan(size) => ("fan", size),
        }
    }

    /// Returns the names of the units. Each waits for all units of the layer before.
    pub(crate) fn layers(self) -> Vec<Vec<String>> {
        let (_, size) = self.request();
        let units = (0..size).map(|unit| format!("u{unit}"));
        match self {
            Self::Chain(_) => units.map(|unit| vec![unit]).collect(),
            Self::Fan(_) => vec![vec!["first".to_owned()], units.collect(), vec!["last".to_owned()]],
        }
    }

    pub(crate) fn units(self) -> usize {
        self.layers().iter().map(Vec::len).sum()
    }
}

/// Runs all engines in all rounds. Returns which failed.
pub(crate) async fn compared(arguments: &PeersArgs) -> anyhow::Result<Vec<String>> {
    ensure!(arguments.rounds > 0 && arguments.callers > 0, "--rounds and --callers are at least 1");
    let receiver = UnitReceiver::start().await?;
    // The engines run in folders of their own.
    let tools = std::path::absolute(&arguments.tools)?;
    let setup = EngineSetup { tools: &tools, dev: &arguments.dev, receiver: &receiver };
    let selected = if arguments.only.is_empty() { EngineKind::value_variants() } else { &arguments.only };
    let (mut engines, mut notes, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for &kind in selected {
        eprintln!("starting {}", kind.title());
        let mut missing = arguments.missing.iter().filter_map(|missing| missing.split_once('='));
        let missing = missing.find(|(name, _)| name.eq_ignore_ascii_case(kind.title()));
        let started = match missing {
            Some((_, reason)) => Err(anyhow::anyhow!("{reason}")),
            None => Box::pin(setup.start(kind)).await,
        };
        match started {
            Ok(engine) => {
                notes.push(format!("{}: {}; {}", kind.title(), engine.version, engine.durability));
                engines.push(engine);
            }
            Err(error) => notes.push(format!("{}: not started: {error:#}", kind.title())),
        }
    }
    let kinds: Vec<EngineKind> = engines.iter().map(|engine| engine.kind).collect();
    let mut comparison = Comparison::default();
    for round in 0..=arguments.rounds {
        let mut ended = Vec::new();
        for engine in &engines {
            eprintln!("round {round} of {}: {}", arguments.rounds, engine.kind.title());
            match Box::pin(measured(engine, &receiver, arguments)).await {
                Ok(values) if round > 0 => {
                    for (row, value) in values {
                        comparison.add(row, engine.kind, value);
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    failed.push(format!("{}: failed in round {round}: {error:#}", engine.kind.title()));
                    ended.push(engine.kind);
                }
            }
        }
        engines.retain(|engine| !ended.contains(&engine.kind));
        // No engine is always the one after another.
        engines.reverse();
    }
    if !kinds.is_empty() {
        let cores = std::thread::available_parallelism()?;
        println!("{}", comparison.drawn(&kinds));
        println!(
            "medians of {} rounds (least–greatest); {} callers; {cores} cores",
            arguments.rounds, arguments.callers
        );
    }
    for note in notes {
        println!("{note}");
    }
    Ok(failed)
}

/// Measures one engine in one round.
async fn measured(
    engine: &RunningEngine,
    receiver: &UnitReceiver,
    arguments: &PeersArgs,
) -> anyhow::Result<Vec<(PeerRow, f64)>> {
    let phase = Duration::from_secs(arguments.seconds);
    let shapes = if arguments.shapes.is_empty() { PeerShape::value_variants() } else { &arguments.shapes };
    let mut values = Vec::new();
    for shape in shapes {
        let before = receiver.units();
        let units = match shape {
            PeerShape::One => alone(engine, PeerGraph::Chain(1), PeerRow::One, phase, &mut values).await?,
            PeerShape::Chain => alone(engine, PeerGraph::Chain(10), PeerRow::Chain, phase, &mut values).await?,
            PeerShape::Fan10 => alone(engine, PeerGraph::Fan(10), PeerRow::Fan10, phase, &mut values).await?,
            PeerShape::Fan100 => alone(engine, PeerGraph::Fan(100), PeerRow::Fan100, phase, &mut values).await?,
            PeerShape::Load => loaded(engine, arguments.callers, phase, &mut values).await?,
        };
        let received = receiver.units() - before;
        ensure!(received >= units, "{received} units were received of {units}");
        if received > units {
            eprintln!("{received} units were received of {units}: some were sent again");
        }
    }
    Ok(values)
}

/// Runs a graph again and again, one run at a time. Adds the median time of a run per unit, in ms, and returns the
/// number of units.
async fn alone(
    engine: &RunningEngine,
    graph: PeerGraph,
    row: PeerRow,
    phase: Duration,
    values: &mut Vec<(PeerRow, f64)>,
) -> anyhow::Result<usize> {
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < MIN_RUNS || began.elapsed() < phase {
        let begun = Instant::now();
        engine.run(graph).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3 / graph.units() as f64);
    }
    values.push((row, median(&times)));
    Ok(times.len() * graph.units())
}

/// Runs chains by several callers. Adds units per second, CPU and memory, and returns the number of units.
async fn loaded(
    engine: &RunningEngine,
    callers: usize,
    phase: Duration,
    values: &mut Vec<(PeerRow, f64)>,
) -> anyhow::Result<usize> {
    let graph = PeerGraph::Chain(10);
    let (engine_before, all_before) = engine.usage()?;
    let began = Instant::now();
    let runs: usize = try_join_all((0..callers).map(|_| caller(engine, graph, began + phase))).await?.iter().sum();
    let (seconds, units) = (began.elapsed().as_secs_f64(), runs * graph.units());
    let (engine_after, all_after) = engine.usage()?;
    let cpu = |before: f64, after: f64| (after - before) * 1e6 / units as f64;
    values.extend([
        (PeerRow::Throughput, units as f64 / seconds),
        (PeerRow::Memory, engine_after.memory_mib),
        (PeerRow::MemoryWithWorker, all_after.memory_mib),
        (PeerRow::Cpu, cpu(engine_before.cpu_seconds, engine_after.cpu_seconds)),
        (PeerRow::CpuWithWorker, cpu(all_before.cpu_seconds, all_after.cpu_seconds)),
    ]);
    Ok(units)
}

/// Starts runs, one at a time, until `end`. Returns their number.
async fn caller(engine: &RunningEngine, graph: PeerGraph, end: Instant) -> anyhow::Result<usize> {
    let mut runs = 0;
    while runs == 0 || Instant::now() < end {
        engine.run(graph).await?;
        runs += 1;
    }
    Ok(runs)
}
