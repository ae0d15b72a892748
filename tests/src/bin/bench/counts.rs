//! Counts the requests of runs to the table, from the lifecycle webhook to the accepted notification.
//!
//! The functions are real and share a cache. Each run has its own in-process table and bucket, and virtual time, so the
//! figures are those of the functions and not of the machine. The queries of `sweep` for due items are not counted, because
//! the schedule sends them without a run, too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::bail;
use clap::ValueEnum;
use ebb_egress::HttpResponse;
use ebb_engine::TargetPhase;
use ebb_flow::telemetry::Telemetry;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_tests::platform::sandbox;
use serde::Serialize;
use serde_json::json;

mod figures;

use crate::shapes::{MIN_UNITS, RunGraph, RunShape, UnitOutputs};
use crate::virtual_stack::{LifePart, UID, VirtualFunctions, VirtualStack};
use figures::CountRow;

const NAME: &str = "measured";
const PLUGIN: &str = "measured@1.0.0";
/// The rest of the document of a target of the plugin.
const RESOURCES: &str = "cluster: local\nresources:\n  measured: {plugin: measured@1.0.0}\n";
/// The time of each step, in milliseconds. In it, messages without a delay and callbacks arrive.
const STEP: u64 = 1;

/// The choice of runs.
#[derive(clap::Args)]
pub(crate) struct CountsArgs {
    /// Units per run
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000])]
    sizes: Vec<usize>,
    /// Shapes of the graph of units. Default: all shapes
    #[arg(long, value_delimiter = ',')]
    shapes: Vec<RunShape>,
    /// When the receiver reports the result of a unit
    #[arg(long, value_delimiter = ',', default_value = "at-once")]
    answers: Vec<ResultDelivery>,
    /// Fail if a limit does not hold
    #[arg(long)]
    check: bool,
}

/// Runs all cases and prints their rows. With `--check`, returns the limits that do not hold.
pub(crate) async fn measured(arguments: &CountsArgs) -> anyhow::Result<Vec<String>> {
    if let Some(small) = arguments.sizes.iter().find(|&&size| size < MIN_UNITS) {
        bail!("a run needs at least {MIN_UNITS} units: {small}");
    }
    let shapes = if arguments.shapes.is_empty() { RunShape::value_variants() } else { &arguments.shapes };
    let mut rows = Vec::new();
    for outputs in [UnitOutputs::Kept, UnitOutputs::Nothing] {
        for &answers in &arguments.answers {
            for &shape in shapes {
                for &units in &arguments.sizes {
                    let case = CountCase { graph: RunGraph { shape, units, outputs }, answers };
                    let row = Box::pin(run(case)).await?;
                    eprintln!("{}: done", row.name());
                    rows.push(row);
                }
            }
        }
    }
    println!("{}", figures::drawn(&rows));
    Ok(if arguments.check { rows.iter().flat_map(CountRow::broken).collect() } else { Vec::new() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum ResultDelivery {
    /// In the response to the webhook.
    AtOnce,
    /// By a callback, after a response with 202.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountCase {
    graph: RunGraph,
    answers: ResultDelivery,
}

/// Runs a case.
///
/// # Errors
/// If the target does not become ready.
async fn run(case: CountCase) -> anyhow::Result<CountRow> {
    let outputs = match case.graph.outputs {
        UnitOutputs::Kept => json!({"id": "made-by-a-unit"}),
        UnitOutputs::Nothing => json!({}),
    };
    let reply = match case.answers {
        ResultDelivery::AtOnce => HttpResponse::new(200, outputs.to_string()),
        ResultDelivery::Later => HttpResponse::new(202, ""),
    };
    let stack = VirtualStack::new()?;
    let env = Arc::new(stack.env(stack.servers(reply), Some("https://platform.test".to_owned())));
    let (receive, complete, sweep) = (env.clone(), env.clone(), env.clone());
    let functions = VirtualFunctions { receive, complete, sweep, telemetry: Telemetry::default() };
    stack.publish(&case.graph.plugin(PLUGIN, "https://units.test/work")).await?;
    // A function instance reads the subscriptions once a minute, whatever the number of runs.
    ebb_flow::instance::outbox::rules(&env).await?;
    stack.meter.take();
    let part = LifePart {
        event_type: LifecycleType::Created,
        event: sandbox(NAME, UID, RESOURCES),
        phase: TargetPhase::Ready,
        work: STEP,
        linger: 0,
        result: json!({"status": "succeeded", "outputs": outputs}).to_string(),
    };
    let messages = Box::pin(stack.live(&functions, &part)).await?.messages;
    Ok(CountRow { case, figures: stack.meter.take(), messages, webhooks: stack.unit_requests.load(Ordering::Relaxed) })
}
