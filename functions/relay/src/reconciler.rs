//! The relay with the state that all steps of all tasks share.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebb_kube::podspec::ClusterPolicy;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use crate::api_server::discovery::{DiscoveryCache, ResourceKind};
use crate::api_server::namespace_cache::NamespaceCache;
use crate::error::{LogLimit, LogSubject, ReconcileError, Result};
use crate::http_client::http_client;
use crate::task::fair_queue::FairQueue;
use crate::task::store::RecordStore;
use crate::task::task_registry::TaskRegistry;
use crate::{RelaySettings, TaskRecord};

/// The pause before an outage is logged again. All tasks meet the same one.
const OUTAGE_INTERVAL: Duration = Duration::from_secs(10);

/// Callbacks in progress at the same time. Each result may have 5 MiB.
const MAX_CALLBACKS: usize = 16;
/// Requests to Services at the same time: a part of those that the client permits, because a Service can be slow. The
/// responses together may have 16 MiB.
const MAX_CALLS: usize = 16;
/// Events that are sent at the same time.
const MAX_EVENTS: usize = 8;

/// The relay of a cluster. Clones share one state. Its loops run until the process ends.
#[derive(Clone)]
pub struct Relay {
    pub(crate) inner: Arc<Reconciler>,
}

impl Relay {
    /// Opens the relay whose records are in `settings.own_namespace`. It continues the recorded tasks and sends results
    /// that are not acknowledged. A second relay in the same namespace is harmless, but it sends callbacks a second
    /// time and has separate slots. Tasks that a former policy allowed are read, ended and removed as before.
    ///
    /// # Errors
    /// Returns an error if the cluster cannot be reached or a right is missing.
    pub async fn open(client: Client, settings: RelaySettings, policy: ClusterPolicy) -> Result<Self> {
        let system: Api<Namespace> = Api::all(client.clone());
        let cluster = system.get("kube-system").await?.uid().unwrap_or_default();
        let store = RecordStore::new(&client, &settings.own_namespace);
        let kept_since = store.kept_since().await?;
        let mut namespaces: BTreeSet<String> = policy.namespaces.keys().cloned().collect();
        namespaces.insert(settings.default_namespace.clone());
        let mut tasks = store
            .collect(None, |mut record| {
                namespaces.extend(record.namespaces());
                // The manifests are read later. Those of all records may exceed the memory.
                record.spec.iter_mut().for_each(|spec| spec.objects.apply.clear());
                record.needs_reconcile().then_some(record)
            })
            .await?;
        tasks.sort_by_key(|task| task.spec.as_ref().map(|spec| spec.received_ms));
        // A container of the others may run or has run.
        let (queued, others): (Vec<_>, Vec<_>) = tasks.iter().partition(|task| task.is_queued());
        let holders = others.into_iter().filter(|task| task.has_container()).map(|task| task.name.clone());
        let instance = |task: &TaskRecord| task.spec.as_ref().map(|spec| spec.objects.instance.clone());
        let queued = queued.into_iter().filter_map(|task| Some((task.name.clone(), instance(task)?)));
        let queue = FairQueue::new(settings.max_concurrent_tasks, holders, queued);
        let mut inner = Reconciler {
            discovery: DiscoveryCache(client.clone(), Mutex::default()),
            client,
            settings,
            policy,
            namespaces,
            store,
            kept_since,
            watches: Mutex::default(),
            warnings: NamespaceCache::default(),
            owned: NamespaceCache::default(),
            kinds: NamespaceCache::default(),
            event_permits: Arc::new(Semaphore::new(MAX_EVENTS)),
            registry: TaskRegistry::default(),
            work: Notify::new(),
            queue,
            http: http_client()?,
            callbacks: Semaphore::new(MAX_CALLBACKS),
            calls: Semaphore::new(MAX_CALLS),
            log_limit: LogLimit::default(),
            cluster_uid: cluster,
            opened: Instant::now(),
        };
        inner.find_output_namespaces().await?;
        let inner = Arc::new(inner);
        for task in &tasks {
            inner.reconcile(&task.name);
        }
        tokio::spawn(Arc::clone(&inner).review_loop());
        Ok(Self { inner })
    }

    /// Returns the UID of the namespace `kube-system`.
    pub fn cluster_uid(&self) -> &str {
        &self.inner.cluster_uid
    }
}

pub(crate) struct Reconciler {
    pub(crate) client: Client,
    pub(crate) settings: RelaySettings,
    pub(crate) policy: ClusterPolicy,
    /// Namespaces that may contain objects of tasks. A former policy may have listed some of them.
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) store: RecordStore,
    /// The time since which records are kept, in milliseconds since 1970.
    pub(crate) kept_since: u64,
    pub(crate) discovery: DiscoveryCache,
    pub(crate) watches: Mutex<HashSet<(String, String, Option<String>)>>,
    /// Those of [`crate::observe::blockers::warning`].
    pub(crate) warnings: NamespaceCache<Vec<Value>>,
    /// Objects that have owners.
    pub(crate) owned: NamespaceCache<Vec<Value>>,
    /// The kinds that tasks may create, in the only namespace `""`.
    pub(crate) kinds: NamespaceCache<Vec<ResourceKind>>,
    /// Permits of events. Further ones are dropped, so that they do not displace other requests.
    pub(crate) event_permits: Arc<Semaphore>,
    pub(crate) registry: TaskRegistry,
    /// Notified of each batch that is more than the scan for orphans.
    pub(crate) work: Notify,
    pub(crate) queue: FairQueue,
    pub(crate) http: reqwest::Client,
    pub(crate) callbacks: Semaphore,
    pub(crate) calls: Semaphore,
    pub(crate) log_limit: LogLimit,
    pub(crate) cluster_uid: String,
    pub(crate) opened: Instant,
}

impl Reconciler {
    /// Logs an error if it is an outage of the API server, at most once per 10 s. Returns false for another error.
    pub(crate) fn log_outage(&self, error: &ReconcileError) -> bool {
        let is_outage = error.is_outage();
        if is_outage && self.log_limit.allows(LogSubject::Outage, OUTAGE_INTERVAL, Instant::now()) {
            tracing::warn!(tasks = self.registry.count(), "{error}");
        }
        is_outage
    }
}
