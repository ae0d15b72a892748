//! A relay that is open.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_wire::relay::WorkName;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use tokio::sync::Semaphore;

use crate::attend;
use crate::error::Error;
use crate::kinds::Kinds;
use crate::record::Record;
use crate::settings::Settings;
use crate::store::Store;
use crate::tasks::Tasks;
use crate::tidy;
use crate::turns::Turns;
use crate::watches::Watches;

/// What one callback may take: the control plane starts what became ready before it answers.
const CALLBACK: Duration = Duration::from_secs(60);

/// Results that are sent, and so held in memory, at one time: each may have 5 MiB.
const CALLBACKS: usize = 16;

/// The relay of a cluster. Clones are the same relay; when the last one is dropped, work goes on without being looked
/// after, until a relay is opened again.
#[derive(Clone)]
pub struct Relay {
    pub(crate) inner: Arc<Inner>,
    _tasks: Arc<Ends>,
}

/// What the tasks of a relay share.
pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) watches: Watches,
    pub(crate) tasks: Tasks,
    pub(crate) turns: Turns,
    pub(crate) http: reqwest::Client,
    /// Results that are sent at one time.
    pub(crate) callbacks: Semaphore,
    /// The uid of `kube-system`.
    pub(crate) cluster: String,
    pub(crate) opened: Instant,
    pub(crate) ends: tokio::sync::watch::Receiver<()>,
}

/// Dropped with the last clone, which ends the tasks.
struct Ends(#[allow(dead_code)] tokio::sync::watch::Sender<()>);

impl Relay {
    /// Opens the relay whose records are in `settings.own_namespace`, goes on with what runs, and sends results that
    /// nobody has taken yet. Needs a tokio runtime. One at a time is to be open on one namespace; a second one does no
    /// harm, but calls back twice and has places of its own.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or does not let it read what it has to.
    pub async fn open(client: Client, settings: Settings) -> Result<Self, Error> {
        let system: Api<Namespace> = Api::all(client.clone());
        let cluster = system.get("kube-system").await?.uid().unwrap_or_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CALLBACK)
            .build()
            // An image without CA certificates, for one.
            .map_err(|error| Error::Own(format!("no client of HTTP can be made: {error:?}")))?;
        let (sender, ends) = tokio::sync::watch::channel(());
        let store = Store::new(&client, &settings.own_namespace);
        let works = store.collect(|record| attend::is_needed(&record).then(|| Attended::of(record))).await?;
        let names: Vec<_> = works.iter().map(|work| work.name.clone()).collect();
        let turns = turns(works, settings.at_once);
        let inner = Arc::new(Inner {
            client,
            settings,
            store,
            kinds: Kinds::default(),
            watches: Watches::default(),
            tasks: Tasks::default(),
            turns,
            http,
            callbacks: Semaphore::new(CALLBACKS),
            cluster,
            opened: Instant::now(),
            ends,
        });
        for name in &names {
            inner.attend(name);
        }
        tokio::spawn(tidy::forget(Arc::downgrade(&inner)));
        Ok(Self { inner, _tasks: Arc::new(Ends(sender)) })
    }

    /// The uid of the namespace `kube-system` of its cluster.
    pub fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// How many works are looked after.
    pub fn works(&self) -> usize {
        self.inner.tasks.count()
    }

    /// How many works have containers that may run, and how many wait for that.
    pub fn turns(&self) -> (usize, usize) {
        self.inner.turns.count()
    }

    /// Whether the API server answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check(&self) -> Result<(), Error> {
        self.inner.client.apiserver_version().await?;
        Ok(())
    }
}

/// What a relay that opens has to know of a work that somebody has to look after. Its manifests are read when they are
/// needed.
struct Attended {
    name: WorkName,
    received_ms: Option<u64>,
    container: Container,
}

/// Whether a work has a place.
enum Container {
    /// It may run. What has a result still may.
    MayRun,
    /// It waits for its turn, behind those of its life.
    Waits { life: String },
    /// There is none, and no place is needed.
    None,
}

impl Attended {
    fn of(record: Record) -> Self {
        let waits = record.waits();
        let received_ms = record.work.as_ref().map(|work| work.received_ms);
        let container = match record.work {
            Some(work) if waits => Container::Waits { life: work.objects.life },
            Some(work) if work.container().is_some() => Container::MayRun,
            _ => Container::None,
        };
        Self { name: record.name, received_ms, container }
    }
}

/// Who may run and who waits, of all works that somebody has to look after.
fn turns(mut works: Vec<Attended>, most: NonZeroUsize) -> Turns {
    works.sort_by_key(|work| work.received_ms);
    let (mut placed, mut waiting) = (Vec::new(), Vec::new());
    for work in works {
        match work.container {
            Container::MayRun => placed.push(work.name),
            Container::Waits { life } => waiting.push((work.name, life)),
            Container::None => {}
        }
    }
    Turns::new(most, placed, waiting)
}
