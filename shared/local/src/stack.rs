//! The control plane on one machine: the code of the Lambda functions, with a local table, bucket, queue and relay.

mod backend;
mod backend_record;
mod keys;
mod metrics;
mod platform;
mod queue;
mod secret_file;
mod server;
mod stack_error;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ebb_api::{ApiRole, ApiTokens, OidcIssuers, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_flow::background::BackgroundTasks;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use ebb_flow::{DeploymentSettings as FlowSettings, Env, InstanceCache};
use ebb_protocol::{Millis, TaskId, Timestamp};
use ebb_relay_client::PollEndpoint;
use ebb_store::{ItemTable, SdkTable, Store};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::embedded::{self, ACCESS_KEY, EmbeddedTable, FolderBucket, REGION, SECRET_KEY, StateDurability};
use crate::files::StateFileError;
use crate::pods::{LocalRelay, LocalRelayOptions};
use crate::{DevIssuer, dev_issuer, open_files, plugin_sockets};

use backend::GRACE;
pub use backend::{RemoteRelays, UnitBackend};
pub use keys::StackConnection;
use keys::{StackKeys, StateLock};
use metrics::StackMetrics;
use platform::OutcomeLog;
pub use queue::LocalQueue;
pub use secret_file::SecretFile;
pub use stack_error::StackError;

/// The time between two sweeps. The queue wakes runs and targets that are due sooner.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The time after which the next sweep does not wait for the last one, which waits for a server.
const MAX_SWEEP_WAIT: Duration = Duration::from_secs(3);
const MAX_SWEEPS: usize = 8;
/// The time between two runs of the schedule, which writes its heartbeat, removes expired data and scans for orphans.
const SCHEDULE_INTERVAL: Duration = Duration::from_secs(60);
/// The time between two removals of the folders of ended scripts.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);
/// The time for which folders of acknowledged scripts are kept. It exceeds the time for which a request for them is in
/// flight.
const POD_RETENTION: Duration = Duration::from_secs(3_600);

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[derive(Clone, Debug, Default)]
pub struct StackSettings {
    pub state: PathBuf,
    /// The address of the functions and of callbacks. `None` means the loopback interface.
    pub listen: Option<IpAddr>,
    /// The port of the functions. `None` means the last one if it is free, and any other port if it is not.
    pub port: Option<u16>,
    /// The port of the S3 endpoint for scripts. `None` means the last one if it is free, and any other port if it is
    /// not.
    pub s3_port: Option<u16>,
    /// The URL of notifications. `None` means the stack itself, which stores them.
    pub platform: Option<String>,
    /// The DynamoDB service of the table. `None` means a file in the state folder.
    pub dynamodb: Option<ExternalTable>,
    /// The failures that writes to the state folder survive.
    pub durability: StateDurability,
    pub units: UnitBackend,
    /// The receivers in private networks, see [`Policy::and_receivers`]. Empty means none.
    pub egress_networks: String,
    /// The issuers of identity tokens, see [`OidcIssuers::parse`]. Empty means none.
    pub oidc: String,
    /// The port of a [`DevIssuer`] on the loopback interface, which is trusted too. `None` means no such issuer.
    pub issuer: Option<u16>,
    /// The folder of the sockets of InfraKit's plugins. `None` means [`plugin_sockets::default_folder`].
    pub plugins: Option<PathBuf>,
    /// The sink of spans. Metrics are exposed at `GET /metrics`.
    pub telemetry: Telemetry,
    /// The time for which data of gone instances is kept. `None` means forever.
    pub retention: Option<Duration>,
    /// The most targets of a caller of the API that live at once.
    pub living_per_owner: Option<u32>,
}

/// A table in another DynamoDB, such as Amazon's DynamoDB Local. Only one stack may use it.
#[derive(Clone, Debug)]
pub struct ExternalTable {
    /// Address of the service. Requests are signed with the access key `local`.
    pub endpoint: String,
    /// Name of the table, created if it is missing.
    pub table: String,
}

/// A running control plane. Units continue after it ends. The next start adopts them.
pub struct Stack {
    connection: StackConnection,
    /// The code of the link that signs in to the console once. It is in memory only.
    sign_in_code: String,
    /// The URL of the [`DevIssuer`].
    issuer: Option<String>,
    relay: Option<LocalRelay>,
    env: Arc<Env>,
    /// The table in the state folder.
    table: Option<Arc<EmbeddedTable>>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    background: Arc<BackgroundTasks>,
    /// The stop signal and the tasks of the S3 endpoint and of a cluster's relay. Units use them, so they stop last.
    last: (watch::Sender<bool>, Vec<JoinHandle<()>>),
    lock: StateLock,
}

impl Stack {
    /// Starts all parts and resumes unfinished runs.
    ///
    /// # Errors
    /// Returns [`StackError`] if a part cannot be started. No part keeps running.
    pub async fn start(settings: StackSettings) -> Result<Self, StackError> {
        open_files::raise();
        let state = &settings.state;
        let lock = keys::lock(state).await?;
        let keys = StackKeys::open(state)?;
        let last = match StackConnection::read(state) {
            // It is written again below.
            Err(StateFileError::Damaged { .. }) => None,
            last => last?,
        };
        let port = settings.port.or_else(|| keys::port(&last.as_ref()?.url));
        let listen = settings.listen.unwrap_or(LOOPBACK);
        if settings.issuer.is_some() && !listen.is_loopback() {
            let reason = "people sign in without a password, so the server must listen on a loopback address";
            return Err(StackError::part("the issuer")(reason));
        }
        let issuer =
            if let Some(port) = settings.issuer { Some(bind(LOOPBACK, Some(port), true).await?) } else { None };
        let (listener, url) = bind(listen, port, settings.port.is_some()).await?;

        let (embedded, table) = table(&settings).await.map_err(StackError::part("the table"))?;
        let bucket = FolderBucket::open(&state.join("bucket"), settings.durability)?;
        let s3 = embedded::s3_router(&state.join("s3")).map_err(StackError::part("the S3 endpoint"))?;
        let s3_port = settings.s3_port.or_else(|| keys::port(&last.as_ref()?.s3));
        let (s3_listener, s3_url) = bind(LOOPBACK, s3_port, settings.s3_port.is_some()).await?;

        let store = Arc::new(Store::new(table, Arc::new(bucket)));
        let policy = Policy::with_loopback().and_receivers(&settings.egress_networks);
        let policy = policy.map_err(StackError::part("EBB_EGRESS_NETWORKS"))?;
        // The client may also connect to the address of the functions.
        let own = format!("{listen}/{}", if listen.is_ipv4() { 32 } else { 128 });
        let policy = policy.and_networks(&own).map_err(StackError::part("HTTP"))?;
        let inside = Arc::new(HttpClient::new(policy).map_err(StackError::part("HTTP"))?);
        let mut last = (watch::channel(false).0, Vec::new());
        last.1.push(tokio::spawn(server::serve(s3_listener, s3, last.0.subscribe())));
        let options = LocalRelayOptions {
            callbacks: Some((inside.clone(), callback_url(&url))),
            // The key pair is not secret: the endpoint listens on loopback only.
            extra_env: [
                ("AWS_ENDPOINT_URL_S3", &*s3_url),
                ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
                ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
                ("AWS_REGION", REGION),
                ("AWS_DEFAULT_REGION", REGION),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            plugins: settings.plugins.clone().unwrap_or_else(plugin_sockets::default_folder),
            containers: None,
        };
        let stopped = last.0.subscribe();
        let platform = settings.platform.clone().unwrap_or_else(|| format!("{url}/platform/events"));
        let flow_settings = flow_settings((&keys, state), &url, platform, &settings.units, settings.retention)?;
        let flow_settings = FlowSettings { living_per_owner: settings.living_per_owner, ..flow_settings };
        let registered = (store.clone(), flow_settings.unit_keys.clone());
        let opened =
            backend::open(&settings.units, state, listen, options, inside.clone(), registered, stopped).await?;
        last.1.extend(opened.task);

        let connection = keys.connection(&url, &s3_url);
        let outcomes = Arc::new(OutcomeLog::open(state, flow_settings.platform_keys.clone())?);
        let (sender, messages) = mpsc::unbounded_channel();
        let env = Arc::new(Env {
            store,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            relay: opened.relay,
            egress: inside.clone(),
            platform: inside,
            queue: Arc::new(LocalQueue(sender)),
            settings: flow_settings,
            cache: InstanceCache::default(),
        });
        let oidc = issuer.as_ref().map(|(_, url)| dev_issuer::with_entry(&settings.oidc, url));
        let issuers =
            OidcIssuers::parse(oidc.as_ref().unwrap_or(&settings.oidc)).map_err(StackError::part("EBB_OIDC"))?;
        let sign_in_code = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>());
        let tokens = ApiTokens::new([(connection.token.as_str(), ApiRole::Operator)]).with_issuers(issuers);
        let tokens = Arc::new(tokens.with_sign_in_code(&sign_in_code));
        let poll_endpoint =
            Arc::new(PollEndpoint::new(opened.clusters, env.store.clone(), Arc::new(SystemClock), None));
        let server = ServerState { env: Arc::clone(&env), tokens, poll_endpoint };
        let (metrics, sink) = StackMetrics::new();
        let telemetry = Arc::new(settings.telemetry.with_metrics(sink));
        let background = Arc::new(BackgroundTasks::default());
        let router = ebb_api::all(server.clone());
        let functions =
            ebb_api::instrument_router(Arc::clone(&telemetry), router, &background, |_| InvocationOrigin::default());
        let router = functions.merge(platform::router(outcomes));
        let router = router.merge(metrics::router(server, metrics, listen));

        let (stop, stopped) = watch::channel(false);
        let mut tasks = vec![tokio::spawn(server::serve(listener, router, stopped.clone()))];
        let messages = queue::handle_messages(Arc::clone(&env), Arc::clone(&telemetry), messages, stopped.clone());
        tasks.push(tokio::spawn(messages));
        tasks.push(tokio::spawn(run_schedule(Arc::clone(&env), Arc::clone(&telemetry), stopped.clone())));
        let issuer = issuer.map(|(listener, url)| {
            tasks.push(tokio::spawn(server::serve(listener, DevIssuer::new(&url).router(), stopped.clone())));
            url
        });
        if let Some(relay) = opened.processes.clone() {
            tasks.push(tokio::spawn(prune_pods(relay, stopped.clone())));
        }
        tasks.push(tokio::spawn(sweep_forever(Arc::clone(&env), telemetry, stopped)));
        connection.write(state)?;
        let (relay, table) = (opened.processes, embedded);
        Ok(Self { connection, sign_in_code, issuer, relay, env, table, stop, tasks, background, last, lock })
    }

    pub fn url(&self) -> &str {
        &self.connection.url
    }

    pub fn token(&self) -> &str {
        &self.connection.token
    }

    /// Returns the URL of the console, which signs in the first browser that opens it.
    pub fn sign_in_url(&self) -> String {
        format!("{}/console/sign-in?code={}", self.connection.url, self.sign_in_code)
    }

    /// Returns the URL of the issuer where everyone of this machine signs in as anyone, if there is one.
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    pub fn webhook_secret(&self) -> &str {
        &self.connection.webhook_secret
    }

    pub fn s3_url(&self) -> &str {
        &self.connection.s3
    }

    /// Returns the ports and settings of the functions.
    pub fn env(&self) -> &Arc<Env> {
        &self.env
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.env.store
    }

    /// Returns the last line of a script's log, if the attempt runs on this machine.
    pub fn last_line(&self, run: &str, unit: usize, attempt: u32) -> Option<String> {
        self.relay.as_ref()?.last_line(&TaskId { unit: format!("{run}-{unit}"), attempt })
    }

    /// Stops the functions, waits for them and closes the table. Running scripts continue, and the next start adopts
    /// them. Returns the lock of the state folder.
    pub async fn stop(mut self) -> StateLock {
        self.stop.send_replace(true);
        for task in self.tasks.drain(..) {
            // A task that panicked has logged the cause.
            task.await.ok();
        }
        self.background.join().await;
        self.last.0.send_replace(true);
        for task in self.last.1.drain(..) {
            task.await.ok();
        }
        // Tasks of connections can keep the table until the process ends.
        if let Some(table) = self.table.take() {
            tokio::task::spawn_blocking(move || table.close()).await.ok();
        }
        self.lock
    }
}

type OpenTable = (Option<Arc<EmbeddedTable>>, Arc<dyn ItemTable>);

/// Opens the table, and creates it if it is missing. The first is the table if it is in the state folder.
async fn table(settings: &StackSettings) -> Result<OpenTable, Box<dyn std::error::Error + Send + Sync>> {
    let Some(external) = &settings.dynamodb else {
        let table = Arc::new(EmbeddedTable::open(&settings.state, settings.durability)?);
        return Ok((Some(Arc::clone(&table)), table));
    };
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "local"))
        .endpoint_url(&external.endpoint);
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    ebb_store::create_table(&client, &external.table).await?;
    Ok((None, Arc::new(SdkTable::new(client, &external.table))))
}

/// Binds a port. If it is taken and the user did not choose it, binds another one. Returns the URL of the server, too.
async fn bind(listen: IpAddr, port: Option<u16>, is_required: bool) -> Result<(TcpListener, String), StackError> {
    let port = port.unwrap_or(0);
    let failed = |source| StackError::Io { what: format!("port {port} of {listen}"), source };
    let listener = match TcpListener::bind((listen, port)).await {
        Err(_) if !is_required => TcpListener::bind((listen, 0)).await,
        first => first,
    };
    let listener = listener.map_err(failed)?;
    let url = format!("http://{}", listener.local_addr().map_err(failed)?);
    Ok((listener, url))
}

fn callback_url(url: &str) -> String {
    format!("{url}/v1/callbacks")
}

fn flow_settings(
    (keys, state): (&StackKeys, &Path),
    url: &str,
    platform: String,
    units: &UnitBackend,
    retention: Option<Duration>,
) -> Result<FlowSettings, StackError> {
    let max_in_flight = match units {
        // An upper bound for requests on one machine.
        UnitBackend::Processes | UnitBackend::Containers(_) | UnitBackend::Cluster(_) => Millis(500),
        // A request to a relay is in flight until its response times out.
        UnitBackend::RemoteRelays(_) => Millis(16_000),
    };
    let secrets = SecretFile::of(state);
    if let Err(reason) = secrets.read() {
        tracing::warn!(reason, "no event of a source can be verified");
    }
    let [webhook_keys, platform_keys, unit_keys, token_keys] = keys.signing_keys()?;
    Ok(FlowSettings {
        callback_url: callback_url(url),
        installation: keys.installation(),
        source: url.to_owned(),
        platform_url: Some(platform),
        platform_keys,
        webhook_keys,
        unit_keys,
        token_keys,
        secrets: Arc::new(secrets),
        max_in_flight,
        grace: GRACE,
        response_timeout: Duration::from_secs(20),
        callback_wait: Duration::from_millis(20),
        first_sweep_delay: Millis(60_000),
        max_sweep_interval: Millis(3_600_000),
        retention: retention.map(Millis::from),
        living_per_owner: None,
        max_dispatches: 50,
        dispatch_budget: Duration::from_secs(3),
    })
}

/// Sweeps until the stack stops. The first sweep covers all open runs, whose tasks may have been killed.
async fn sweep_forever(env: Arc<Env>, telemetry: Arc<Telemetry>, mut stop: watch::Receiver<bool>) {
    if let Err(error) = recover(&env).await {
        tracing::warn!(%error, "cannot resume unfinished runs; sweeps resume them when they are due");
    }
    let mut sweeps = JoinSet::new();
    while tokio::time::timeout(SWEEP_INTERVAL, stop.wait_for(|&stopped| stopped)).await.is_err() {
        if sweeps.len() < MAX_SWEEPS {
            let (own, telemetry) = (Arc::clone(&env), Arc::clone(&telemetry));
            sweeps.spawn(async move {
                let sweep = Box::pin(ebb_flow::sweep::sweep(&own, &own.store, std::future::pending()));
                if let Err(error) = telemetry.invoke(FunctionKind::Sweep, InvocationOrigin::default(), sweep).await {
                    tracing::warn!(%error, "the sweep failed");
                }
            });
        }
        tokio::time::timeout(MAX_SWEEP_WAIT, sweeps.join_next()).await.ok();
        while sweeps.try_join_next().is_some() {}
        let outages = ebb_flow::sweep::outages::record_outages(&env);
        if let Err(error) = telemetry.invoke(FunctionKind::Sweep, InvocationOrigin::default(), outages).await {
            tracing::warn!(%error, "cannot record outages of clusters");
        }
    }
    while sweeps.join_next().await.is_some() {}
}

async fn prune_pods(relay: LocalRelay, mut stopped: watch::Receiver<bool>) {
    loop {
        match relay.prune(POD_RETENTION).await {
            Ok(0) => {}
            Ok(pruned) => tracing::debug!(pruned, "removed folders of ended scripts"),
            Err(error) => tracing::warn!(%error, "cannot remove folders of ended scripts"),
        }
        if tokio::time::timeout(PRUNE_INTERVAL, stopped.wait_for(|&stopped| stopped)).await.is_ok() {
            return;
        }
    }
}

/// Runs the schedule until the stack stops. It is separate from sweeps, because a cluster can respond slowly.
async fn run_schedule(env: Arc<Env>, telemetry: Arc<Telemetry>, mut stopped: watch::Receiver<bool>) {
    loop {
        if let Err(error) = ebb_flow::sweep::mark_schedule(&env).await {
            tracing::warn!(%error, "cannot record the run of the schedule");
        }
        if tokio::time::timeout(SCHEDULE_INTERVAL, stopped.wait_for(|&stopped| stopped)).await.is_ok() {
            return;
        }
        if let Err(error) = ebb_flow::instance::retention::remove_expired(&env, env.now()).await {
            tracing::warn!(%error, "cannot remove expired instances; the next run repeats it");
        }
        let scan = Box::pin(ebb_flow::sweep::orphans::scan(&env));
        let scan = telemetry.invoke(FunctionKind::Sweep, InvocationOrigin::default(), scan);
        tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => return,
            done = scan => if let Err(error) = done {
                tracing::warn!(%error, "the scan for orphans failed; the next scan repeats it");
            }
        }
    }
}

/// The maximum number of runs and targets of one recovery.
const MAX_RECOVERED: usize = 100_000;

async fn recover(env: &Env) -> ebb_flow::FlowResult<()> {
    use ebb_flow::ports::QueueMessage;
    let all = env.store.query_due(Timestamp(u64::MAX / 2), MAX_RECOVERED).await?;
    for (_, due) in all {
        let message = match due {
            ebb_store::DueItem::Run(run) => QueueMessage::Recover(run),
            ebb_store::DueItem::Target(kind, name) => QueueMessage::Target(kind, name),
            // A sweep applies it.
            ebb_store::DueItem::Desired(..) | ebb_store::DueItem::Source(_) => continue,
        };
        env.queue.send(message, Duration::ZERO).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_required_port_must_be_free() {
        let (listener, _) = bind(LOOPBACK, None, false).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = bind(LOOPBACK, Some(port), true).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("port {port} of 127.0.0.1: ")), "{error}");
        bind(LOOPBACK, Some(port), false).await.unwrap();
    }
}
