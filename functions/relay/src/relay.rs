//! The relay with its shared state.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ebb_kube::podspec::ClusterPolicy;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use tokio::sync::Semaphore;

use crate::api_server::discovery::DiscoveryCache;
use crate::api_server::namespace_cache::NamespaceCache;
use crate::error::{LogLimit, Result};
use crate::http_client::http_client;
use crate::policy::CurrentPolicy;
use crate::reconcile::removal;
use crate::reconciler::Reconciler;
use crate::settings::RelaySettings;
use crate::task::fair_queue::FairQueue;
use crate::task::record::TaskRecord;
use crate::task::store::RecordStore;
use crate::task::task_registry::TaskRegistry;

/// Callbacks in progress at the same time. Each result may have 5 MiB.
const MAX_CALLBACKS: usize = 16;
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
    /// time and has separate slots. `policy` is in force until [`set_policy`](Self::set_policy) replaces it.
    ///
    /// # Errors
    /// Returns an error if the cluster cannot be reached or a right is missing.
    pub async fn open(client: Client, settings: RelaySettings, policy: ClusterPolicy) -> Result<Self> {
        let system: Api<Namespace> = Api::all(client.clone());
        let cluster = system.get("kube-system").await?.uid().unwrap_or_default();
        let store = RecordStore::new(&client, &settings.own_namespace);
        let kept_since = store.kept_since().await?;
        let policy = CurrentPolicy::new(policy);
        policy.add_namespaces([settings.default_namespace.clone()]);
        let mut tasks = store
            .collect(None, |mut record| {
                policy.add_namespaces(record.namespaces());
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
        let inner = Arc::new(Reconciler {
            discovery: DiscoveryCache::new(client.clone()),
            client,
            settings,
            policy,
            store,
            kept_since,
            watches: Mutex::default(),
            warnings: NamespaceCache::default(),
            owned: NamespaceCache::default(),
            kinds: NamespaceCache::default(),
            event_permits: Arc::new(Semaphore::new(MAX_EVENTS)),
            registry: TaskRegistry::default(),
            queue,
            http: http_client()?,
            callbacks: Semaphore::new(MAX_CALLBACKS),
            log_limit: LogLimit::default(),
            cluster_uid: cluster,
            opened: Instant::now(),
        });
        inner.find_output_namespaces().await?;
        for task in &tasks {
            inner.reconcile(&task.name);
        }
        tokio::spawn(removal::review_loop(Arc::clone(&inner)));
        Ok(Self { inner })
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
