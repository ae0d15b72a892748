//! Units in a real cluster instead of processes of this machine: its relay is a child of this process, and is asked over
//! HTTP as any relay is.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ebb_protocol::sign::WebhookSecret;
use ebb_relay_client::{ClusterConfig, ClusterRegistry, PodUser, RelayTransport};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Level;

/// How long the relay of a process that was just killed may take to end.
const PORT_WAIT: Duration = Duration::from_secs(3);
const PORT_INTERVAL: Duration = Duration::from_millis(20);
/// The wait between an unexpected end of a relay and its next start.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A cluster in which units run.
#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// The program `ebb-relay`.
    pub relay: PathBuf,
    pub kubeconfig: PathBuf,
    /// The context in that file; `None`: the current one.
    pub context: Option<String>,
    /// The address at which its pods reach this machine, and the port that the relay then listens on.
    pub advertise_address: SocketAddr,
    /// The image with the entrypoint, as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    /// The namespace of units that name none; created if it is missing.
    pub unit_namespace: String,
    /// The file of the policy, as YAML; `None`: the relay's default for such a cluster.
    pub policy: Option<PathBuf>,
}

type DynError = Box<dyn std::error::Error + Send + Sync>;

/// Starts the relay of a cluster and keeps it running until `stopped`; it calls back at `functions`. Work that goes on is
/// found again by the next one.
pub(crate) async fn open(
    cluster: &KubernetesOptions,
    functions: IpAddr,
    stopped: watch::Receiver<bool>,
) -> Result<(ClusterRegistry, JoinHandle<()>), DynError> {
    // This process alone sends requests to the relay.
    let secret = WebhookSecret::from_bytes(&rand::random::<[u8; 32]>())?;
    let relay = RelayProcess::start(cluster, functions, &secret).await?;
    let clusters = ClusterRegistry::only(ClusterConfig {
        name: "default".to_owned(),
        transport: RelayTransport::Push(format!(
            "http://{}",
            SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.advertise_address.port()))
        )),
        keys: secret.clone().into(),
        uid: relay.cluster.clone(),
        entrypoint_image: cluster.entrypoint_image.clone(),
        user: PodUser::Image,
    });
    let task = tokio::spawn(keep_running(relay, cluster.clone(), functions, secret, stopped));
    Ok((clusters, task))
}

/// Starts a relay again that has ended. The records in the cluster are all that it needs.
async fn keep_running(
    mut relay: RelayProcess,
    cluster: KubernetesOptions,
    functions: IpAddr,
    secret: WebhookSecret,
    mut stopped: watch::Receiver<bool>,
) {
    let mut stop = std::pin::pin!(async move {
        // An error means that the stack is gone, which is a stop too.
        stopped.wait_for(|&stopped| stopped).await.ok();
    });
    loop {
        tokio::select! {
            () = &mut stop => return relay.stop().await,
            reason = relay.wait() => tracing::warn!(reason, "the relay of the cluster has ended, and starts again"),
        }
        relay = loop {
            let started = async {
                tokio::time::sleep(RESTART_PAUSE).await;
                RelayProcess::start(&cluster, functions, &secret).await
            };
            tokio::select! {
                () = &mut stop => return,
                started = started => match started {
                    Ok(relay) => break relay,
                    Err(error) => tracing::warn!(%error, "the relay of the cluster does not start again"),
                }
            }
        };
    }
}

/// The time in which a relay starts, its questions to the cluster included.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A relay that runs.
struct RelayProcess {
    child: Child,
    /// It runs as long as this is open: the system closes it for a process that was killed, too.
    stdin: ChildStdin,
    log: JoinHandle<String>,
    /// The uid of the namespace `kube-system` of its cluster.
    cluster: String,
}

impl RelayProcess {
    /// Starts it and waits until it listens.
    async fn start(cluster: &KubernetesOptions, functions: IpAddr, secret: &WebhookSecret) -> Result<Self, DynError> {
        let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, cluster.advertise_address.port()));
        free(everywhere).await.map_err(|error| format!("{everywhere}: {error}"))?;
        let mut command = Command::new(&cluster.relay);
        // Settings of another relay are none of this one's.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"EBB_RELAY_")) {
            command.env_remove(name);
        }
        let advertise_url = format!("http://{}", cluster.advertise_address);
        command.args(["--attached", "--listen", &everywhere.to_string(), "--advertise-url", &advertise_url]);
        command.args(["--callback-hosts", &functions.to_string(), "--unit-namespace", &cluster.unit_namespace]);
        command.arg("--kubeconfig").arg(&cluster.kubeconfig);
        if let Some(context) = &cluster.context {
            command.args(["--context", context]);
        }
        if let Some(file) = &cluster.policy {
            command.arg("--policy").arg(file);
        }
        command.env("EBB_LOG", std::env::var_os("RUST_LOG").unwrap_or_else(|| "warn".into()));
        // Ctrl-C is not for it: what is taken away then still needs it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", cluster.relay.display()))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("it has no standard streams".into());
        };
        let mut relay = Self { child, stdin, log: tokio::spawn(forward_log(stderr)), cluster: String::new() };
        // One that has ended by now says why.
        let _ = relay.stdin.write_all(secret.reveal().as_bytes()).await;
        let _ = relay.stdin.write_all(b"\n").await;
        let first = tokio::time::timeout(START_TIMEOUT, BufReader::new(stdout).lines().next_line()).await;
        let first = first.map_err(|_| {
            let file = cluster.kubeconfig.display();
            format!("it has not started in {START_TIMEOUT:?}: the credentials of {file} must not ask questions, and the cluster must answer")
        })?;
        match first? {
            Some(line) => relay.cluster = line.rsplit(' ').next().unwrap_or_default().to_owned(),
            None => return Err(relay.wait().await.into()),
        }
        Ok(relay)
    }

    /// Waits until it ends by itself, and says why.
    async fn wait(&mut self) -> String {
        let status = self.child.wait().await;
        let why = (&mut self.log).await.unwrap_or_default();
        match (status, why.trim_end()) {
            (Ok(status), "") => status.to_string(),
            (Err(error), "") => error.to_string(),
            (_, why) => why.to_owned(),
        }
    }

    async fn stop(mut self) {
        drop(self.stdin);
        // It has been a child, or this is over for other reasons.
        let _ = self.child.wait().await;
    }
}

/// Waits until the address is free.
async fn free(address: SocketAddr) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(_) if begun.elapsed() < PORT_WAIT => tokio::time::sleep(PORT_INTERVAL).await,
            bound => return bound.map(drop),
        }
    }
}

/// Passes on what a relay logs, to where this process logs if it does; gives what it says last if it fails.
async fn forward_log(stderr: ChildStderr) -> String {
    let (mut lines, mut why) = (BufReader::new(stderr).lines(), String::new());
    while let Ok(Some(line)) = lines.next_line().await {
        match line.strip_prefix("error: ") {
            Some(said) if why.is_empty() => why = format!("{said}\n"),
            _ if !why.is_empty() => why += &format!("{line}\n"),
            // It filters by the same variable.
            _ if tracing::enabled!(target: "ebb_relay_core", Level::ERROR) => drop(writeln!(io::stderr(), "{line}")),
            _ => {}
        }
    }
    why
}
