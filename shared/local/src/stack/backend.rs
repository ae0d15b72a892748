//! What runs the units.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebb_egress::{HttpCall, HttpClient, Policy};
use ebb_flow::ports::RelayClient;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_relay_client::{ClusterRegistry, ClusterRelay};
use ebb_store::BatchQueue;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{GRACE, StackError};
use crate::kubernetes::{self, KubernetesOptions};
use crate::pods::{ContainerEngine, LocalRelay, LocalRelayOptions};

/// What runs the units.
#[derive(Clone, Debug, Default)]
pub enum UnitBackend {
    /// Scripts are processes of this machine, and objects are refused.
    #[default]
    Processes,
    /// Scripts are containers of their image on this machine, and objects are refused.
    Containers(ContainerEngine),
    /// A cluster whose relay is a child of this process.
    Cluster(KubernetesOptions),
    RemoteRelays(RemoteRelays),
}

/// Relays that run elsewhere.
#[derive(Clone, Debug)]
pub struct RemoteRelays {
    /// A file as [`ClusterRegistry::parse`] reads it.
    pub clusters: PathBuf,
    /// Networks of the relays that are not public, separated by commas; the loopback interface is always open.
    pub networks: String,
}

/// What was opened.
pub(super) struct BackendHandle {
    pub(super) relay: Arc<dyn RelayClient>,
    pub(super) clusters: Arc<ClusterRegistry>,
    /// The same, if it is the one of processes.
    pub(super) processes: Option<LocalRelay>,
    /// What keeps it running, if it is a child of this process.
    pub(super) task: Option<JoinHandle<()>>,
}

/// Opens what runs the units. `state` is for what processes leave, the functions listen at `listen`, `options` are for
/// processes, their `call` for all that is on this machine; relays that poll are reached by `queue`, and a child ends when
/// `stopped` says so.
pub(super) async fn open(
    units: &UnitBackend,
    state: &Path,
    listen: IpAddr,
    options: LocalRelayOptions,
    queue: Arc<dyn BatchQueue>,
    stopped: watch::Receiver<bool>,
) -> Result<BackendHandle, StackError> {
    match units {
        UnitBackend::Processes | UnitBackend::Containers(_) => {
            let containers = match units {
                UnitBackend::Containers(containers) => Some(containers.clone()),
                _ => None,
            };
            let options = LocalRelayOptions { containers, ..options };
            let relay = LocalRelay::open(state, options).map_err(StackError::part("the relay"))?;
            let (clusters, processes) = (Arc::default(), Some(relay.clone()));
            Ok(BackendHandle { relay: Arc::new(relay), clusters, processes, task: None })
        }
        UnitBackend::Cluster(cluster) => {
            let opened = kubernetes::open(cluster, listen, stopped).await;
            let (clusters, task) = opened.map_err(StackError::part("the relay of the cluster"))?;
            Ok(remote_backend(Arc::new(clusters), options.call, queue, Some(task)))
        }
        UnitBackend::RemoteRelays(relays) => {
            let (clusters, call) = remote_clusters(relays).map_err(StackError::part("what asks the relays"))?;
            Ok(remote_backend(Arc::new(clusters), call, queue, None))
        }
    }
}

fn remote_backend(
    clusters: Arc<ClusterRegistry>,
    call: Arc<dyn HttpCall>,
    queue: Arc<dyn BatchQueue>,
    task: Option<JoinHandle<()>>,
) -> BackendHandle {
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let relay = ClusterRelay::new(clusters.clone(), call, queue, clock, random, GRACE);
    BackendHandle { relay: Arc::new(relay), clusters, processes: None, task }
}

fn remote_clusters(
    relays: &RemoteRelays,
) -> Result<(ClusterRegistry, Arc<dyn HttpCall>), Box<dyn std::error::Error + Send + Sync>> {
    let file = relays.clusters.display();
    let text = std::fs::read_to_string(&relays.clusters).map_err(|error| format!("{file}: {error}"))?;
    let clusters = ClusterRegistry::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    let client = HttpClient::new(Policy::with_loopback().and_networks(&relays.networks)?)?;
    Ok((clusters, Arc::new(client.with_limit(ebb_protocol::limits::BATCH_RESPONSE_BODY))))
}
