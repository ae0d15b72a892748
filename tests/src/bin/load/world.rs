//! One round: the functions over a table of their own, callers that take turns in what is to be called, and what the
//! table holds in the end.
//!
//! `sweep` looks every second at what is due; as in `counts`, its questions to the index are not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ebb_engine::{Millis, Moment, TargetPhase, Timestamp};
use ebb_flow::complete::Taken;
use ebb_flow::ports::Clock;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::{Env, Warm};
use ebb_local::embedded::{Bucket, Table};
use ebb_store::{
    Bucket as StoreBucket, Dynamo, Meter, ReadRecords as _, ReadRun as _, ReadTarget as _, Store,
};
use ebb_tests::surroundings::{self, NoCluster};
use ebb_wire::cloudevents::Asked;
use ebb_wire::engine::RunPhase;
use ebb_wire::id::{self, RunId};
use ebb_wire::lifecycle::Lifecycle;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::books::{Books, Work};
use crate::documents::{self, UNITS};
use crate::figures::Figures;
use crate::way::{Chances, Way};

const KIND: &str = "sandbox";
const BUCKET: &str = "ebb";
/// A call that gave an error comes again after this.
const AGAIN: Duration = Duration::from_millis(100);
/// Nothing has come to its end for so long only if nothing will.
const PATIENCE: Duration = Duration::from_secs(120);
/// When nothing has moved for so long, it waits for `sweep`.
const STANDS: Duration = Duration::from_secs(2);
/// Milliseconds by which the clock then goes on, twice as many each time; and those after which everything that waits for `sweep` is due.
const LOOK: u64 = 10_000;
const LATER: u64 = 7_200_000;
/// Between two lines of progress.
const NEWS: Duration = Duration::from_secs(5);

/// What is done.
pub(crate) struct Round {
    pub(crate) runs: usize,
    pub(crate) callers: usize,
    pub(crate) chances: Chances,
    /// Of DynamoDB Local.
    pub(crate) endpoint: String,
}

/// The machine's clock, so many milliseconds ahead: nobody waits here for what is due later.
struct Ahead(AtomicU64);

impl Ahead {
    fn pass(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0.saturating_add(self.0.load(Ordering::Relaxed)))
    }
}

struct World {
    clock: Arc<Ahead>,
    env: Arc<Env>,
    store: Arc<Store>,
    books: Books,
    /// What could not be done and is to be done again.
    work: mpsc::UnboundedSender<Work>,
    repeated: AtomicU64,
    /// Callbacks that were taken.
    taken: AtomicU64,
    wrong: std::sync::Mutex<Vec<String>>,
}

/// Runs a round.
///
/// # Errors
/// When the round cannot be set up. What goes wrong in it is in the figures.
pub(crate) async fn run(round: &Round) -> anyhow::Result<Figures> {
    let folder = tempfile::tempdir()?;
    let table = if round.chances == Chances::NONE { "calm" } else { "faults" };
    let straight = Table::at(&round.endpoint);
    ebb_store::table::create(&straight, table).await?;
    let bucket = Bucket::open(&folder.path().join("bucket"))?;
    bucket.create_bucket().bucket(BUCKET).send().await?;
    let bucket = StoreBucket::new(bucket, BUCKET);
    let way = Way::new(round.chances)?;
    let faulty = Store::new(Dynamo::new(way.through(&straight), table), bucket.clone());
    let straight = Store::new(Dynamo::new(straight, table), bucket);
    let (meter, (work, queue)) = (Arc::new(Meter::new()), mpsc::unbounded_channel());
    let (messages, traffic, waiting) = surroundings::channel();
    let store = Arc::new(faulty.clone().metered(Arc::clone(&meter)));
    let books = Books::new(work.clone());
    let calm = round.chances == Chances::NONE;
    // Without faults nothing is lost, and a busy machine must not change what is counted.
    let first_look = Millis(if calm { 900_000 } else { 10_000 });
    let outcomes = Some("https://platform.test".to_owned());
    let mut settings = surroundings::settings("https://ebb.test", outcomes, first_look)?;
    if !calm {
        // Nobody takes longer; what was lost is sent again after that.
        (settings.budget, settings.answer) = (Duration::from_secs(3), Duration::from_secs(2));
    }
    let clock = Arc::new(Ahead(AtomicU64::new(0)));
    let env = Env {
        store: store.clone(),
        clock: clock.clone(),
        random: Arc::new(SystemRandom),
        relay: Arc::new(NoCluster),
        outside: Arc::new(books.clone()),
        platform: Arc::new(books.clone()),
        queue: Arc::new(messages),
        settings,
        warm: Warm::default(),
    };
    let env = Arc::new(env);
    let published = ebb_flow::api::plugins::publish(&straight, &documents::plugin(), env.now()).await?;
    if let Err(refused) = published {
        bail!("the plugin is refused: {refused:?}");
    }
    let world = Arc::new(World {
        clock,
        env: Arc::clone(&env),
        store,
        books,
        work,
        repeated: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        wrong: std::sync::Mutex::default(),
    });
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    tasks.spawn(surroundings::work(Arc::clone(&env), Arc::clone(&traffic), waiting));
    let unswept = Arc::new(AtomicUsize::new(0));
    tasks.spawn(sweep(Arc::clone(&env), faulty, Arc::clone(&unswept)));
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..round.callers {
        tasks.spawn(Arc::clone(&world).call(Arc::clone(&queue)));
    }
    world.all_are_ready(round).await?;
    let ended = world.ended(&straight, round.runs).await?;
    let took = began.elapsed();
    // The functions end with their tasks: what they would still do has no place in the figures.
    tasks.shutdown().await;
    let mut wrong = world.wrong.lock().map(|wrong| wrong.clone()).unwrap_or_default();
    wrong.extend(world.books.wrong(round.runs));
    Ok(Figures {
        runs: round.runs,
        chances: round.chances,
        took,
        table: meter.take(),
        passed: way.passed(),
        webhooks: world.books.requests(),
        repeated: world.repeated.load(Ordering::Relaxed),
        dropped: traffic.failed().len() + unswept.load(Ordering::Relaxed),
        ended,
        wrong,
    })
}

/// Sweeps each second, and counts what fails: the next second asks again.
async fn sweep(env: Arc<Env>, index: Store, failed: Arc<AtomicUsize>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let swept = Box::pin(ebb_flow::sweep::sweep(&env, &index)).await;
        failed.fetch_add(swept.map_or(1, |swept| swept.failed), Ordering::Relaxed);
    }
}

impl World {
    /// One caller: does what is to be done until it is aborted.
    async fn call(self: Arc<Self>, queue: Arc<Mutex<mpsc::UnboundedReceiver<Work>>>) {
        loop {
            let next = queue.lock().await.recv().await;
            let Some(work) = next else { return };
            match Box::pin(self.once(&work)).await {
                Ok(None) => {}
                Ok(Some(wrong)) => {
                    if let Ok(mut all) = self.wrong.lock() {
                        all.push(wrong);
                    }
                }
                Err(_) => {
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                    let again = self.work.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(AGAIN).await;
                        again.send(work).ok();
                    });
                }
            }
        }
    }

    /// One call; gives what is wrong with its answer.
    ///
    /// # Errors
    /// The function's: the caller comes again.
    async fn once(&self, work: &Work) -> Result<Option<String>, ebb_flow::FlowError> {
        match work {
            Work::Create(number) => {
                let event = Lifecycle {
                    kind: KIND.to_owned(),
                    name: documents::target(*number),
                    uid: uid(*number),
                    generation: 1,
                    document: Some(documents::sandbox(*number)),
                    routing_key: None,
                };
                let answer =
                    ebb_flow::receive::receive(&self.env, self.store.as_ref(), Asked::Created, &event);
                Ok(Box::pin(answer)
                    .await?
                    .err()
                    .map(|refused| format!("{}: refused: {refused:?}", event.name)))
            }
            Work::CallBack { token, outputs } => {
                let body = json!({"status": "succeeded", "outputs": outputs}).to_string();
                let taken = Box::pin(ebb_flow::complete::complete(&self.env, token, body.as_bytes())).await?;
                self.taken.fetch_add(1, Ordering::Relaxed);
                Ok((taken != Taken::Accepted)
                    .then(|| format!("the callback with {outputs} was not taken: {taken:?}")))
            }
        }
    }

    /// Creates targets, so that as many are under way as there are callers, until the platform knows all to be ready.
    async fn all_are_ready(&self, round: &Round) -> anyhow::Result<()> {
        let (mut created, mut before, mut step) = (0, 0, LOOK);
        let (mut moved, mut told, mut stood) = (Instant::now(), Instant::now(), Instant::now());
        loop {
            let ready = self.books.ready();
            while created < round.runs && created < ready + round.callers {
                self.work.send(Work::Create(created)).context("the callers are gone")?;
                created += 1;
            }
            let (asked, taken) = (self.books.callbacks(), self.taken.load(Ordering::Relaxed));
            if ready == round.runs && asked == taken {
                if round.chances != Chances::NONE {
                    self.clock.pass(LATER);
                }
                return Ok(());
            }
            if taken + ready as u64 > before {
                before = taken + ready as u64;
                (moved, stood, step) = (Instant::now(), Instant::now(), LOOK);
            }
            // While no unit is at work, time harms nobody.
            if stood.elapsed() > STANDS && asked == taken && round.chances != Chances::NONE {
                stood = Instant::now();
                self.clock.pass(step);
                step *= 2;
            }
            if moved.elapsed() > PATIENCE {
                eprintln!("{ready} of {} are ready, and no more for {PATIENCE:?}", round.runs);
                return Ok(());
            }
            if told.elapsed() > NEWS {
                told = Instant::now();
                eprintln!("{ready} of {} are ready", round.runs);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How many runs have ended as they should, as the table says. Waits for those that are still being closed.
    async fn ended(&self, table: &Store, runs: usize) -> anyhow::Result<usize> {
        let began = Instant::now();
        let mut ended = 0;
        for number in 0..runs {
            loop {
                match wrong(table, number).await? {
                    None => {
                        ended += 1;
                        break;
                    }
                    Some(wrong) if began.elapsed() > PATIENCE || self.books.ready() < runs => {
                        if let Ok(mut all) = self.wrong.lock() {
                            all.push(format!("{}: {wrong}", documents::target(number)));
                        }
                        break;
                    }
                    Some(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        }
        Ok(ended)
    }
}

fn uid(number: usize) -> String {
    format!("{}-uid", documents::target(number))
}

/// What is not as it should be with a target and its run.
async fn wrong(table: &Store, number: usize) -> anyhow::Result<Option<String>> {
    let name = documents::target(number);
    let Some(target) = table.read_target(KIND, &name).await? else {
        return Ok(Some("there is no target".to_owned()));
    };
    if target.phase != TargetPhase::Ready || target.due.is_some() {
        return Ok(Some(format!("it is {:?}, due {:?}", target.phase, target.due)));
    }
    let run = RunId::new(&id::life(KIND, &name, &uid(number)), 1, Moment::BeforeReady);
    let Some(root) = table.read_root(&run).await? else { return Ok(Some("there is no run".to_owned())) };
    let head = root.head;
    if head.phase != RunPhase::Closed || head.done.len() != UNITS || !head.failed.is_empty() {
        return Ok(Some(format!("its run is {head:?}")));
    }
    let records = table.read_all_records(&run).await?;
    let mut made = Vec::new();
    for (unit, attempt, record) in &records {
        let result = record.result.as_ref().and_then(|result| serde_json::to_value(&result.outputs).ok());
        if attempt.0 != 1 || !record.others.is_empty() {
            return Ok(Some(format!("unit {} has {record:?} of try {}", unit.0, attempt.0)));
        }
        made.push(result.unwrap_or(Value::Null).to_string());
    }
    let missing = documents::units().find(|unit| {
        let expected = format!("\"{}\"", documents::made(&name, unit));
        made.iter().filter(|outputs| outputs.contains(&expected)).count() != 1
    });
    Ok(missing.map(|unit| format!("the record of {unit} is not there once: {made:?}")))
}
