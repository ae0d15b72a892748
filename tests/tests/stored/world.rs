//! The functions over a table and a bucket of their own, with a clock that is moved.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ebb_engine::{Millis, Moment, TargetPhase, Timestamp, Unit};
use ebb_flow::cluster::{ClusterRelay, Clusters, PostOffice};
use ebb_flow::complete::Taken;
use ebb_flow::http::{Access, Server};
use ebb_flow::ports::Clock as _;
use ebb_flow::receive::Answer;
use ebb_flow::sweep::{self, Swept};
use ebb_flow::{Env, Settings, Warm};
use ebb_local::embedded::{FolderBucket, Table};
use ebb_store::{Due, Dynamo, QueryDue as _, ReadTarget as _, Store, TargetHead};
use ebb_tests::still::{Messages, Numbers, Time};
use ebb_wire::cloudevents::Asked;
use ebb_wire::id::{self, RunId};
use ebb_wire::lifecycle::Lifecycle;
use ebb_wire::relay::WorkName;
use ebb_wire::sign::{Keys, Secret};
use ebb_wire::token::TokenKeys;
use serde_json::{Value, json};

use crate::fixture::Stored;
use crate::outside::Outside;

pub(crate) const TABLE: &str = "ebb";
pub(crate) const KIND: &str = "sandbox";
/// A cluster whose relay polls.
pub(crate) const FAR: &str = "far";
/// Signs lifecycle webhooks.
pub(crate) const WEBHOOK_SECRET: [u8; 32] = [2; 32];
/// Seconds that pass until something has happened: what is waited for first comes soon.
const STEPS: [u64; 10] = [1, 1, 1, 2, 3, 4, 5, 6, 8, 10];

/// The run of the first life of a name.
pub(crate) fn run(name: &str, moment: Moment) -> RunId {
    RunId::new(&id::life(KIND, name, &format!("{name}-1")), 1, moment)
}

/// What its relay calls a unit of that run.
pub(crate) fn work(name: &str, moment: Moment, unit: u32) -> String {
    WorkName::unit_of(&run(name, moment), Unit(unit))
}

/// The callback of a unit that has made `code`.
pub(crate) fn made(code: &str) -> Value {
    json!({"status": "succeeded", "outputs": {"code": code, "name": code}})
}

pub(crate) struct World {
    pub(crate) env: Arc<Env>,
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<Time>,
    pub(crate) outside: Outside,
    messages: Arc<Messages>,
    office: Arc<PostOffice>,
    secret: Secret,
    _folder: tempfile::TempDir,
}

impl World {
    /// An empty one, at a time.
    pub(crate) async fn new(at: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dynamo = Table::memory().unwrap();
        ebb_store::table::create(&dynamo, TABLE).await.unwrap();
        let bucket = FolderBucket::open(folder.path()).unwrap();
        let store = Store::new(Dynamo::new(dynamo, TABLE), Arc::new(bucket));
        let (store, clock, outside) = (Arc::new(store), Arc::new(Time::at(at)), Outside::default());
        let (messages, random) = (Arc::new(Messages::new(clock.clone())), Arc::new(Numbers::default()));
        let secret = Secret::from_bytes(&[5; 32]).unwrap();
        let clusters = json!({FAR: {"secret": *secret.reveal(), "uid": "uid-of-far", "runnerImage": "r"}});
        let clusters = Arc::new(Clusters::parse(&clusters.to_string()).unwrap());
        let office = Arc::new(PostOffice::new(clusters.clone(), store.clone(), clock.clone()));
        let call = Arc::new(outside.clone());
        let (mail, grace) = (store.clone(), Duration::from_secs(30));
        let relay = ClusterRelay::new(clusters, call.clone(), mail, clock.clone(), random.clone(), grace);
        let env = Arc::new(Env {
            store: store.clone(),
            clock: clock.clone(),
            random,
            relay: Arc::new(relay),
            outside: call.clone(),
            platform: call,
            queue: messages.clone(),
            settings: settings(),
            warm: Warm::default(),
        });
        Self { env, store, clock, outside, messages, office, secret, _folder: folder }
    }

    /// One that holds what was stored, a second later.
    pub(crate) async fn with(stored: &Stored) -> Self {
        let world = Self::new(stored.outside.at + 1_000).await;
        stored.put(&world).await;
        world
    }

    /// What the routes are given.
    pub(crate) fn server(&self) -> Server {
        let (env, store, post) = (self.env.clone(), self.store.clone(), self.office.clone());
        Server { env, store, access: Arc::new(Access::default()), post }
    }

    pub(crate) async fn target(&self, name: &str) -> anyhow::Result<TargetHead> {
        self.store.read_target(KIND, name).await?.with_context(|| format!("there is no {name}"))
    }

    /// The platform's webhook. The document is that of the plugin.
    pub(crate) async fn lifecycle(
        &self,
        asked: Asked,
        name: &str,
        uid: &str,
        document: &str,
    ) -> anyhow::Result<Answer> {
        let event = Lifecycle {
            kind: KIND.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            generation: 1,
            document: (asked != Asked::Deleted).then(|| document.to_owned()),
            routing_key: Some(format!("key-of-{name}")),
        };
        Ok(Box::pin(ebb_flow::receive::receive(&self.env, self.store.as_ref(), asked, &event)).await?)
    }

    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        let deleted = self.lifecycle(Asked::Deleted, name, &format!("{name}-1"), "").await?;
        anyhow::ensure!(deleted.is_ok(), "{name} is not deleted: {deleted:?}");
        Ok(())
    }

    /// A callback, while the relay polls.
    pub(crate) async fn callback(&self, token: &str, body: &Value) -> anyhow::Result<Taken> {
        let body = body.to_string();
        let taken = Box::pin(ebb_flow::complete::complete(&self.env, token, body.as_bytes()));
        Ok(self.meanwhile(taken).await??)
    }

    /// The relay takes its mail, and answers.
    pub(crate) async fn polls(&self) -> anyhow::Result<()> {
        self.outside.polls(&self.office, FAR, &self.secret, self.clock.now()).await
    }

    /// Time passes; whoever waits for it acts.
    pub(crate) async fn pass(&self, millis: u64) -> anyhow::Result<()> {
        self.clock.pass(millis);
        self.polls().await?;
        for message in self.messages.take() {
            let taken = sweep::receive_message(&self.env, &message);
            self.meanwhile(Box::pin(taken)).await??;
        }
        let due = self.store.query_due(self.clock.now(), usize::MAX).await?;
        let swept = self.sweep().await?;
        if swept.failed > 0 {
            self.looks(due).await?;
            bail!("{} of {} looks failed, and not when they were made alone", swept.failed, swept.looked);
        }
        Ok(())
    }

    pub(crate) async fn sweep(&self) -> anyhow::Result<Swept> {
        Ok(self.meanwhile(Box::pin(sweep::sweep(&self.env, self.store.as_ref()))).await??)
    }

    /// What was due, each for itself: `sweep` counts what fails, and this says why it does.
    async fn looks(&self, due: Vec<(Timestamp, Due)>) -> anyhow::Result<()> {
        for (_, due) in due {
            let look = async {
                match &due {
                    Due::Run(run) => sweep::sweep_run(&self.env, run, sweep::When::Anyway).await,
                    Due::Target(kind, name) => sweep::sweep_target(&self.env, kind, name).await,
                }
            };
            self.meanwhile(Box::pin(look)).await?.with_context(|| format!("{due:?}"))?;
        }
        Ok(())
    }

    /// Does something while the relay polls: who asks it waits for the answer.
    pub(crate) async fn meanwhile<T>(&self, act: impl Future<Output = T>) -> anyhow::Result<T> {
        let polls = async {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if let Err(error) = self.polls().await {
                    return error;
                }
            }
        };
        tokio::select! {
            biased;
            done = act => Ok(done),
            error = polls => Err(error),
        }
    }

    /// Waits until a target is in a phase.
    pub(crate) async fn until(&self, name: &str, phase: TargetPhase) -> anyhow::Result<()> {
        let mut steps = STEPS.into_iter();
        loop {
            let is = self.target(name).await?.phase;
            match steps.next() {
                _ if is == phase => return Ok(()),
                Some(seconds) => self.pass(seconds * 1_000).await?,
                None => bail!("{name} is {is:?} and not {phase:?}"),
            }
        }
    }
}

/// Those of a deployment, but for times that would have to pass here.
fn settings() -> Settings {
    let url = "https://ebb.test";
    Settings {
        callback_url: format!("{url}/v1/callbacks"),
        installation: "tests".to_owned(),
        source: url.to_owned(),
        platform_url: Some("https://platform.test".to_owned()),
        platform_keys: Secret::from_bytes(&[1; 32]).unwrap().into(),
        webhook_keys: Keys::new(Secret::from_bytes(&WEBHOOK_SECRET).unwrap(), Vec::new()).unwrap(),
        unit_keys: Secret::from_bytes(&[3; 32]).unwrap().into(),
        token_keys: TokenKeys::from_bytes("stored", &[4; 32]).unwrap(),
        landing: Millis(2_000),
        grace: Duration::from_secs(2),
        answer: Duration::from_secs(2),
        first_look: Millis(60_000),
        horizon: Millis(3_600_000),
        retention: None,
        sends: 50,
        budget: Duration::from_secs(3),
    }
}
