//! What runs the units.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebb_flow::cluster::{ClusterRelay, Clusters};
use ebb_flow::ports::Relay;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_outbound::{Call, Client, Policy};
use ebb_store::Mailbox;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{GRACE, StackError};
use crate::kubernetes::{self, Kubernetes};
use crate::pods::{Containers, Options, ProcessRelay};

/// What runs the units.
#[derive(Clone, Debug, Default)]
pub enum Units {
    /// Scripts are processes of this machine, and objects are refused.
    #[default]
    Processes,
    /// Scripts are containers of their image on this machine, and objects are refused.
    Containers(Containers),
    /// A cluster whose relay is a child of this process.
    Cluster(Kubernetes),
    Relays(Relays),
}

/// Relays that run elsewhere.
#[derive(Clone, Debug)]
pub struct Relays {
    /// A file as [`Clusters::parse`] reads it.
    pub clusters: PathBuf,
    /// Networks of the relays that are not public, separated by commas; the loopback interface is always open.
    pub networks: String,
}

/// What was opened.
pub(super) struct Opened {
    pub(super) relay: Arc<dyn Relay>,
    pub(super) clusters: Arc<Clusters>,
    /// The same, if it is the one of processes.
    pub(super) processes: Option<ProcessRelay>,
    /// What keeps it running, if it is a child of this process.
    pub(super) task: Option<JoinHandle<()>>,
}

/// Opens what runs the units. `state` is for what processes leave, the functions listen at `listen`, `options` are for
/// processes, their `call` for all that is on this machine; relays that poll are asked by `mail`, and a child ends when
/// `stopped` says so.
pub(super) async fn open(
    units: &Units,
    state: &Path,
    listen: IpAddr,
    options: Options,
    mail: Arc<dyn Mailbox>,
    stopped: watch::Receiver<bool>,
) -> Result<Opened, StackError> {
    match units {
        Units::Processes | Units::Containers(_) => {
            let containers = match units {
                Units::Containers(containers) => Some(containers.clone()),
                _ => None,
            };
            let options = Options { containers, ..options };
            let relay = ProcessRelay::open(state, options).map_err(StackError::part("the relay"))?;
            let (clusters, processes) = (Arc::default(), Some(relay.clone()));
            Ok(Opened { relay: Arc::new(relay), clusters, processes, task: None })
        }
        Units::Cluster(cluster) => {
            let opened = kubernetes::open(cluster, listen, stopped).await;
            let (clusters, task) = opened.map_err(StackError::part("the relay of the cluster"))?;
            Ok(asking(Arc::new(clusters), options.call, mail, Some(task)))
        }
        Units::Relays(relays) => {
            let (clusters, call) = elsewhere(relays).map_err(StackError::part("what asks the relays"))?;
            Ok(asking(Arc::new(clusters), call, mail, None))
        }
    }
}

fn asking(
    clusters: Arc<Clusters>,
    call: Arc<dyn Call>,
    mail: Arc<dyn Mailbox>,
    task: Option<JoinHandle<()>>,
) -> Opened {
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let relay = ClusterRelay::new(clusters.clone(), call, mail, clock, random, GRACE);
    Opened { relay: Arc::new(relay), clusters, processes: None, task }
}

fn elsewhere(relays: &Relays) -> Result<(Clusters, Arc<dyn Call>), Box<dyn std::error::Error + Send + Sync>> {
    let file = relays.clusters.display();
    let text = std::fs::read_to_string(&relays.clusters).map_err(|error| format!("{file}: {error}"))?;
    let clusters = Clusters::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    let client = Client::new(Policy::with_loopback().and_networks(&relays.networks)?)?;
    Ok((clusters, Arc::new(client.with_limit(ebb_wire::limits::ANSWERS_BODY))))
}
