//! One run from the lifecycle webhook to the notification that the platform has taken, and what it cost.
//!
//! The functions are the real ones, over an in-process table and bucket of their own for each run. `sweep` looks every
//! second at what is due. Its questions to the index are not counted: they are those of the schedule, whether or not
//! anything runs. What it does to a run is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ebb_api::{ApiTokens, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_engine::{Hook, Millis, TargetPhase};
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::{Env, InstanceCache};
use ebb_local::embedded::{EmbeddedTable, FolderBucket};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::engine::RunPhase;
use ebb_protocol::id::{self, RunId};
use ebb_protocol::lifecycle::LifecycleData;
use ebb_relay_client::PollEndpoint;
use ebb_store::{DynamoTable, Meter, ReadRun as _, ReadTarget as _, Store, TableUsage};
use ebb_tests::fakes::{self, NoCluster, QueueTraffic};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::receiver::CountsReceiver;
use super::shapes::{self, CountCase};

const TABLE: &str = "ebb";
const KIND: &str = "sandbox";
const NAME: &str = "measured";
const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
/// A run that takes longer than this has come to a halt.
const PATIENCE: Duration = Duration::from_secs(900);

/// What one run cost.
pub(crate) struct RunCost {
    pub(crate) figures: TableUsage,
    pub(crate) messages: usize,
    pub(crate) webhooks: usize,
    /// From the lifecycle webhook to the closed run.
    pub(crate) took: Duration,
    /// Of it, until the document was compiled and the run had begun.
    pub(crate) begun: Duration,
}

struct CountsHarness {
    env: Arc<Env>,
    store: Arc<Store>,
    unmetered: Arc<Store>,
    meter: Arc<Meter>,
    traffic: Arc<QueueTraffic>,
    tasks: Vec<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Drop for CountsHarness {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Runs a case.
///
/// # Errors
/// Whatever keeps the target from becoming ready.
pub(crate) async fn run(case: CountCase) -> anyhow::Result<RunCost> {
    let receiver = CountsReceiver::start(case).await?;
    let harness = CountsHarness::start(receiver.outcomes()).await?;
    let plugin = shapes::plugin(case, &receiver.work());
    let published = ebb_api::queries::plugins::publish(harness.unmetered.as_ref(), &plugin, harness.env.now()).await;
    if let Err(error) = published {
        bail!("the plugin is not published: {error:?}");
    }
    harness.meter.take();
    let began = Instant::now();
    let event = LifecycleData {
        kind: KIND.to_owned(),
        name: NAME.to_owned(),
        uid: UID.to_owned(),
        generation: 1,
        document: Some(shapes::sandbox(NAME)),
        routing_key: None,
    };
    let asked = async {
        let answer =
            ebb_flow::target::lifecycle::receive(&harness.env, harness.store.as_ref(), LifecycleType::Created, &event);
        match Box::pin(answer).await {
            Ok(_) => Ok(()),
            Err(error) => bail!("the target is not taken: {error:?}"),
        }
    };
    let begun = async {
        let run = harness.run();
        while harness.unmetered.read_root(&run).await?.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if began.elapsed() > PATIENCE {
                bail!("the run has not begun after {PATIENCE:?}");
            }
        }
        anyhow::Ok(began.elapsed())
    };
    let ((), begun) = tokio::try_join!(asked, begun)?;
    harness.wait(&receiver, began).await?;
    let took = began.elapsed();
    if let Some(error) = harness.traffic.failed().first() {
        bail!("a message was not dealt with: {error}");
    }
    if receiver.failed() > 0 {
        bail!("{} callbacks were not taken", receiver.failed());
    }
    let figures = harness.meter.take();
    Ok(RunCost { figures, messages: harness.traffic.sent(), webhooks: receiver.asked(), took, begun })
}

impl CountsHarness {
    async fn start(outcomes: String) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let dynamo = EmbeddedTable::memory()?;
        ebb_store::table::create(&dynamo, TABLE).await?;
        let bucket = FolderBucket::open(&folder.path().join("bucket"))?;
        let unmetered = Store::new(DynamoTable::new(dynamo, TABLE), Arc::new(bucket));
        let meter = Arc::new(Meter::new());
        let store = Arc::new(unmetered.clone().metered(Arc::clone(&meter)));
        let unmetered = Arc::new(unmetered);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("the functions' port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (queue, traffic, messages) = fakes::channel();
        let client = Arc::new(HttpClient::new(Policy::with_loopback())?);
        let env = Arc::new(Env {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            relay: Arc::new(NoCluster),
            egress: client.clone(),
            platform: client,
            queue: Arc::new(queue),
            settings: fakes::settings(&url, Some(outcomes), Millis(900_000))?,
            cache: InstanceCache::default(),
        });
        let post = Arc::new(PollEndpoint::new(Arc::default(), store.clone(), Arc::new(SystemClock)));
        let server = ServerState {
            env: Arc::clone(&env),
            store: store.clone(),
            tokens: Arc::new(ApiTokens::default()),
            poll_endpoint: post,
        };
        let router = ebb_api::complete(server);
        let tasks = vec![
            tokio::spawn(async move {
                // It ends with the case.
                axum::serve(listener, router).await.ok();
            }),
            tokio::spawn(fakes::process_messages(Arc::clone(&env), Arc::clone(&traffic), messages)),
            tokio::spawn(sweep(Arc::clone(&env), Arc::clone(&unmetered))),
        ];
        Ok(Self { env, store, unmetered, meter, traffic, tasks, _folder: folder })
    }

    fn run(&self) -> RunId {
        RunId::new(&id::instance_key(KIND, NAME, UID), 1, Hook::PreStart)
    }

    /// Waits until the target is ready, the platform has taken that, and nothing is under way any more.
    async fn wait(&self, receiver: &CountsReceiver, began: Instant) -> anyhow::Result<()> {
        let run = self.run();
        loop {
            let target = self.unmetered.read_target(KIND, NAME).await?.context("the target is gone")?;
            if target.phase == TargetPhase::Failed {
                bail!("the target has failed: {:?}", ebb_flow::target::notify::first_cause(&self.env, &target).await?);
            }
            let root = self.unmetered.read_root(&run).await?.context("the run is gone")?;
            // The run is closed once the platform has taken the notification.
            let over = target.phase == TargetPhase::Ready && target.due.is_none();
            let closed = root.head.phase == RunPhase::Closed;
            if over && closed && receiver.under_way() == 0 && self.traffic.pending() == 0 {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!("after {PATIENCE:?} the target is {:?}, its run {:?}", target.phase, root.head.phase);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn sweep(env: Arc<Env>, index: Arc<Store>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Err(error) = Box::pin(ebb_flow::sweep::sweep(&env, index.as_ref())).await {
            eprintln!("the index could not be asked: {error}");
        }
    }
}
