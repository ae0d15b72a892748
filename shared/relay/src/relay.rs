//! A relay that is open.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_protocol::relay::TaskId;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use tokio::sync::Semaphore;

use crate::cleanup;
use crate::discovery::DiscoveryCache;
use crate::error::ClusterError;
use crate::fair_queue::FairQueue;
use crate::reconcile;
use crate::record::TaskRecord;
use crate::settings::RelaySettings;
use crate::store::RecordStore;
use crate::task_registry::TaskRegistry;
use crate::watches::ObjectWatches;

/// What one callback may take: the control plane starts what became ready before it answers.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(60);

/// Results that are sent, and so held in memory, at one time: each may have 5 MiB.
const MAX_CALLBACKS: usize = 16;

/// The relay of a cluster. Clones are the same relay; when the last one is dropped, work goes on without being looked
/// after, until a relay is opened again.
#[derive(Clone)]
pub struct Relay {
    pub(crate) inner: Arc<Reconciler>,
    _tasks: Arc<ShutdownGuard>,
}

/// What the tasks of a relay share.
pub(crate) struct Reconciler {
    pub(crate) client: Client,
    pub(crate) settings: RelaySettings,
    pub(crate) store: RecordStore,
    pub(crate) discovery: DiscoveryCache,
    pub(crate) watches: ObjectWatches,
    pub(crate) registry: TaskRegistry,
    pub(crate) queue: FairQueue,
    pub(crate) http: reqwest::Client,
    /// Results that are sent at one time.
    pub(crate) callbacks: Semaphore,
    /// The uid of `kube-system`.
    pub(crate) cluster_uid: String,
    pub(crate) opened: Instant,
    pub(crate) shutdown: tokio::sync::watch::Receiver<()>,
}

/// Dropped with the last clone, which ends the tasks.
struct ShutdownGuard(#[allow(dead_code)] tokio::sync::watch::Sender<()>);

impl Relay {
    /// Opens the relay whose records are in `settings.own_namespace`, goes on with what runs, and sends results that
    /// nobody has taken yet. Needs a tokio runtime. One at a time is to be open on one namespace; a second one does no
    /// harm, but calls back twice and has places of its own.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or does not let it read what it has to.
    pub async fn open(client: Client, settings: RelaySettings) -> Result<Self, ClusterError> {
        let system: Api<Namespace> = Api::all(client.clone());
        let cluster = system.get("kube-system").await?.uid().unwrap_or_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CALLBACK_TIMEOUT)
            .build()
            // An image without CA certificates, for one.
            .map_err(|error| ClusterError::Internal(format!("no client of HTTP can be made: {error:?}")))?;
        let (sender, ends) = tokio::sync::watch::channel(());
        let store = RecordStore::new(&client, &settings.own_namespace);
        let works = store
            .collect(|record| reconcile::needs_reconcile(&record).then(|| RecoveredTask::of(record)))
            .await?;
        let names: Vec<_> = works.iter().map(|work| work.name.clone()).collect();
        let turns = recover_queue(works, settings.max_concurrent_tasks);
        let inner = Arc::new(Reconciler {
            client,
            settings,
            store,
            discovery: DiscoveryCache::default(),
            watches: ObjectWatches::default(),
            registry: TaskRegistry::default(),
            queue: turns,
            http,
            callbacks: Semaphore::new(MAX_CALLBACKS),
            cluster_uid: cluster,
            opened: Instant::now(),
            shutdown: ends,
        });
        for name in &names {
            inner.reconcile(name);
        }
        tokio::spawn(cleanup::tombstone_loop(Arc::downgrade(&inner)));
        Ok(Self { inner, _tasks: Arc::new(ShutdownGuard(sender)) })
    }

    /// The uid of the namespace `kube-system` of its cluster.
    pub fn cluster_uid(&self) -> &str {
        &self.inner.cluster_uid
    }

    /// How many works are looked after.
    pub fn task_count(&self) -> usize {
        self.inner.registry.count()
    }

    /// How many works have containers that may run, and how many wait for that.
    pub fn slot_counts(&self) -> (usize, usize) {
        self.inner.queue.count()
    }

    /// Whether the API server answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check(&self) -> Result<(), ClusterError> {
        self.inner.client.apiserver_version().await?;
        Ok(())
    }
}

/// What a relay that opens has to know of a work that somebody has to look after. Its manifests are read when they are
/// needed.
struct RecoveredTask {
    name: TaskId,
    received_ms: Option<u64>,
    container: SlotState,
}

/// Whether a work has a place.
enum SlotState {
    /// It may run. What has a result still may.
    Assigned,
    /// It waits for its turn, behind those of its life.
    Queued { life: String },
    /// There is none, and no place is needed.
    NotNeeded,
}

impl RecoveredTask {
    fn of(record: TaskRecord) -> Self {
        let waits = record.is_queued();
        let received_ms = record.spec.as_ref().map(|work| work.received_ms);
        let container = match record.spec {
            Some(work) if waits => SlotState::Queued { life: work.objects.instance },
            Some(work) if work.container().is_some() => SlotState::Assigned,
            _ => SlotState::NotNeeded,
        };
        Self { name: record.name, received_ms, container }
    }
}

/// Who may run and who waits, of all works that somebody has to look after.
fn recover_queue(mut works: Vec<RecoveredTask>, most: NonZeroUsize) -> FairQueue {
    works.sort_by_key(|work| work.received_ms);
    let (mut placed, mut waiting) = (Vec::new(), Vec::new());
    for work in works {
        match work.container {
            SlotState::Assigned => placed.push(work.name),
            SlotState::Queued { life } => waiting.push((work.name, life)),
            SlotState::NotNeeded => {}
        }
    }
    FairQueue::new(most, placed, waiting)
}
