//! Measures one `ebb dev` over decades of runs, of units per run and of gone targets. Each size has a fresh server.
//!
//! Progress is printed to standard error, figures to standard output.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_engine::TargetPhase;
use ebb_local::embedded::{EmbeddedTable, StateDurability};
use ebb_store::item_table::{ItemKey, ItemPut, WriteExpression};
use ebb_store::{ItemTable as _, MemoryTable, Store, TargetHead, TargetTransition};
use ebb_tests::figures::{median, memory_mib};
use ebb_tests::platform;
use ebb_tests::receiver::TestReceiver;
use ebb_tests::simulation::KIND;
use ebb_tests::stored_bytes::files;
use ebb_tests::workdir::Workdir;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::peers::ebb::EbbServer;
use crate::peers::process_tree::usage;
use crate::peers::{UNIT_REQUESTS, chain, timed, unit_receiver};
use crate::shapes::RunGraph;

/// Units of a resource of a sandbox. A sandbox has at most 500 resources, and 1,000 units in a hook.
const UNITS: usize = 20;
/// Sandboxes of each size, one after the other.
const SANDBOXES: usize = 10;
/// Items of a transaction that writes gone targets.
const BATCH: usize = 100;
const RUN_TIMEOUT: Duration = Duration::from_secs(900);

/// Allowed ratio of CPU per unit, and of the time of a run, to those of the first size.
const RATIO: f64 = 1.3;
/// Minimum number of units whose CPU is compared. For fewer, the resolution of CPU time is too low.
const MIN_UNITS: usize = 1_000;
/// Allowed growth of resident memory from the first number of runs to the last, in MiB.
const RUNS_GROWTH_MIB: f64 = 64.0;
/// The same for units. A sandbox is compiled in memory, and two plans are kept.
const UNITS_GROWTH_MIB: f64 = 192.0;

/// The sizes, each list in ascending order.
#[derive(clap::Args)]
pub(crate) struct ScaleArgs {
    /// Numbers of runs of a chain of ten units, by all callers
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000])]
    runs: Vec<usize>,
    /// Units of each of ten sandboxes, rounded up to a multiple of 20
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000])]
    units: Vec<usize>,
    /// Numbers of gone targets beside runs of one unit
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1_000, 100_000])]
    gone: Vec<usize>,
    /// Number of concurrent callers of the chains
    #[arg(long, default_value_t = 32)]
    callers: usize,
    /// Time of the runs beside each number of gone targets
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
}

struct DecadeLoad {
    size: usize,
    graph: RunGraph,
    resources: usize,
    runs: usize,
    callers: usize,
}

struct DecadeRow {
    size: usize,
    units: usize,
    units_per_second: f64,
    cpu_micros_per_unit: f64,
    resident_mib: f64,
    most_mib: f64,
    bytes_per_unit: f64,
}

/// Measures all sizes and returns the limits that do not hold.
pub(crate) async fn measured(arguments: &ScaleArgs) -> anyhow::Result<Vec<String>> {
    let ScaleArgs { runs, units, gone, callers, seconds } = arguments;
    ensure!([runs, units, gone].iter().all(|sizes| sizes.is_sorted()), "--runs, --units and --gone must ascend");
    ensure!(*callers > 0 && !runs.contains(&0) && !units.contains(&0), "--callers, --runs and --units are at least 1");
    let receiver = unit_receiver().await;
    let chains = runs.iter().map(|&runs| {
        let graph = chain(10);
        DecadeLoad { size: runs, graph, resources: 1, runs, callers: *callers }
    });
    let sandboxes = units.iter().map(|&units| {
        let (graph, resources) = (chain(UNITS), units.div_ceil(UNITS));
        DecadeLoad { size: units, graph, resources, runs: SANDBOXES, callers: 1 }
    });
    let mut broken = Box::pin(series(("runs", RUNS_GROWTH_MIB), &receiver, chains.collect())).await?;
    broken.extend(Box::pin(series(("units", UNITS_GROWTH_MIB), &receiver, sandboxes.collect())).await?);
    println!("     gone  ms per run");
    let mut times = Vec::new();
    for &gone in gone {
        eprintln!("{gone} gone targets");
        let ms = Box::pin(beside_gone(&receiver, gone, Duration::from_secs(*seconds))).await?;
        println!("{gone:>9} {ms:>11.2}");
        times.push((gone, ms));
    }
    if let (Some(&(fewest, first)), Some(&(most, last))) = (times.first(), times.last())
        && last > first * RATIO
    {
        let times = format!("{last:.2} ms with {most} gone targets, {first:.2} ms with {fewest}");
        broken.push(format!("a run takes {times}; the limit is {RATIO} times as long"));
    }
    Ok(broken)
}

/// Measures loads of ascending sizes, prints their rows, and returns the limits that do not hold.
async fn series(
    (name, growth_mib): (&str, f64),
    receiver: &TestReceiver,
    loads: Vec<DecadeLoad>,
) -> anyhow::Result<Vec<String>> {
    println!("{name:>9}   units/s  CPU µs/unit  MiB at the end  MiB at most  bytes/unit");
    let mut rows = Vec::new();
    for load in loads {
        eprintln!("{} {name}", load.size);
        let row = Box::pin(decade(receiver, &load)).await?;
        println!(
            "{:>9} {:>9.0} {:>12.0} {:>15.1} {:>12.1} {:>11.0}",
            row.size, row.units_per_second, row.cpu_micros_per_unit, row.resident_mib, row.most_mib, row.bytes_per_unit
        );
        rows.push(row);
    }
    let mut broken = Vec::new();
    let mut compared = rows.iter().filter(|row| row.units >= MIN_UNITS);
    if let Some(first) = compared.next() {
        let (least, limit) = (first.cpu_micros_per_unit, first.cpu_micros_per_unit * RATIO);
        broken.extend(compared.filter(|row| row.cpu_micros_per_unit > limit).map(|row| {
            let cpu = format!("{:.0} µs with {} {name}", row.cpu_micros_per_unit, row.size);
            format!("CPU per unit: {cpu}, {least:.0} µs with {}; the limit is {RATIO} times as much", first.size)
        }));
    }
    if let (Some(first), Some(last)) = (rows.first(), rows.last())
        && last.resident_mib > first.resident_mib + growth_mib
    {
        let memory = format!("{:.0} MiB after {} {name}", last.resident_mib, last.size);
        let least = format!("{:.0} MiB after {}", first.resident_mib, first.size);
        broken.push(format!("resident memory: {memory}, {least}; the limit is {growth_mib} MiB more"));
    }
    Ok(broken)
}

async fn decade(receiver: &TestReceiver, load: &DecadeLoad) -> anyhow::Result<DecadeRow> {
    let server = Box::pin(EbbServer::start(receiver, Workdir::new(), &[load.graph])).await?;
    let memory = |field| memory_mib(&format!("{}/status", server.dev.pid()), field);
    receiver.forget();
    let cpu_before = usage(&[server.dev.pid()])?.cpu_seconds;
    let began = Instant::now();
    let runs = (0..load.runs).map(|_| run(&server, load.graph, load.resources));
    futures::stream::iter(runs).buffer_unordered(load.callers).try_collect::<()>().await?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = usage(&[server.dev.pid()])?.cpu_seconds - cpu_before;
    let (resident_mib, most_mib) = (memory("VmRSS")?, memory("VmHWM")?);
    let (units, received) = (load.runs * load.resources * load.graph.units, receiver.count(UNIT_REQUESTS));
    ensure!(received >= units, "{received} units were received of {units}");
    // The table moves its log into its file when it closes.
    server.dev.stop().await;
    let sizes = files(&server.place.state()).into_iter().map(|file| Ok(file.metadata()?.len()));
    let bytes = sizes.sum::<std::io::Result<u64>>()?;
    Ok(DecadeRow {
        size: load.size,
        units,
        units_per_second: units as f64 / seconds,
        cpu_micros_per_unit: cpu_seconds * 1e6 / units as f64,
        resident_mib,
        most_mib,
        bytes_per_unit: bytes as f64 / units as f64,
    })
}

/// Returns the median time of a run of one unit, in ms, in a table with gone targets.
async fn beside_gone(receiver: &TestReceiver, gone: usize, time: Duration) -> anyhow::Result<f64> {
    let (place, graph) = (Workdir::new(), chain(1));
    let name = if gone > 0 { Some(Box::pin(fill_gone(&place.state(), gone)).await?) } else { None };
    let server = Box::pin(EbbServer::start(receiver, place, &[graph])).await?;
    if let Some(name) = name {
        let found = server.place.get(&name).await.info.phase;
        ensure!(found == TargetPhase::Gone, "{name} is {found:?} and should be gone");
    }
    Ok(median(&timed(time, async || run(&server, graph, 1).await).await?))
}

/// Writes gone targets, at least one, into the table of `ebb dev` in its state folder: the first by the store, the others
/// as copies of its item. Returns the name of the last one.
async fn fill_gone(state: &Path, count: usize) -> anyhow::Result<String> {
    let table = Arc::new(EmbeddedTable::open(state, StateDurability::Process)?);
    let store = Store::new(table.clone(), Arc::new(MemoryTable::default()));
    let name = |number: usize| format!("gone-{number:07}");
    let target = TargetHead {
        phase: TargetPhase::Gone,
        generation: 1,
        plugins: vec!["held@1.0.0".to_owned()],
        version: 1,
        ..TargetHead::new(KIND, &name(0), "uid-0", platform::now())
    };
    let transition = TargetTransition::new(target, None);
    ensure!(store.move_target(&transition).await?, "the first target exists already");
    let key = |number| format!("t#{KIND}#{}", name(number));
    let item = table.get(ItemKey::new(key(0), "h")).await?.value.context("the first target")?;
    let copy = |number: usize| {
        let mut item = item.clone();
        for (attribute, value) in [("uid", format!("uid-{number}")), ("pk", key(number)), ("n", name(number))] {
            item.insert(attribute.to_owned(), AttributeValue::S(value));
        }
        ItemPut { item, expression: WriteExpression::default() }
    };
    for from in (1..count).step_by(BATCH) {
        let puts: Vec<ItemPut> = (from..count.min(from + BATCH)).map(copy).collect();
        table.transact(&puts, "").await?;
    }
    Ok(name(count - 1))
}

async fn run(server: &EbbServer, graph: RunGraph, resources: usize) -> anyhow::Result<()> {
    let run = server.run(graph, resources);
    tokio::time::timeout(RUN_TIMEOUT, run).await.context("a run has not ended in time")?
}
