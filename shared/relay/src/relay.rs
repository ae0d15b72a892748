//! The relay with its shared state.

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
use crate::reconciler::Reconciler;
use crate::record::TaskRecord;
use crate::settings::RelaySettings;
use crate::store::RecordStore;
use crate::task_registry::TaskRegistry;
use crate::watches::ObjectWatches;

/// The timeout of a callback. The control plane dispatches the next attempts before it responds.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(60);

/// Callbacks in progress at the same time. Each result may have 5 MiB.
const MAX_CALLBACKS: usize = 16;

/// The relay of a cluster. Clones share one state. When the last one is dropped, tasks continue in the cluster without
/// reconciliation.
#[derive(Clone)]
pub struct Relay {
    pub(crate) inner: Arc<Reconciler>,
    _tasks: Arc<ShutdownGuard>,
}

/// Ends the loops when the last clone is dropped.
struct ShutdownGuard(#[allow(dead_code)] tokio::sync::watch::Sender<()>);

impl Relay {
    /// Opens the relay whose records are in `settings.own_namespace`. It continues the recorded tasks and sends
    /// results that are not acknowledged. A second relay on the same namespace does no harm, but calls back twice and
    /// has slots of its own.
    ///
    /// # Errors
    /// Returns an error if the cluster cannot be reached or a right is missing.
    pub async fn open(client: Client, settings: RelaySettings) -> Result<Self, ReconcileError> {
        let system: Api<Namespace> = Api::all(client.clone());
        let cluster = system.get("kube-system").await?.uid().unwrap_or_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CALLBACK_TIMEOUT)
            .build()
            // For example, an image without CA certificates.
            .map_err(|error| ReconcileError::Internal(format!("cannot create an HTTP client: {error:?}")))?;
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

    /// Returns the UID of the namespace `kube-system`.
    pub fn cluster_uid(&self) -> &str {
        &self.inner.cluster_uid
    }

    pub fn task_count(&self) -> usize {
        self.inner.registry.count()
    }

    /// Returns the number of tasks with a slot and of queued tasks.
    pub fn slot_counts(&self) -> (usize, usize) {
        self.inner.queue.count()
    }

    /// Checks that the API server responds.
    pub async fn check(&self) -> Result<(), ReconcileError> {
        self.inner.client.apiserver_version().await?;
        Ok(())
    }
}

/// A recorded task when the relay opens. Its manifests are read later.
struct RecoveredTask {
    name: TaskId,
    received_ms: Option<u64>,
    container: SlotState,
}

enum SlotState {
    /// The task may run, even if it has a result.
    Assigned,
    /// The task waits behind the other tasks of its instance.
    Queued {
        instance: String,
    },
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

/// Restores the queue from the records.
fn recover_queue(mut tasks: Vec<RecoveredTask>, most: NonZeroUsize) -> FairQueue {
    tasks.sort_by_key(|task| task.received_ms);
    let (mut holders, mut queued) = (Vec::new(), Vec::new());
    for task in tasks {
        match task.container {
            SlotState::Assigned => holders.push(task.name),
            SlotState::Queued { instance } => queued.push((task.name, instance)),
            SlotState::NotNeeded => {}
        }
    }
    FairQueue::new(most, holders, queued)
}
