//! Units in a cluster. Its relay is a child of this process, which calls it over HTTP like any relay.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ebb_protocol::sign::WebhookSecret;
use ebb_relay_client::{ClusterConfig, ClusterRegistry, RelayTransport};
use futures::FutureExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Level;

/// The longest time until the relay of a killed process frees its port.
const PORT_WAIT: Duration = Duration::from_secs(3);
const PORT_INTERVAL: Duration = Duration::from_millis(20);
const RESTART_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// The program `ebb-relay`.
    pub relay: PathBuf,
    pub kubeconfig: PathBuf,
    /// The context of the kubeconfig. `None` means the current one.
    pub context: Option<String>,
    /// The address at which its pods reach this machine, and the port on which the relay then listens.
    pub advertise_address: SocketAddr,
    /// The image that contains the entrypoint as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    /// The default namespace of units. It is created if it is missing.
    pub unit_namespace: String,
    /// The YAML file of the policy. `None` means the default of the relay.
    pub policy: Option<PathBuf>,
}

type DynError = Box<dyn std::error::Error + Send + Sync>;

/// Starts the relay of a cluster and restarts it until `stopped`. The relay calls back to `functions`.
///
/// Tasks continue after the relay ends. The next relay adopts them.
pub(crate) async fn open(
    cluster: &KubernetesOptions,
    functions: IpAddr,
    stopped: watch::Receiver<bool>,
) -> Result<(ClusterRegistry, JoinHandle<()>), DynError> {
    // Only this process sends requests to the relay.
    let secret = WebhookSecret::from_bytes(&rand::random::<[u8; 32]>())?;
    let relay = RelayProcess::start(cluster, functions, &secret).await?;
    let clusters = ClusterRegistry::only(ClusterConfig {
        name: "default".to_owned(),
        transport: RelayTransport::Push(format!("http://127.0.0.1:{}", cluster.advertise_address.port())),
        keys: secret.clone().into(),
        uid: relay.cluster.clone(),
        entrypoint_image: cluster.entrypoint_image.clone(),
        signadot_outputs: None,
        is_registered: false,
    });
    let task = tokio::spawn(keep_running(relay, cluster.clone(), functions, secret, stopped));
    Ok((clusters, task))
}

/// Restarts a relay that has ended. Its state is in the cluster.
async fn keep_running(
    mut relay: RelayProcess,
    cluster: KubernetesOptions,
    functions: IpAddr,
    secret: WebhookSecret,
    mut stopped: watch::Receiver<bool>,
) {
    // An error means that the stack was dropped, which is also a stop.
    let mut stop = std::pin::pin!(stopped.wait_for(|&stopped| stopped).map(drop));
    loop {
        tokio::select! {
            () = &mut stop => return relay.stop().await,
            reason = relay.wait() => tracing::warn!(reason, "the relay of the cluster has ended; restarting it"),
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
                    Err(error) => tracing::warn!(%error, "cannot restart the relay of the cluster"),
                }
            }
        };
    }
}

/// The timeout of the start of a relay, including its requests to the cluster.
const START_TIMEOUT: Duration = Duration::from_secs(60);

struct RelayProcess {
    child: Child,
    /// The relay stops when this is closed. The system closes it even if this process is killed.
    stdin: ChildStdin,
    log: JoinHandle<String>,
    /// The uid of the namespace `kube-system` of its cluster.
    cluster: String,
}

impl RelayProcess {
    /// Starts the relay and waits until it listens.
    async fn start(cluster: &KubernetesOptions, functions: IpAddr, secret: &WebhookSecret) -> Result<Self, DynError> {
        let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, cluster.advertise_address.port()));
        wait_until_free(everywhere).await.map_err(|error| format!("{everywhere}: {error}"))?;
        let mut command = Command::new(&cluster.relay);
        // The environment may contain settings of another relay.
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
        // Ctrl-C must not stop the relay, because teardowns use it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", cluster.relay.display()))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the relay has no standard streams".into());
        };
        let mut relay = Self { child, stdin, log: tokio::spawn(forward_log(stderr)), cluster: String::new() };
        // A write to a relay that has ended fails. Its log has the cause.
        let _ = relay.stdin.write_all(secret.reveal().as_bytes()).await;
        let _ = relay.stdin.write_all(b"\n").await;
        let first = tokio::time::timeout(START_TIMEOUT, BufReader::new(stdout).lines().next_line()).await;
        let first = first.map_err(|_| {
            let file = cluster.kubeconfig.display();
            format!("the relay has not started in {START_TIMEOUT:?}: check that the credentials of {file} need no input and that the cluster responds")
        })?;
        match first? {
            Some(line) => relay.cluster = line.rsplit(' ').next().unwrap_or_default().to_owned(),
            None => return Err(relay.wait().await.into()),
        }
        Ok(relay)
    }

    /// Waits until the relay ends by itself, and returns the cause.
    async fn wait(&mut self) -> String {
        let status = self.child.wait().await;
        let cause = (&mut self.log).await.unwrap_or_default();
        match (status, cause.trim_end()) {
            (Ok(status), "") => status.to_string(),
            (Err(error), "") => error.to_string(),
            (_, cause) => cause.to_owned(),
        }
    }

    async fn stop(mut self) {
        drop(self.stdin);
        // The relay is a child of this process. An error of the wait has no effect here.
        let _ = self.child.wait().await;
    }
}

async fn wait_until_free(address: SocketAddr) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(_) if begun.elapsed() < PORT_WAIT => tokio::time::sleep(PORT_INTERVAL).await,
            bound => return bound.map(drop),
        }
    }
}

/// Copies the relay's log to standard error, if this process logs. Returns the relay's error text.
async fn forward_log(stderr: ChildStderr) -> String {
    let (mut lines, mut cause) = (BufReader::new(stderr).lines(), String::new());
    while let Ok(Some(line)) = lines.next_line().await {
        match line.strip_prefix("error: ") {
            Some(text) if cause.is_empty() => cause = format!("{text}\n"),
            _ if !cause.is_empty() => cause += &format!("{line}\n"),
            // The relay filters by the same variable.
            _ if tracing::enabled!(target: "ebb_relay", Level::ERROR) => drop(writeln!(io::stderr(), "{line}")),
            _ => {}
        }
    }
    cause
}
