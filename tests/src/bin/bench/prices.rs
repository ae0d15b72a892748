//! Computes the price of a sandbox on AWS, from its creation to the removal of its data, from counted requests and list
//! prices. Each function has one instance with an empty cache. All units call back. Also computes the price of a month of an
//! idle cluster with the pull transport.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use ebb_egress::HttpResponse;
use ebb_engine::{Millis, TargetPhase};
use ebb_flow::ports::Clock as _;
use ebb_flow::telemetry::Telemetry;
use ebb_lambda::EmfSink;
use ebb_protocol::pull::IDLE_POLL_MS;
use ebb_protocol::{LifecycleData, LifecycleType, WebhookSecret};
use ebb_relay_client::{ClusterRegistry, PollEndpoint};
use ebb_store::item_table::ItemKey;
use ebb_store::suite::Meter;
use ebb_store::{ItemTable as _, TableSpec};
use ebb_tests::log_buffer::LogBuffer;
use serde_json::{Value, json};

use crate::shapes::{MIN_UNITS, RunGraph, RunShape, UnitOutputs};
use crate::virtual_stack::{HOUR, LifePart, UID, VirtualFunctions, VirtualStack, created};

/// Maximum price of a million units, in dollars.
const MAX_PRICE: f64 = 3.45;
/// Maximum price of an idle cluster in a month, in dollars.
const MAX_IDLE_PRICE: f64 = 1.0;
/// A month of 30 days, and the time between two scans for orphans, in milliseconds.
const MONTH: f64 = 30.0 * DAY as f64;
const SCAN: f64 = HOUR as f64 / 4.0;
/// Assumed duration of a poll that waits for nothing, in milliseconds.
const POLL_MS: f64 = 10.0;
/// The size and the duration of the prices in `costs.md`.
const UNITS: usize = 10;
const DURATION_MS: f64 = 100.0;
const NAME: &str = "priced";
const DAY: u64 = 24 * HOUR;
/// Duration of a unit, in milliseconds.
const WORK: u64 = 10_000;
/// A line of the HTTP API's access log, with the shortest values that API Gateway writes.
const LINE: &str = "1795341600 203.0.113.100 POST /v1/callbacks 204 1000 JKJaXmPLvHcESHA= -";

/// The size of the sandbox and the duration of invocations.
#[derive(clap::Args)]
pub(crate) struct PricesArgs {
    /// Setup units of a sandbox. Each has an undo
    #[arg(long, default_value_t = UNITS)]
    units: usize,
    /// Assumed duration of an invocation in milliseconds, including requests to receivers
    #[arg(long, default_value_t = DURATION_MS)]
    duration_ms: f64,
}

/// Prints the price and its parts. Returns an error if it exceeds the limit, and for each row of `costs.md` with another
/// price.
pub(crate) async fn priced(arguments: &PricesArgs) -> anyhow::Result<Vec<String>> {
    let units = arguments.units;
    ensure!(units >= MIN_UNITS, "a sandbox has at least {MIN_UNITS} units");
    let list: Value = serde_json::from_str(&file("infra/aws/prices.json")?)?;
    let millions = (2 * units) as f64 / 1e6;
    let parts = by_part(&list, Box::pin(amounts(arguments)).await?)?;
    let dollars: f64 = parts.values().sum();
    for (part, spent) in &parts {
        println!("{part:28}${:.3} of a million units, {:.0} %", spent / millions, 100.0 * spent / dollars);
    }
    let million = dollars / millions;
    let idle: f64 = by_part(&list, idle_amounts().await?)?.values().sum();
    println!("${idle:.3} for an idle cluster in a month");
    println!("${dollars:.7} for a sandbox of {units} units, which call back, and {units} that undo them");
    println!("${million:.2} for a million units");
    let exceeded = format!("a million units cost ${million:.4}, the limit is ${MAX_PRICE:.2}");
    let mut wrong: Vec<String> = (million > MAX_PRICE).then_some(exceeded).into_iter().collect();
    if idle > MAX_IDLE_PRICE {
        wrong.push(format!("an idle cluster costs ${idle:.3} a month, the limit is ${MAX_IDLE_PRICE:.2}"));
    }
    if (units, arguments.duration_ms) == (UNITS, DURATION_MS) {
        let page = file("docs/src/operations/costs.md")?;
        let rows = [
            ("one million units, as sandboxes of 10 units and 10 undos", million),
            ("upper bound", MAX_PRICE),
            ("idle cluster with pull, per month", idle),
        ];
        let rows = parts.into_iter().map(|(part, spent)| (part, spent / millions)).chain(rows);
        for (name, usd) in rows {
            let (begin, price) = (format!("| {name} |"), format!("| {usd:.2} $ |"));
            if !page.lines().any(|line| line.starts_with(&begin) && line.contains(&price)) {
                wrong.push(format!("docs/src/operations/costs.md has no row {begin} … {price}"));
            }
        }
    }
    Ok(wrong)
}

/// Prints amounts, and returns their prices by part.
fn by_part<'a>(list: &'a Value, amounts: Vec<(&'static str, f64)>) -> anyhow::Result<BTreeMap<&'a str, f64>> {
    let mut parts = BTreeMap::new();
    for (name, amount) in amounts {
        let price = &list["prices"][name];
        let (usd, per) = price["usd"].as_f64().zip(price["per"].as_f64()).context(name)?;
        println!("{name:16}{amount:>10.3} at ${usd} for {per}");
        *parts.entry(price["part"].as_str().context(name)?).or_default() += amount * usd / per;
    }
    Ok(parts)
}

/// Returns the amounts of a month for an idle cluster with pull: its polls, each the first one of a function, and the scans
/// for orphans, each of which waits for a poll.
async fn idle_amounts() -> anyhow::Result<Vec<(&'static str, f64)>> {
    let stack = VirtualStack::new()?;
    let secret = WebhookSecret::from_bytes(&[7; 32])?;
    let clusters = json!({NAME: {"secret": *secret.reveal(), "uid": UID, "entrypointImage": "entrypoint"}});
    let clusters = ClusterRegistry::parse(&clusters.to_string()).map_err(anyhow::Error::msg)?;
    let clusters = Arc::new(clusters.with_registered(stack.store.clone(), secret.into()));
    let endpoint =
        PollEndpoint::new(Arc::clone(&clusters), stack.store.clone(), stack.clock.clone(), Some(IDLE_POLL_MS));
    let cluster = clusters.connected().await?.pop().context(NAME)?;
    let poll = json!({"v": 1, "cluster": UID, "waitMs": 0}).to_string();
    endpoint.poll(&cluster, poll.as_bytes()).await.map_err(|error| anyhow!("the poll is refused: {error:?}"))?;
    let (polls, scans) = (MONTH / IDLE_POLL_MS as f64, MONTH / SCAN);
    let [_, (_, reads), ..] = requests(&stack.meter);
    // A scan stores a batch and its reply, and deletes them. The reply is a request of its own.
    let seconds = (polls * POLL_MS + scans * IDLE_POLL_MS as f64) / 1000.0;
    Ok(vec![
        ("lambda-request", polls + scans),
        ("lambda-arm64", seconds * 256.0 / 1024.0),
        ("http-api", polls + scans),
        ("logs", (polls + scans) * (LINE.len() + 1) as f64),
        ("dynamodb-write", 4.0 * scans),
        ("dynamodb-read", reads * polls + 8.0 * scans),
    ])
}

fn file(name: &str) -> anyhow::Result<String> {
    let path = format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).with_context(|| name.to_owned())
}

/// Returns the amounts of an instance, followed by those of its removal.
async fn amounts(arguments: &PricesArgs) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let template: Value = serde_saphyr::from_str(&file("template.yaml")?)?;
    let default = |name: &str| &template["Parameters"][name]["Default"];
    let format = template["Resources"]["HttpApiStage"]["Properties"]["AccessLogSettings"]["Format"].as_str();
    let same = format.is_some_and(|format| format.split(' ').count() == LINE.split(' ').count());
    ensure!(same, "the access log of the HTTP API has another format: {format:?}");
    let filter = template["Globals"]["Function"]["Environment"]["Variables"]["RUST_LOG"].as_str();
    let level = default("LogLevel").as_str().context("LogLevel")?;
    let filter = filter.context("RUST_LOG")?.replace("${LogLevel}", level);
    let gb = default("CompleteMemory").as_f64().context("CompleteMemory")? / 1024.0;
    let lambda = if *default("Architecture") == "arm64" { "lambda-arm64" } else { "lambda-x86" };
    let has_function_url = *default("CallbackEndpoint") == "FunctionUrl";
    let retention = DAY * default("RetentionDays").as_u64().context("RetentionDays")?;

    let lines = LogBuffer::default();
    let printed = lines.clone();
    ebb_lambda::log_to(&filter, move || printed.clone());
    let telemetry = Telemetry::default().with_metrics(EmfSink::new("Ebb/ebb", Box::new(lines.clone())));
    let stack = VirtualStack::new()?;
    let VirtualStack { table, meter, clock, .. } = &stack;
    let servers = stack.servers(HttpResponse::new(202, ""));
    // Each function has its own cache.
    let env = || {
        let mut env = stack.env(servers.clone(), Some("https://platform.test".to_owned()));
        env.settings.retention = Some(Millis(retention));
        Arc::new(env)
    };
    let functions = VirtualFunctions { receive: env(), complete: env(), sweep: env(), telemetry };

    let graph = RunGraph { shape: RunShape::Diamond, units: arguments.units, outputs: UnitOutputs::Kept };
    let mut plugin = graph.plugin("measured@1.0.0", "https://units.test") + "postStop:\n";
    for unit in 0..arguments.units {
        let body = format!("{{id: \"${{units.u{unit}.outputs.id}}\"}}");
        let webhook = format!("{{url: \"https://units.test\", body: {body}}}");
        plugin += &format!("  d{unit}: {{undoes: u{unit}, webhook: {webhook}}}\n");
    }
    stack.publish(&plugin).await?;
    requests(meter);

    let created = created(NAME);
    let deleted = LifecycleData { document: None, ..created.clone() };
    let made = json!({"status": "succeeded", "outputs": {"id": "made-by-a-unit"}}).to_string();
    let undone = json!({"status": "succeeded"}).to_string();
    let (mut events, mut callbacks, mut received_messages) = (0.0, 0.0, 0.0);
    for (event_type, event, phase, result) in [
        (LifecycleType::Created, created, TargetPhase::Ready, made),
        (LifecycleType::Deleted, deleted, TargetPhase::Gone, undone),
    ] {
        // Late wake-ups cost, too.
        let part = LifePart { event_type, event, phase, work: WORK, linger: HOUR, result };
        let following = Box::pin(stack.live(&functions, &part)).await?;
        events += 1.0;
        callbacks += following.callbacks as f64;
        received_messages += following.messages as f64;
    }
    // Requests to function URLs are no requests to the HTTP API.
    let http_requests = if has_function_url { 0.0 } else { events + callbacks };
    let invocations = events + callbacks + received_messages;
    let bytes = lines.text().len() as f64 + http_requests * (LINE.len() + 1) as f64;
    let mut amounts = vec![
        ("lambda-request", invocations),
        (lambda, invocations * gb * arguments.duration_ms / 1000.0),
        ("http-api", http_requests),
        // Each message is sent, received and deleted.
        ("sqs", 3.0 * received_messages),
        ("logs", bytes),
    ];
    amounts.extend(requests(meter));
    clock.advance(retention);
    // DynamoDB removes items with a time to live.
    for item in table.scan()?.iter().filter(|item| item.contains_key(TableSpec::TTL)) {
        table.delete_batch(ItemKey::of(item).into_iter().collect()).await?;
    }
    let mut removed = 0;
    for _ in 0..2 {
        // The first round announces the removal.
        removed += ebb_flow::instance::retention::remove_expired(&functions.sweep, clock.now()).await?;
        clock.advance(functions.sweep.settings.removal_notice().0);
    }
    ensure!(removed == 1, "{removed} instances are removed after their retention");
    amounts.extend(requests(meter));
    Ok(amounts)
}

/// Returns the requests to the table and the bucket since the last call.
fn requests(meter: &Meter) -> [(&'static str, f64); 4] {
    let mut figures = meter.take();
    let gets = figures.objects.remove("GetObject").unwrap_or_default();
    // Deletions are free.
    figures.objects.retain(|name, _| name.contains("Object") && !name.starts_with("Delete"));
    [
        // Failed conditions cost write units, which the table does not report.
        ("dynamodb-write", figures.write_units + figures.refused_write_units as f64),
        ("dynamodb-read", figures.read_units),
        ("s3-put", figures.objects.values().sum::<u64>() as f64),
        ("s3-get", gets as f64),
    ]
}
