//! Units in a real cluster instead of processes of this machine: its relay runs in this process, and is asked over HTTP
//! as any relay is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ebb_cluster::{Allowed, Relay, Settings};
use ebb_flow::cluster::{Cluster, Clusters, User, Way};
use ebb_wire::sign::{Keys, Secret};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The namespace of the relay's records.
const OWN: &str = "ebb-relay";
/// What a person's own cluster allows if they do not say: what namespaces hold anyway, and nothing that reaches out of
/// them.
const KINDS: [&str; 14] = [
    "ConfigMap",
    "Secret",
    "Service",
    "ServiceAccount",
    "PersistentVolumeClaim",
    "Pod",
    "Job.batch",
    "CronJob.batch",
    "Deployment.apps",
    "StatefulSet.apps",
    "DaemonSet.apps",
    "Ingress.networking.k8s.io",
    "NetworkPolicy.networking.k8s.io",
    "PodDisruptionBudget.policy",
];

/// A cluster in which units run.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// How to reach it.
    pub kubeconfig: PathBuf,
    /// The context in that file; `None`: the current one.
    pub context: Option<String>,
    /// Where its pods reach this machine: an address, and the port that the relay then listens on.
    pub reach: SocketAddr,
    /// An image whose `/ebb-runner` is the runner.
    pub runner_image: String,
    /// The namespace of units that name none; made if it is not there.
    pub units: String,
    /// A file that says what is allowed (`ebb_podspec::Allowed` as YAML); `None`: the level `baseline`, the namespace of
    /// units, and the kinds of objects that need no rights outside of a namespace.
    pub allowed: Option<PathBuf>,
}

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// Opens the relay of a cluster and serves it until `stopped`; it calls back at `functions`. Work that goes on is found again by the next one.
pub(crate) async fn open(
    cluster: &Kubernetes,
    functions: IpAddr,
    stopped: watch::Receiver<bool>,
) -> Result<(Clusters, JoinHandle<()>), Trouble> {
    let client = client(cluster).await?;
    for name in [OWN, &cluster.units] {
        make_namespace(&client, name).await?;
    }
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, cluster.reach.port()));
    let listener = TcpListener::bind(everywhere).await.map_err(|error| format!("{everywhere}: {error}"))?;
    let settings = Settings {
        allowed: allowed(cluster)?,
        callback_hosts: BTreeSet::from([functions.to_string()]),
        ..Settings::new(OWN, &cluster.units, &format!("http://{}", cluster.reach))
    };
    let relay = Relay::open(client, settings).await?;
    // Of this start: nobody else asks this relay.
    let secret = Secret::from_bytes(&rand::random::<[u8; 32]>())?;
    let keys = Keys::parse(&secret.reveal())?;
    let clusters = Clusters::only(Cluster {
        name: "default".to_owned(),
        way: Way::Push(format!("http://{}", SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.reach.port())))),
        keys: keys.clone(),
        uid: relay.cluster().to_owned(),
        runner_image: cluster.runner_image.clone(),
        user: User::OfImage,
    });
    let routes = ebb_cluster::http::reports(relay.clone()).merge(ebb_cluster::http::batches(relay, keys));
    let task = tokio::spawn(crate::stack::serve(listener, routes, stopped));
    Ok((clusters, task))
}

async fn client(cluster: &Kubernetes) -> Result<Client, Trouble> {
    let file = Kubeconfig::read_from(&cluster.kubeconfig)?;
    let options = KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
    Ok(ebb_cluster::client(Config::from_custom_kubeconfig(file, &options).await?)?)
}

async fn make_namespace(client: &Client, name: &str) -> Result<(), Trouble> {
    let api: Api<Namespace> = Api::all(client.clone());
    if api.get_opt(name).await?.is_none() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api.patch(name, &PatchParams::apply("ebb"), &Patch::Apply(namespace)).await?;
    }
    Ok(())
}

fn allowed(cluster: &Kubernetes) -> Result<Allowed, Trouble> {
    if let Some(file) = &cluster.allowed {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        return serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", file.display()).into());
    }
    Ok(Allowed {
        level: ebb_cluster::Level::Baseline,
        namespaces: BTreeMap::from([(cluster.units.clone(), BTreeSet::from(["default".to_owned()]))]),
        kinds: KINDS.map(str::to_owned).into(),
        ..Allowed::default()
    })
}
