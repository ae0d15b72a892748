//! Many targets at once on one `ebb dev`: all are set up, all are torn down, and again. Every resource is created once and
//! deleted once, and the server's memory after the second round is that after the first.
//!
//! Progress goes to standard error, the figures to standard output.

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

/// Resident memory may be larger after the second round by so many MiB, and by [`GROWTH`] of what it was: an allocator does
/// not give back every page.
const SLACK: f64 = 8.0;
/// A part of the memory after the first round.
const GROWTH: f64 = 0.1;
/// Requests that are under way at a time.
const AT_ONCE: usize = 64;
/// The longest time without a request while targets are on their way.
const PATIENCE: Duration = Duration::from_secs(120);

/// The size of the load.
#[derive(clap::Args)]
pub(crate) struct ManyTargetsArgs {
    /// Targets at once
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
    let memory = |field| memory_mib(&dev.pid().to_string(), field);
    let targets = arguments.targets;
    println!("{targets} targets; {:.0} MiB at first", memory("VmRSS")?);
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
        for (asked, outcome, deletions) in [(LifecycleType::Created, READY, 0), (LifecycleType::Deleted, GONE, 1)] {
            announce(&dev, asked, &events).await?;
            all_are(&receiver, &events, outcome).await?;
            times.push(time.elapsed().as_secs_f64());
            eprintln!("round {round}: all {outcome}");
            objects_are(&receiver, &events, deletions)?;
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
        "{second:.0} MiB after the second round, {first:.0} MiB after the first: it grows"
    );
    println!("every make has one drop, twice {targets}; memory is flat");
    Ok(())
}

/// Sends a webhook for each target.
async fn announce(dev: &DevProcess, asked: LifecycleType, events: &[LifecycleData]) -> anyhow::Result<()> {
    let (http, url, secret) = (http(), format!("{}/v1/events", dev.url), WebhookSecret::parse(&dev.secret)?);
    let posts = events.iter().map(async |event| {
        let mut event = event.clone();
        event.document = event.document.filter(|_| asked == LifecycleType::Created);
        let answer = SignedRequest::lifecycle(&secret, asked, &event).post(&http, &url).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status == 202, "{asked:?} of {}: {status} {text}", event.name);
        anyhow::Ok(())
    });
    futures::stream::iter(posts).buffer_unordered(AT_ONCE).try_collect().await
}

/// Waits until the last outcome of all targets is `wanted`, for as long as requests arrive.
async fn all_are(receiver: &TestReceiver, events: &[LifecycleData], wanted: &str) -> anyhow::Result<()> {
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
        ensure!(last.1.elapsed() < PATIENCE, "{left} of {} are not {wanted}", events.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Checks that each object was created once, and deleted so many times. A request that is sent again has the same key.
fn objects_are(receiver: &TestReceiver, events: &[LifecycleData], deletions: usize) -> anyhow::Result<()> {
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
