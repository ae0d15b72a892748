//! The part that runs units: processes, containers, a child relay or remote relays.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebb_egress::{HttpCall, HttpClient, Policy};
use ebb_flow::ports::RelayClient;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_protocol::sign::WebhookKeys;
use ebb_relay_client::{ClusterRegistry, ClusterRelay};
use ebb_store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::backend_record;
use super::stack_error::StackError;
use crate::pods::{LocalRelay, LocalRelayOptions};
use crate::{ContainerEngine, KubernetesOptions, files, kubernetes};

/// The time between `SIGTERM` and `SIGKILL` of a script.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// The part that runs units.
#[derive(Clone, Debug, Default)]
pub enum UnitBackend {
    /// Scripts run as processes of this machine. Objects are rejected.
    #[default]
    Processes,
    /// Scripts run as containers of their image on this machine. Objects are rejected.
    Containers(ContainerEngine),
    /// Units run in a cluster whose relay is a child of this process.
    Cluster(KubernetesOptions),
    RemoteRelays(RemoteRelays),
}

#[derive(Clone, Debug)]
pub struct RemoteRelays {
    /// A file in the format of [`ClusterRegistry::parse`]. Registered clusters are added to it.
    pub clusters: Option<PathBuf>,
    /// Networks of the relays that are not public, separated by commas. Loopback is always allowed.
    pub networks: String,
}

pub(super) struct BackendHandle {
    pub(super) relay: Arc<dyn RelayClient>,
    pub(super) clusters: Arc<ClusterRegistry>,
    /// The relay of processes or containers.
    pub(super) processes: Option<LocalRelay>,
    /// The task that restarts a child relay.
    pub(super) task: Option<JoinHandle<()>>,
}

/// Opens the part that runs units, unless targets live whose units have run in another one.
///
/// Processes use `state` and `options`. `call` sends requests to a child relay. `store` has the batches of relays that
/// poll, and the registered clusters with secrets that `keys` encrypt. A child relay calls back to `listen` and stops
/// after `stopped`.
pub(super) async fn open(
    units: &UnitBackend,
    state: &Path,
    listen: IpAddr,
    options: LocalRelayOptions,
    call: Arc<dyn HttpCall>,
    (store, keys): (Arc<Store>, WebhookKeys),
    stopped: watch::Receiver<bool>,
) -> Result<BackendHandle, StackError> {
    let record = async |part| backend_record::keep(state, store.as_ref(), part).await;
    match units {
        UnitBackend::Processes | UnitBackend::Containers(_) => {
            let (containers, part) = match units {
                UnitBackend::Containers(engine) => (Some(engine.clone()), format!("--pods {engine}")),
                _ => (None, "--pods process".to_owned()),
            };
            // An opened relay starts scripts that wait.
            record(part).await?;
            let options = LocalRelayOptions { containers, ..options };
            let relay = LocalRelay::open(state, options).map_err(StackError::part("the relay"))?;
            // Clusters can be registered, and units run on this machine nevertheless.
            let clusters = Arc::new(ClusterRegistry::default().with_registered(store, keys));
            let processes = Some(relay.clone());
            Ok(BackendHandle { relay: Arc::new(relay), clusters, processes, task: None })
        }
        UnitBackend::Cluster(cluster) => {
            let opened = kubernetes::open(cluster, listen, stopped).await;
            let (clusters, task) = opened.map_err(StackError::part("the relay of the cluster"))?;
            let uid = clusters.named(None).map_or_else(String::new, |cluster| cluster.uid.clone());
            record(format!("--kubeconfig of the cluster {uid}")).await?;
            Ok(remote_backend(Arc::new(clusters), call, store, Some(task)))
        }
        UnitBackend::RemoteRelays(relays) => {
            let (clusters, call) = remote_clusters(relays).map_err(StackError::part("the client of the relays"))?;
            // Each name of a document has its own UID.
            record("--clusters".to_owned()).await?;
            let clusters = clusters.with_registered(store.clone(), keys);
            Ok(remote_backend(Arc::new(clusters), call, store, None))
        }
    }
}

fn remote_backend(
    clusters: Arc<ClusterRegistry>,
    call: Arc<dyn HttpCall>,
    queue: Arc<Store>,
    task: Option<JoinHandle<()>>,
) -> BackendHandle {
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let relay = ClusterRelay::new(clusters.clone(), call, queue, clock, random, GRACE);
    BackendHandle { relay: Arc::new(relay), clusters, processes: None, task }
}

fn remote_clusters(
    relays: &RemoteRelays,
) -> Result<(ClusterRegistry, Arc<dyn HttpCall>), Box<dyn std::error::Error + Send + Sync>> {
    let mut clusters = ClusterRegistry::default();
    if let Some(path) = &relays.clusters {
        let file = path.display();
        // It has the secrets of the relays.
        let text = files::read(path)?.ok_or_else(|| format!("{file} does not exist"))?;
        let text = String::from_utf8(text).map_err(|error| format!("{file}: {error}"))?;
        clusters = ClusterRegistry::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    }
    let client = HttpClient::new(Policy::with_loopback().and_networks(&relays.networks)?)?;
    Ok((clusters, Arc::new(client)))
}
