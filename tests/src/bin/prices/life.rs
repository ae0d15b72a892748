//! One life from the webhook that creates it until it is gone, and what it asks of AWS: with one instance of each
//! function that knows nothing yet, and units that all answer later.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};
use async_trait::async_trait;
use aws_sdk_s3::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use ebb_engine::{Millis, TargetPhase};
use ebb_flow::complete::Taken;
use ebb_flow::observe::{Came, Function, Telemetry};
use ebb_flow::ports::Clock as _;
use ebb_flow::{Env, Warm};
use ebb_lambda::EmfLines;
use ebb_local::embedded::Table;
use ebb_outbound::{Call, CallError, Request, Response};
use ebb_store::suite::s3_bucket;
use ebb_store::{Dynamo, Meter, ReadTarget as _, S3Bucket, Store, TableSpec, item_size};
use ebb_tests::lines::Lines;
use ebb_tests::still::{Messages, Numbers, Time};
use ebb_tests::surroundings::{self, NoCluster};
use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::Lifecycle;
use ebb_wire::unit::CALLBACK_TOKEN;
use serde_json::json;

use crate::Arguments;
use crate::documents::{self, NAME};
use crate::stack::Stack;

/// Of table and bucket.
const NAME_OF_ALL: &str = "ebb";
const KIND: &str = "sandbox";
const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
/// 22 November 2026.
const THEN: u64 = 1_795_305_600_000;
const MINUTE: u64 = 60_000;
const DAY: u64 = 86_400_000;
/// Minutes after which a life has come to a halt.
const PATIENCE: u64 = 60;

/// What a life asks for.
pub(crate) struct Life {
    /// Units that were run.
    pub(crate) units: u64,
    pub(crate) write_units: f64,
    pub(crate) read_units: f64,
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    /// Messages to the queue; each is dealt with by an invocation.
    pub(crate) messages: u64,
    /// Webhooks of the platform that come in.
    pub(crate) webhooks: u64,
    /// Callbacks of units that come in.
    pub(crate) callbacks: u64,
    /// Bytes that the functions print.
    pub(crate) log_bytes: usize,
    /// Bytes that they print in a minute in which nothing is due.
    pub(crate) idle_log_bytes: usize,
    /// Read units of a minute in which nothing is due.
    pub(crate) idle_read_units: f64,
    /// The requests of its removal when its retention is over.
    pub(crate) removal: Removal,
    /// Bytes that stay until then: in the table what has no time to live, and in the bucket.
    pub(crate) kept: (usize, i64),
    /// Bytes that stay for good.
    pub(crate) stays: (usize, i64),
}

/// The requests of the removal of a life. It is part of an invocation of the schedule.
pub(crate) struct Removal {
    pub(crate) write_units: f64,
    pub(crate) read_units: f64,
    /// Lists of objects, which cost as much as puts.
    pub(crate) lists: u64,
}

impl Life {
    /// Invocations of functions.
    pub(crate) fn invocations(&self) -> u64 {
        self.webhooks + self.callbacks + self.messages
    }
}

/// The servers of the units and the platform: all calls back are kept.
#[derive(Clone, Default)]
struct Servers(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Call for Servers {
    async fn call(&self, request: Request) -> Result<Response, CallError> {
        let token = request.headers.into_iter().find(|(name, _)| name == CALLBACK_TOKEN);
        let status = if token.is_some() { 202 } else { 204 };
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.extend(token.map(|(_, token)| token));
        Ok(Response { status, headers: Vec::new(), body: Vec::new() })
    }
}

/// Counts requests to the bucket.
#[derive(Clone, Debug, Default)]
struct Objects {
    puts: Arc<AtomicU64>,
    gets: Arc<AtomicU64>,
}

impl Intercept for Objects {
    fn name(&self) -> &'static str {
        "Objects"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        settings: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        match settings.load::<Metadata>().map(Metadata::name) {
            Some("GetObject") => self.gets.fetch_add(1, Ordering::Relaxed),
            // Deleting costs nothing.
            Some("DeleteObject") => 0,
            _ => self.puts.fetch_add(1, Ordering::Relaxed),
        };
        Ok(())
    }
}

struct World {
    receive: Env,
    complete: Env,
    sweep: Env,
    /// Counted; what is looked at here is not.
    plugins: Arc<Store>,
    store: Store,
    clock: Arc<Time>,
    messages: Arc<Messages>,
    servers: Servers,
    unit_ms: u64,
    dealt_with: u64,
    webhooks: u64,
    callbacks: u64,
    telemetry: Telemetry,
}

/// Lambda's id of an invocation has as many characters.
fn came() -> Came {
    Came { request: UID.to_owned(), at: None }
}

/// Counts a life.
///
/// # Errors
/// What keeps it from its end.
pub(crate) async fn counted(arguments: &Arguments, stack: &Stack) -> anyhow::Result<Life> {
    let lines = Lines::default();
    let printed = lines.clone();
    ebb_lambda::log_to(&stack.filter, move || printed.clone());
    let telemetry = Telemetry::default()
        .with_figures(EmfLines::new(&format!("Ebb/{NAME_OF_ALL}"), Box::new(lines.clone())));
    let folder = tempfile::tempdir()?;
    let (dynamo, objects) = (Table::memory()?, Objects::default());
    ebb_store::table::create(&dynamo, NAME_OF_ALL).await?;
    let bucket = s3_bucket(folder.path()).await;
    let s3 = bucket.client().config().to_builder().interceptor(objects.clone()).build();
    let bucket = S3Bucket::new(aws_sdk_s3::Client::from_conf(s3), bucket.name());
    let unmetered = Store::new(Dynamo::new(dynamo.clone(), NAME_OF_ALL), Arc::new(bucket.clone()));
    let meter = Arc::new(Meter::new());
    let store = Arc::new(unmetered.clone().metered(meter.clone()));
    let (clock, servers) = (Arc::new(Time::at(THEN)), Servers::default());
    let messages = Arc::new(Messages::new(clock.clone()));
    // Each function has a memory of its own.
    let env = || -> anyhow::Result<Env> {
        let (url, outcomes) = ("https://ebb.test", "https://platform.test".to_owned());
        let mut settings = surroundings::settings(url, Some(outcomes), Millis(MINUTE))?;
        settings.retention = Some(Millis(stack.retention_days * DAY));
        Ok(Env {
            store: store.clone(),
            clock: clock.clone(),
            random: Arc::new(Numbers::default()),
            relay: Arc::new(NoCluster),
            outside: Arc::new(servers.clone()),
            platform: Arc::new(servers.clone()),
            queue: messages.clone(),
            settings,
            warm: Warm::default(),
        })
    };
    let (receive, complete, sweep) = (env()?, env()?, env()?);
    let published =
        ebb_flow::api::plugins::publish(&unmetered, &documents::plugin(arguments.units), clock.now()).await?;
    if let Err(refused) = published {
        bail!("the plugin is refused: {refused:?}");
    }
    let before = lines.text().len();
    let idle = Box::pin(ebb_flow::sweep::sweep(&sweep, store.as_ref()));
    telemetry.invoke(Function::Sweep, came(), idle).await?;
    ebb_flow::retention::round(&sweep, store.as_ref(), clock.now()).await?;
    let idle_read_units = meter.take().read_units;
    let begun = lines.text().len();
    let idle_log_bytes = begun - before;
    let published_bytes = in_bucket(&bucket).await?;
    objects.puts.store(0, Ordering::Relaxed);
    let unit_ms = u64::from(arguments.unit_seconds) * 1_000;
    let (plugins, store, dealt_with) = (store.clone(), unmetered, 0);
    let mut world = World {
        receive,
        complete,
        sweep,
        plugins,
        store,
        clock,
        messages,
        servers,
        unit_ms,
        dealt_with,
        webhooks: 0,
        callbacks: 0,
        telemetry,
    };
    for (asked, phase) in [(Asked::Created, TargetPhase::Ready), (Asked::Deleted, TargetPhase::Gone)] {
        world.ask(asked).await?;
        world.until(phase).await?;
    }
    // Hints that find nothing to do any more are paid for, too.
    world.clock.pass(PATIENCE * MINUTE);
    world.deal().await?;
    let (figures, calls) = (meter.take(), (&objects.puts, &objects.gets));
    let (puts, gets) = (calls.0.load(Ordering::Relaxed), calls.1.load(Ordering::Relaxed));
    let kept = (in_table(&dynamo).await?, in_bucket(&bucket).await? - published_bytes);
    let log_bytes = lines.text().len() - begun;
    world.clock.pass(stack.retention_days * DAY);
    outlive(&dynamo, world.clock.now()).await?;
    objects.puts.store(0, Ordering::Relaxed);
    let removed = ebb_flow::retention::round(&world.sweep, world.plugins.as_ref(), world.clock.now()).await?;
    ensure!(removed == 1, "{removed} lives are removed after their retention");
    let of_removal = meter.take();
    let removal = Removal {
        write_units: of_removal.write_units,
        read_units: of_removal.read_units,
        lists: objects.puts.load(Ordering::Relaxed),
    };
    let stays = (in_table(&dynamo).await?, in_bucket(&bucket).await? - published_bytes);
    Ok(Life {
        units: 2 * u64::from(arguments.units),
        // A refused condition is paid for, and no table reports it.
        write_units: figures.write_units + figures.refused_write_units as f64,
        read_units: figures.read_units,
        puts,
        gets,
        messages: world.dealt_with,
        webhooks: world.webhooks,
        callbacks: world.callbacks,
        log_bytes,
        idle_log_bytes,
        idle_read_units,
        removal,
        kept,
        stays,
    })
}

/// Bytes of the items of runs, targets and plans without a time to live.
async fn in_table(dynamo: &aws_sdk_dynamodb::Client) -> anyhow::Result<usize> {
    let mut bytes = 0;
    let mut pages = dynamo.scan().table_name(NAME_OF_ALL).into_paginator().send();
    while let Some(page) = pages.next().await {
        for item in page?.items() {
            let is_of_life = ["r#", "t#", "p#", "x#", "end#"].iter().any(|kind| {
                let key = item.get(TableSpec::PARTITION).and_then(|key| key.as_s().ok());
                key.is_some_and(|key| key.starts_with(kind))
            });
            if is_of_life && !item.contains_key(TableSpec::TTL) {
                bytes += item_size(item);
            }
        }
    }
    Ok(bytes)
}

/// Removes what the table removes by its time to live.
async fn outlive(dynamo: &aws_sdk_dynamodb::Client, now: ebb_engine::Timestamp) -> anyhow::Result<()> {
    let mut pages = dynamo.scan().table_name(NAME_OF_ALL).into_paginator().send();
    while let Some(page) = pages.next().await {
        for item in page?.items() {
            let Some(ttl) = item.get(TableSpec::TTL).and_then(|ttl| ttl.as_n().ok()) else { continue };
            if ttl.parse::<u64>()?.saturating_mul(1_000) <= now.0 {
                let key = [TableSpec::PARTITION, TableSpec::SORT];
                let key = key.iter().filter_map(|&part| Some((part.to_owned(), item.get(part)?.clone())));
                dynamo.delete_item().table_name(NAME_OF_ALL).set_key(Some(key.collect())).send().await?;
            }
        }
    }
    Ok(())
}

async fn in_bucket(bucket: &S3Bucket) -> anyhow::Result<i64> {
    let listed = bucket.client().list_objects_v2().bucket(bucket.name()).send().await?;
    Ok(listed.contents().iter().filter_map(|object| object.size()).sum())
}

impl World {
    async fn ask(&mut self, asked: Asked) -> anyhow::Result<()> {
        let event = Lifecycle {
            kind: KIND.to_owned(),
            name: NAME.to_owned(),
            uid: UID.to_owned(),
            generation: 1,
            document: (asked == Asked::Created).then(documents::sandbox),
            routing_key: None,
        };
        self.webhooks += 1;
        let work = Box::pin(ebb_flow::receive::receive(&self.receive, self.plugins.as_ref(), asked, &event));
        let answer = self.telemetry.invoke(Function::Receive, came(), work).await?;
        answer.map(drop).map_err(|refused| anyhow::anyhow!("the sandbox is refused: {refused:?}"))
    }

    /// Messages whose time has come, and the minutes of the schedule.
    async fn deal(&mut self) -> anyhow::Result<()> {
        for message in self.messages.take() {
            self.dealt_with += 1;
            let work = Box::pin(ebb_flow::sweep::receive_message(&self.sweep, &message));
            self.telemetry.invoke(Function::Sweep, came(), work).await?;
        }
        let swept = Box::pin(ebb_flow::sweep::sweep(&self.sweep, &self.store)).await?;
        ensure!(swept.failed == 0, "{} of {} looks failed", swept.failed, swept.looked);
        Ok(())
    }

    /// Units work and call back until the target is in a phase and nothing is due.
    async fn until(&mut self, phase: TargetPhase) -> anyhow::Result<()> {
        let end = self.clock.now().0 + PATIENCE * MINUTE;
        loop {
            let target = self.store.read_target(KIND, NAME).await?.context("there is no target")?;
            let tokens = std::mem::take(&mut *self.servers.0.lock().unwrap_or_else(PoisonError::into_inner));
            if tokens.is_empty() && target.phase == phase && target.due.is_none() {
                return Ok(());
            }
            ensure!(self.clock.now().0 < end, "the target is {:?} and not {phase:?}", target.phase);
            self.clock.pass(self.unit_ms);
            self.deal().await?;
            for token in tokens {
                self.callbacks += 1;
                let body = match phase {
                    // The units of the teardown declare no outputs.
                    TargetPhase::Gone => json!({"status": "succeeded"}),
                    _ => json!({"status": "succeeded", "outputs": {"id": "made-by-a-unit"}}),
                };
                let body = body.to_string();
                let work = Box::pin(ebb_flow::complete::complete(&self.complete, &token, body.as_bytes()));
                let taken = self.telemetry.invoke(Function::Complete, came(), work).await?;
                ensure!(taken == Taken::Accepted, "a callback is not taken: {taken:?}");
            }
        }
    }
}
