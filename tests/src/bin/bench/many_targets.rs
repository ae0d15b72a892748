//! Sets up and tears down many targets on one `ebb dev`, in two rounds. Checks that each resource is created once and
//! deleted once, and that the memory of the server does not grow in the second round.
//!
//! Progress is printed to standard error, figures to standard output.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::ensure;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::{GONE, LifecycleData, READY};
use ebb_protocol::sign::WebhookSecret;
use ebb_tests::platform::{SignedRequest, http, sandbox};
use ebb_tests::receiver::TestReceiver;
use ebb_tests::workdir::{DevProcess, Workdir};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use crate::memory_mib;

/// Allowed growth of resident memory in the second round, in MiB, in addition to [`GROWTH`]. An allocator does not
/// release every page.
const SLACK: f64 = 8.0;
/// Allowed growth relative to the memory after the first round.
const GROWTH: f64 = 0.1;
/// Number of concurrent requests.
const CONCURRENT_REQUESTS: usize = 64;
/// Maximum time without a request before all targets reached their phase.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The size of the load.
#[derive(clap::Args)]
pub(crate) struct ManyTargetsArgs {
    /// Number of targets
    #[arg(long, default_value_t = 1_000)]
    targets: usize,
}

/// Sets up and tears down all targets, twice.
pub(crate) async fn measured(arguments: &ManyTargetsArgs) -> anyhow::Result<()> {
    let receiver = TestReceiver::start().await;
    receiver.always("*", 204);
    receiver.always("POST /things", json!({"id": "made"}));
    let place = Workdir::with(&["--platform-url", &format!("{}/outcomes", receiver.url())]);
    let dev = place.dev().await;
    place.apply("plugin", &PLUGIN.replace("RECEIVER", receiver.url())).await;
    let memory = |field| memory_mib(&format!("{}/status", dev.pid()), field);
    let targets = arguments.targets;
    println!("{targets} targets; {:.0} MiB at the start", memory("VmRSS")?);
    let mut resident = Vec::new();
    for round in 1..=2 {
        let time = Instant::now();
        let events: Vec<LifecycleData> = (0..targets)
            .map(|number| {
                let name = format!("target-{round}-{number}");
                sandbox(&name, &name, "cluster: local\nresources:\n  thing: {plugin: thing@1.0.0}\n")
            })
            .collect();
        let mut times = Vec::new();
        for (event_type, outcome, deletions) in [(LifecycleType::Created, READY, 0), (LifecycleType::Deleted, GONE, 1)]
        {
            send_events(&dev, event_type, &events).await?;
            wait_for_outcome(&receiver, &events, outcome).await?;
            times.push(time.elapsed().as_secs_f64());
            eprintln!("round {round}: all {outcome}");
            check_objects(&receiver, &events, deletions)?;
        }
        let (now, most) = (memory("VmRSS")?, memory("VmHWM")?);
        println!(
            "round {round}: all ready after {:.1} s, all gone after {:.1} s; {now:.0} MiB resident, {most:.0} MiB at most",
            times[0], times[1]
        );
        resident.push(now);
    }
    dev.stop().await;
    let (first, second) = (resident[0], resident[1]);
    ensure!(
        second <= first + SLACK + first * GROWTH,
        "{second:.0} MiB after the second round, {first:.0} MiB after the first"
    );
    println!("{targets} resources were created once and deleted once in each round; memory does not grow");
    Ok(())
}

/// Sends a webhook for each target.
async fn send_events(dev: &DevProcess, event_type: LifecycleType, events: &[LifecycleData]) -> anyhow::Result<()> {
    let (http, url, secret) = (http(), format!("{}/v1/events", dev.url), WebhookSecret::parse(&dev.secret)?);
    let posts = events.iter().map(async |event| {
        let mut event = event.clone();
        event.document = event.document.filter(|_| event_type == LifecycleType::Created);
        let response = SignedRequest::lifecycle(&secret, event_type, &event).post(&http, &url).send().await?;
        let (status, text) = (response.status(), response.text().await?);
        ensure!(status == 202, "{event_type:?} of {}: {status} {text}", event.name);
        anyhow::Ok(())
    });
    futures::stream::iter(posts).buffer_unordered(CONCURRENT_REQUESTS).try_collect().await
}

/// Waits until the last outcome of all targets is `wanted`. Fails if no request arrives for a while.
async fn wait_for_outcome(receiver: &TestReceiver, events: &[LifecycleData], wanted: &str) -> anyhow::Result<()> {
    let mut last = (0, Instant::now());
    loop {
        let outcomes = receiver.calls("POST /outcomes");
        let last_outcomes: BTreeMap<&str, &str> = outcomes
            .iter()
            .filter_map(|call| Some((call.body["data"]["name"].as_str()?, call.body["type"].as_str()?)))
            .collect();
        let left = events.iter().filter(|event| last_outcomes.get(&*event.name) != Some(&wanted)).count();
        if left == 0 {
            return Ok(());
        }
        if receiver.order().len() > last.0 {
            last = (receiver.order().len(), Instant::now());
        }
        ensure!(last.1.elapsed() < IDLE_TIMEOUT, "{left} of {} are not {wanted}", events.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Checks that each object was created once and deleted `deletions` times. Repeated requests have the same key.
fn check_objects(receiver: &TestReceiver, events: &[LifecycleData], deletions: usize) -> anyhow::Result<()> {
    let mut keys: BTreeMap<(String, bool), BTreeSet<String>> = BTreeMap::new();
    for call in receiver.all() {
        let name = match call.path().strip_prefix("/things") {
            Some("") => call.body["name"].as_str().unwrap_or_default(),
            Some(name) => &name[1..],
            None => continue,
        };
        let is_deletion = call.line.starts_with("DELETE ");
        keys.entry((name.to_owned(), is_deletion)).or_default().insert(call.header("idempotency-key").to_owned());
    }
    for event in events {
        let of = |is_deletion| keys.get(&(event.name.clone(), is_deletion)).map_or(0, BTreeSet::len);
        let found = (of(false), of(true));
        ensure!(found == (1, deletions), "{} was created {} times and deleted {} times", event.name, found.0, found.1);
    }
    Ok(())
}

/// An object that the receiver creates and deletes.
const PLUGIN: &str = r#"apiVersion: ebb.dev/v1
kind: Plugin
name: thing@1.0.0
defaults: {timeout: 5m, retry: {attempts: 10, backoff: 200ms, maxBackoff: 5s, on: [connect, timeout, 429, 5xx]}}
preStart:
  make:
    webhook: {url: "RECEIVER/things", body: {name: "${target.name}"}}
    outputs: {id: {value: "${response.body.id}"}}
postStop:
  drop: {undoes: make, webhook: {method: DELETE, url: "RECEIVER/things/${target.name}"}}
outputs: {id: "${units.make.outputs.id}"}
"#;
