//! The relay with its shared state.

use std::sync::Arc;
use std::time::Instant;

use ebb_kube::podspec::ClusterPolicy;
use ebb_protocol::relay::TaskId;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use tokio::sync::Semaphore;

use crate::api_server::discovery::DiscoveryCache;
use crate::api_server::event_recorder::EventRecorder;
use crate::api_server::namespace_cache::NamespaceCache;
use crate::api_server::watches::ObjectWatches;
use crate::error::Result;
use crate::log_limit::LogLimit;
use crate::policy::CurrentPolicy;
use crate::reconcile::removal;
use crate::reconciler::Reconciler;
use crate::settings::RelaySettings;
use crate::task::fair_queue::FairQueue;
use crate::task::record::TaskRecord;
use crate::task::store::RecordStore;
use crate::task::task_registry::TaskRegistry;
use crate::transport::poll::http_client;

/// Callbacks in progress at the same time. Each result may have 5 MiB.
const MAX_CALLBACKS: usize = 16;

/// The relay of a cluster. Clones share one state. When the last one is dropped, tasks continue in the cluster without
/// reconciliation.
#[derive(Clone)]
pub struct Relay {
    pub(crate) inner: Arc<Reconciler>,
    /// Ends the loops when the last clone is dropped.
    _tasks: Arc<tokio::sync::watch::Sender<()>>,
}

impl Relay {
    /// Opens the relay whose records are in `settings.own_namespace`. It continues the recorded tasks and sends results
    /// that are not acknowledged. A second relay in the same namespace is harmless, but it sends callbacks a second
    /// time and has separate slots. `policy` is in force until [`set_policy`](Self::set_policy) replaces it.
    ///
    /// # Errors
    /// Returns an error if the cluster cannot be reached or a right is missing.
    pub async fn open(client: Client, settings: RelaySettings, policy: ClusterPolicy) -> Result<Self> {
        let system: Api<Namespace> = Api::all(client.clone());
        let cluster = system.get("kube-system").await?.uid().unwrap_or_default();
        let (sender, ends) = tokio::sync::watch::channel(());
        let store = RecordStore::new(&client, &settings.own_namespace);
        let kept_since = store.kept_since().await?;
        let policy = CurrentPolicy::new(policy);
        policy.add_namespaces([settings.default_namespace.clone()]);
        let mut tasks = store
            .collect(|record| {
                policy.add_namespaces(record.namespaces());
                RecoveredTask::of(record)
            })
            .await?;
        tasks.sort_by_key(|task| task.received_ms);
        let holders = tasks.iter().filter(|task| task.has_slot).map(|task| task.name.clone());
        let queued = tasks.iter().filter_map(|task| Some((task.name.clone(), task.queued_for.clone()?)));
        let queue = FairQueue::new(settings.max_concurrent_tasks, holders, queued);
        let inner = Arc::new(Reconciler {
            events: EventRecorder::new(&client),
            client,
            settings,
            policy,
            store,
            kept_since,
            discovery: DiscoveryCache::default(),
            watches: ObjectWatches::default(),
            warnings: NamespaceCache::default(),
            owned: NamespaceCache::default(),
            kinds: NamespaceCache::default(),
            registry: TaskRegistry::default(),
            queue,
            http: http_client()?,
            callbacks: Semaphore::new(MAX_CALLBACKS),
            log_limit: LogLimit::default(),
            cluster_uid: cluster,
            opened: Instant::now(),
            shutdown: ends,
        });
        inner.find_output_namespaces().await?;
        for task in &tasks {
            inner.reconcile(&task.name);
        }
        tokio::spawn(removal::review_loop(Arc::downgrade(&inner)));
        Ok(Self { inner, _tasks: Arc::new(sender) })
    }

    /// Replaces the policy, or records why the new one cannot be used. The previous policy then stays in force.
    ///
    /// New tasks are checked with the new policy. Tasks that exist are read, ended and removed as before.
    pub fn set_policy(&self, next: Result<ClusterPolicy, String>) {
        self.inner.policy.set(next);
    }

    /// Returns the UID of the namespace `kube-system`.
    pub fn cluster_uid(&self) -> &str {
        &self.inner.cluster_uid
    }
}

/// A recorded task when the relay opens. Its manifests are read later.
struct RecoveredTask {
    name: TaskId,
    received_ms: Option<u64>,
    /// True if a container may run or has run.
    has_slot: bool,
    /// The instance whose turn a queued task awaits.
    queued_for: Option<String>,
}

impl RecoveredTask {
    /// Returns `None` if the task needs no reconcile loop.
    fn of(record: TaskRecord) -> Option<Self> {
        let (needs_reconcile, is_queued) = (record.needs_reconcile(), record.is_queued());
        let spec = record.spec.as_ref();
        needs_reconcile.then(|| Self {
            received_ms: spec.map(|spec| spec.received_ms),
            has_slot: !is_queued && spec.is_some_and(|spec| spec.container().is_some()),
            queued_for: spec.filter(|_| is_queued).map(|spec| spec.objects.instance.clone()),
            name: record.name.clone(),
        })
    }
}
