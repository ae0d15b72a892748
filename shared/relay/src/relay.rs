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
use crate::error::ReconcileError;
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

/// The relay of a cluster. Clones are the same relay; when the last one is dropped, tasks continue without reconciliation
/// until a relay is opened again.
#[derive(Clone)]
pub struct Relay {
    pub(crate) inner: Arc<Reconciler>,
    _tasks: Arc<ShutdownGuard>,
}

/// The state that the loops of a relay share.
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

/// Dropped with the last clone, which ends the loops.
struct ShutdownGuard(#[allow(dead_code)] tokio::sync::watch::Sender<()>);

impl Relay {
    /// Opens the relay whose records are in `settings.own_namespace`, continues with its tasks, and sends results that were
    /// not acknowledged yet. Needs a tokio runtime. One at a time is to be open on one namespace; a second one does no
    /// harm, but calls back twice and has slots of its own.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or does not let it read what it has to.
    pub async fn open(client: Client, settings: RelaySettings) -> Result<Self, ReconcileError> {
        let system: Api<Namespace> = Api::all(client.clone());
        let cluster = system.get("kube-system").await?.uid().unwrap_or_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CALLBACK_TIMEOUT)
            .build()
            // An image without CA certificates, for one.
            .map_err(|error| ReconcileError::Internal(format!("no client of HTTP can be made: {error:?}")))?;
        let (sender, ends) = tokio::sync::watch::channel(());
        let store = RecordStore::new(&client, &settings.own_namespace);
        let tasks =
            store.collect(|record| reconcile::needs_reconcile(&record).then(|| RecoveredTask::of(record))).await?;
        let names: Vec<_> = tasks.iter().map(|task| task.name.clone()).collect();
        let queue = recover_queue(tasks, settings.max_concurrent_tasks);
        let inner = Arc::new(Reconciler {
            client,
            settings,
            store,
            discovery: DiscoveryCache::default(),
            watches: ObjectWatches::default(),
            registry: TaskRegistry::default(),
            queue,
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

    /// Returns the number of tasks that are reconciled.
    pub fn task_count(&self) -> usize {
        self.inner.registry.count()
    }

    /// Returns the number of tasks with a slot, and of those in the queue.
    pub fn slot_counts(&self) -> (usize, usize) {
        self.inner.queue.count()
    }

    /// Whether the API server answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check(&self) -> Result<(), ReconcileError> {
        self.inner.client.apiserver_version().await?;
        Ok(())
    }
}

/// A task that a relay finds when it opens. Its manifests are read when they are needed.
struct RecoveredTask {
    name: TaskId,
    received_ms: Option<u64>,
    container: SlotState,
}

/// The slot of a task.
enum SlotState {
    /// It may run, even if it has a result.
    Assigned,
    /// It waits for a slot, behind those of its instance.
    Queued { instance: String },
    /// It has no container and needs no slot.
    NotNeeded,
}

impl RecoveredTask {
    fn of(record: TaskRecord) -> Self {
        let waits = record.is_queued();
        let received_ms = record.spec.as_ref().map(|spec| spec.received_ms);
        let container = match record.spec {
            Some(spec) if waits => SlotState::Queued { instance: spec.objects.instance },
            Some(spec) if spec.container().is_some() => SlotState::Assigned,
            _ => SlotState::NotNeeded,
        };
        Self { name: record.name, received_ms, container }
    }
}

/// Returns the queue as the records of tasks have it.
fn recover_queue(mut tasks: Vec<RecoveredTask>, most: NonZeroUsize) -> FairQueue {
    tasks.sort_by_key(|task| task.received_ms);
    let (mut placed, mut waiting) = (Vec::new(), Vec::new());
    for task in tasks {
        match task.container {
            SlotState::Assigned => placed.push(task.name),
            SlotState::Queued { instance } => waiting.push((task.name, instance)),
            SlotState::NotNeeded => {}
        }
    }
    FairQueue::new(most, placed, waiting)
}
