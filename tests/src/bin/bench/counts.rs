//! Counts the requests of runs to the table, from the lifecycle webhook to the accepted notification.
//!
//! The functions are real, behind a real HTTP server. Each run has its own in-process table and bucket. `sweep` runs
//! every second. Its queries of the index are not counted, because the schedule sends them without a run, too. Its
//! other requests are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use ebb_api::{ApiTokens, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_engine::{Hook, Millis, TargetPhase};
use ebb_flow::background::BackgroundTasks;
use ebb_flow::system::SystemClock;
use ebb_flow::telemetry::{InvocationOrigin, Telemetry};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::engine::RunPhase;
use ebb_protocol::id::{self, RunId, TargetKey};
use ebb_relay_client::PollEndpoint;
use ebb_store::TableUsage;
use ebb_tests::fakes;
use ebb_tests::platform::sandbox;
use ebb_tests::receiver::{CallbackReply, CannedReply, TestReceiver};
use serde_json::json;
use tokio::task::JoinSet;

mod figures;
pub(crate) mod shapes;

use crate::measured_store::MeasuredStore;
use figures::CountRow;
use shapes::{CountCase, MIN_UNITS, ResultDelivery, RunShape, UnitOutputs};

const NAME: &str = "measured";
const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
/// Maximum duration of a run.
const RUN_TIMEOUT: Duration = Duration::from_secs(900);

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
                    let case = CountCase { shape, units, outputs, answers };
                    let row = CountRow { case, cost: Box::pin(run(case)).await? };
                    eprintln!("{}: done", row.name());
                    rows.push(row);
                }
            }
        }
    }
    println!("{}", figures::drawn(&rows));
    Ok(if arguments.check { rows.iter().flat_map(CountRow::broken).collect() } else { Vec::new() })
}

/// The cost of one run.
struct RunCost {
    figures: TableUsage,
    messages: usize,
    webhooks: usize,
    /// From the lifecycle webhook to the closed run.
    took: Duration,
    /// From the lifecycle webhook to the start of the run.
    begun: Duration,
}

/// Runs a case.
///
/// # Errors
/// If the target does not become ready.
async fn run(case: CountCase) -> anyhow::Result<RunCost> {
    let receiver = TestReceiver::start().await;
    receiver.on("POST /work", move |call, _| {
        let outputs = match case.outputs {
            UnitOutputs::Kept => json!({"id": format!("made-by-{}", call.body["unit"].as_str().unwrap_or("?"))}),
            UnitOutputs::Nothing => json!({}),
        };
        match case.answers {
            ResultDelivery::AtOnce => CallbackReply::from(CannedReply::ok(outputs)),
            ResultDelivery::Later => {
                let result = json!({"status": "succeeded", "outputs": outputs});
                CannedReply::status(202).then(async { vec![result] })
            }
        }
    });
    let stored = MeasuredStore::new().await?;
    let MeasuredStore { unmetered, store, meter, .. } = &stored;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("the functions' port")?;
    let settings = fakes::settings(
        &format!("http://{}", listener.local_addr()?),
        Some(format!("{}/outcomes", receiver.url())),
        Millis(900_000),
    );
    let (queue, traffic, messages) = fakes::channel();
    let client = Arc::new(HttpClient::new(Policy::with_loopback())?);
    let env = Arc::new(fakes::env(store.clone(), client, Arc::new(queue), settings));
    let server = ServerState {
        env: Arc::clone(&env),
        tokens: Arc::new(ApiTokens::default()),
        poll_endpoint: Arc::new(PollEndpoint::new(Arc::default(), store.clone(), Arc::new(SystemClock))),
    };
    // The tasks end with the case.
    let mut tasks = JoinSet::new();
    // What a request leaves for after its response runs as a task, as in a function.
    let (telemetry, background) = (Arc::new(Telemetry::default()), Arc::new(BackgroundTasks::default()));
    let router = ebb_api::complete(server);
    let router = ebb_api::instrument_router(telemetry, router, &background, |_| InvocationOrigin::default());
    tasks.spawn(async move { drop(axum::serve(listener, router).await) });
    tasks.spawn(fakes::process_messages(Arc::clone(&env), Arc::clone(&traffic), messages));
    let (sweeper, index) = (Arc::clone(&env), Arc::clone(unmetered));
    tasks.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Err(error) = Box::pin(ebb_flow::sweep::sweep(&sweeper, index.as_ref())).await {
                eprintln!("the sweep failed: {error}");
            }
        }
    });

    let plugin = shapes::plugin(case, &format!("{}/work", receiver.url()));
    stored.publish(&plugin, env.now()).await?;
    // A function instance reads the subscriptions once a minute, whatever the number of runs.
    ebb_flow::instance::outbox::rules(&env).await?;
    meter.take();
    let began = Instant::now();
    let event = sandbox(NAME, UID, shapes::RESOURCES);
    let created = async {
        let response = ebb_flow::lifecycle::receive(&env, store.as_ref(), (LifecycleType::Created, "bench"), &event);
        let response = Box::pin(response).await;
        response.map(drop).map_err(|error| anyhow::anyhow!("the target is not created: {error:?}"))
    };
    let run = RunId::new(&id::instance_key(&event.kind, NAME, UID), 1, Hook::PreStart);
    let begun = async {
        while unmetered.read_run(&run).await?.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            ensure!(began.elapsed() < RUN_TIMEOUT, "the run has not started after {RUN_TIMEOUT:?}");
        }
        anyhow::Ok(began.elapsed())
    };
    let ((), begun) = tokio::try_join!(created, begun)?;
    // Waits until the target is ready, the notification is accepted, and no request is in flight.
    loop {
        let target = unmetered.read_target(TargetKey::new(&event.kind, NAME)).await?.context("the target is gone")?;
        if target.phase == TargetPhase::Failed {
            bail!("the target has failed: {:?}", ebb_flow::instance::notify::first_cause(&env, &target).await?);
        }
        let present = unmetered.read_run(&run).await?.context("the run is gone")?;
        // The run is closed once the platform has accepted the notification.
        let over = target.phase == TargetPhase::Ready && target.due.is_none();
        let closed = present.head.phase == RunPhase::Closed;
        if over && closed && receiver.calling_back() == 0 && traffic.pending() == 0 {
            break;
        }
        let phases = (target.phase, present.head.phase);
        ensure!(began.elapsed() < RUN_TIMEOUT, "after {RUN_TIMEOUT:?} the target and its run are {phases:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = began.elapsed();
    if let Some(error) = traffic.failed().first() {
        bail!("a message failed: {error}");
    }
    let refused = receiver.called_back().iter().filter(|status| !(200..300).contains(*status)).count();
    ensure!(refused == 0, "{refused} callbacks were not accepted");
    let webhooks = receiver.count("POST /work");
    Ok(RunCost { figures: meter.take(), messages: traffic.sent(), webhooks, took, begun })
}
