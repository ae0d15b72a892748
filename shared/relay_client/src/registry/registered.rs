//! The clusters that are registered in the table, in memory for a few seconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex as SyncMutex};
use std::time::{Duration, Instant};

use ebb_protocol::limits::message;
use ebb_protocol::{SignadotOutputs, Timestamp, WebhookKeys, WebhookSecret, open_value, seal_value};
use ebb_store::{ClusterFault, ClusterFaultKind, ClusterItem, Store, StoreResult};
use tokio::sync::Mutex;

use super::cluster_config::{ClusterConfig, RelayTransport};
use ebb_flow::lock::lock;

type Snapshot = Arc<BTreeMap<String, RegisteredCluster>>;

#[derive(Clone)]
pub(super) struct RegisteredCluster {
    /// `None` until a relay has registered, and if its stored secret cannot be decrypted.
    pub(super) config: Option<Arc<ClusterConfig>>,
    /// The pinned UID. `None` until a relay has registered.
    uid: Option<String>,
    pub(super) signadot_outputs: Option<SignadotOutputs>,
    /// The digest of the last bootstrap token.
    pub(super) token: Option<String>,
}

impl RegisteredCluster {
    /// Returns false if an entry of the configuration with the same name is known to be another cluster.
    pub(super) fn may_be(&self, entry: &ClusterConfig) -> bool {
        self.uid.as_ref().is_none_or(|uid| *uid == entry.uid)
    }
}

pub(crate) struct RegisteredClusters {
    pub(crate) store: Arc<Store>,
    keys: WebhookKeys,
    known: Mutex<Option<(Instant, Snapshot)>>,
    /// The times of the last denials that this process has recorded, so that a flood of wrong polls costs no requests. The
    /// flag is false after a poll with the right secret. Anyone can send wrong polls, so the next one is not recorded sooner.
    denied: SyncMutex<HashMap<String, (Instant, bool)>>,
}

impl RegisteredClusters {
    pub(super) fn new(store: Arc<Store>, keys: WebhookKeys) -> Self {
        Self { store, keys, known: Mutex::default(), denied: SyncMutex::default() }
    }

    /// Returns the clusters as they were at most `age` ago. Concurrent callers share one read. Without a response of
    /// the table, it returns the last ones.
    pub(super) async fn read(&self, age: Duration) -> StoreResult<Snapshot> {
        let mut known = self.known.lock().await;
        if let Some((read, clusters)) = known.as_ref()
            && read.elapsed() < age
        {
            return Ok(Arc::clone(clusters));
        }
        let read = Instant::now();
        match self.store.list_clusters().await {
            Ok(items) => {
                let cluster = |item: &ClusterItem| RegisteredCluster {
                    config: self.config(item).map(Arc::new),
                    uid: item.relay.as_ref().map(|relay| relay.uid.clone()),
                    signadot_outputs: item.signadot_outputs,
                    token: item.bootstrap.as_ref().map(|bootstrap| bootstrap.digest.clone()),
                };
                let clusters = items.iter().map(|item| (item.name.clone(), cluster(item)));
                let clusters: Snapshot = Arc::new(clusters.collect());
                *known = Some((read, Arc::clone(&clusters)));
                Ok(clusters)
            }
            Err(error) => {
                let Some((_, clusters)) = known.as_ref() else { return Err(error) };
                tracing::warn!(%error, "cannot read the registered clusters; using those of the last read");
                Ok(Arc::clone(clusters))
            }
        }
    }

    /// Forgets the clusters after a write of this process, so that it is effective at once.
    pub(crate) async fn forget(&self) {
        *self.known.lock().await = None;
    }

    /// Encrypts the secret of a relay for the table, with the first root secret. The same secret gives the same text.
    pub(crate) fn seal(&self, cluster: &str, secret: &WebhookSecret) -> String {
        seal_value(&self.keys, &place(cluster), secret.reveal().as_bytes())
    }

    /// Decrypts the secret of a relay, which any of the root secrets may have encrypted. Returns `None` without that one.
    pub(crate) fn open(&self, cluster: &str, sealed: &str) -> Option<WebhookSecret> {
        WebhookSecret::parse(std::str::from_utf8(&open_value(&self.keys, &place(cluster), sealed)?).ok()?).ok()
    }

    fn config(&self, item: &ClusterItem) -> Option<ClusterConfig> {
        let relay = item.relay.as_ref()?;
        let Some(secret) = self.open(&item.name, &relay.secret) else {
            tracing::error!(
                cluster = item.name,
                "the stored secret of the relay cannot be decrypted: add the former root secret to EBB_UNIT_SECRETS, or \
                 register the relay again"
            );
            return None;
        };
        Some(ClusterConfig {
            name: item.name.clone(),
            transport: item.url.clone().map_or(RelayTransport::Pull, RelayTransport::Push),
            keys: secret.into(),
            uid: relay.uid.clone(),
            entrypoint_image: item.entrypoint_image.clone(),
            signadot_outputs: item.signadot_outputs,
            is_registered: true,
        })
    }

    /// Records that a poll of a connected cluster was denied. An error is logged.
    pub(crate) async fn note_denial(&self, cluster: &str, at: Timestamp, reason: &str) {
        {
            let mut denied = lock(&self.denied);
            let interval = Duration::from_millis(ClusterFault::DENIAL_INTERVAL_MS);
            if denied.get(cluster).is_some_and(|(at, _)| at.elapsed() < interval) {
                return;
            }
            denied.insert(cluster.to_owned(), (Instant::now(), true));
        }
        let reason = message(reason);
        tracing::warn!(cluster, reason, "denied a poll; the relay has another secret than the control plane");
        if let Err(error) = self.store.begin_fault(ClusterFaultKind::Denial, cluster, at, &reason).await {
            tracing::warn!(cluster, %error, "cannot record a denied poll");
        }
    }

    /// Removes the denial that this process has recorded, after a poll with the right secret. An error is logged.
    pub(crate) async fn end_noted_denial(&self, cluster: &str) {
        let is_open = lock(&self.denied).get_mut(cluster).is_some_and(|(_, is_open)| std::mem::take(is_open));
        if is_open {
            self.end_denial(cluster).await;
        }
    }

    /// Removes the denial of a cluster, which any process may have recorded. An error is logged.
    pub(crate) async fn end_denial(&self, cluster: &str) {
        if let Err(error) = self.store.end_fault(ClusterFaultKind::Denial, cluster).await {
            tracing::warn!(cluster, %error, "cannot remove a denied poll");
        }
    }
}

/// Returns the place for which the secret of a relay is encrypted.
fn place(cluster: &str) -> String {
    format!("relay of cluster {cluster}")
}
