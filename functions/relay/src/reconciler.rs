//! The state that all steps of all tasks share.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::api_server::discovery::{DiscoveryCache, ResourceKind};
use crate::api_server::namespace_cache::NamespaceCache;
use crate::error::{LogLimit, LogSubject, ReconcileError};
use crate::observe::blockers::Warning;
use crate::policy::CurrentPolicy;
use crate::settings::RelaySettings;
use crate::task::fair_queue::FairQueue;
use crate::task::store::RecordStore;
use crate::task::task_registry::TaskRegistry;

/// The pause before an outage is logged again. All tasks meet the same one.
const OUTAGE_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Reconciler {
    pub(crate) client: Client,
    pub(crate) settings: RelaySettings,
    pub(crate) policy: CurrentPolicy,
    pub(crate) store: RecordStore,
    /// The time since which records are kept, in milliseconds since 1970.
    pub(crate) kept_since: u64,
    pub(crate) discovery: DiscoveryCache,
    /// Version, kind and namespace of each watch.
    pub(crate) watches: Mutex<HashSet<(String, String, Option<String>)>>,
    pub(crate) warnings: NamespaceCache<Vec<Warning>>,
    /// Objects that have owners.
    pub(crate) owned: NamespaceCache<Vec<Value>>,
    /// The kinds that tasks may create, in the only namespace `""`.
    pub(crate) kinds: NamespaceCache<Vec<ResourceKind>>,
    /// Permits of events. Further ones are dropped, so that they do not displace other requests.
    pub(crate) event_permits: Arc<Semaphore>,
    pub(crate) registry: TaskRegistry,
    pub(crate) queue: FairQueue,
    pub(crate) http: reqwest::Client,
    pub(crate) callbacks: Semaphore,
    pub(crate) log_limit: LogLimit,
    /// The UID of `kube-system`.
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
