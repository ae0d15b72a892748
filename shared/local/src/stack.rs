//! The functions of Ebb on one machine: the same code as on AWS, over a table, a bucket, a queue, a clock and a relay
//! of this machine.

mod backend;
mod keys;
mod platform;
mod queue;
mod server;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebb_api::{ApiRole, ApiTokens, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_engine::{Millis, Timestamp};
use ebb_flow::background::BackgroundTasks;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use ebb_flow::{DeploymentSettings as FlowSettings, Env, InstanceCache};
use ebb_protocol::relay::TaskId;
use ebb_relay_client::PollEndpoint;
use ebb_store::{DynamoTable, Meter, Store};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::embedded::{EmbeddedTable, FolderBucket, S3Server};
use crate::pods::{LocalRelay, LocalRelayOptions};

pub use backend::{RemoteRelays, UnitBackend};
pub use keys::{KeysError, StackConnection};
pub use platform::OutcomeLog;

const TABLE: &str = "ebb";
/// The folder of the embedded table, in that of all state.
const TABLE_FOLDER: &str = "table";
/// How often the index is asked for what is due. The queue wakes what is due sooner.
const SWEEP: Duration = Duration::from_secs(1);
/// What the schedule does each minute: it is marked that it does, and the table is asked whether orphans are to be looked for.
const SCHEDULE_INTERVAL: Duration = Duration::from_secs(60);
/// How often folders of scripts are removed that are over.
const PRUNE: Duration = Duration::from_secs(600);
/// For how long they stay after their result was taken: longer than a request for them may be under way.
const POD_RETENTION: Duration = Duration::from_secs(3_600);
/// Between `SIGTERM` and `SIGKILL` of a script.
const GRACE: Duration = Duration::from_secs(10);

/// How to start a [`Stack`].
#[derive(Clone, Debug, Default)]
pub struct StackSettings {
    pub state: PathBuf,
    /// The address at which the functions listen, and which callbacks are told; `None`: the loopback interface.
    pub listen: Option<IpAddr>,
    /// Port of the functions; `None`: the one of the last start if it is free, else any.
    pub port: Option<u16>,
    /// Port of the S3 endpoint for scripts, likewise.
    pub s3_port: Option<u16>,
    /// Where notifications go; `None`: to the stack itself, which keeps them.
    pub platform: Option<String>,
    /// Where the table is; `None`: in the folder of all state.
    pub dynamodb: Option<ExternalTable>,
    pub units: UnitBackend,
    pub telemetry: Arc<Telemetry>,
    /// How long the stored data of a life is kept after it is gone; `None`: forever.
    pub retention: Option<Duration>,
}

/// A table in somebody else's DynamoDB, such as Amazon's DynamoDB Local. It belongs to one stack.
#[derive(Clone, Debug)]
pub struct ExternalTable {
    /// Address of the service. Requests are signed with [`crate::embedded::ACCESS_KEY`].
    pub endpoint: String,
    /// Name of the table, which is made if it is not there.
    pub table: String,
}

/// Why a stack cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error("{0} is in use by another `ebb`: stop it, or choose another folder with --state")]
    InUse(PathBuf),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// Keys that cannot be read or made.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The table of a folder that was in use is empty.
    #[error(
        "{} is empty, and {} was in use: put back a copy of the file. To start without the sandboxes that were there, \
         remove the folder; what they have created stays, and has to be removed by hand",
        table.display(), state.display()
    )]
    Emptied { table: PathBuf, state: PathBuf },
    /// An embedded part does not start.
    #[error("{what} does not start: {reason}")]
    Part { what: &'static str, reason: String },
}

impl StackError {
    fn part<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Part { what, reason: error.to_string() }
    }
}

/// Everything, running. Work that is under way goes on when this ends, and is found again by the next start.
pub struct Stack {
    connection: StackConnection,
    s3: S3Server,
    relay: Option<LocalRelay>,
    env: Arc<Env>,
    store: Arc<Store>,
    meter: Arc<Meter>,
    outcomes: Arc<OutcomeLog>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    background: Arc<BackgroundTasks>,
    /// The relay of a cluster ends last: what the others finish may ask it.
    last: (watch::Sender<bool>, Option<JoinHandle<()>>),
    _lock: keys::FolderLock,
}

impl Stack {
    /// Starts everything and recovers what an earlier stack has left unfinished.
    ///
    /// # Errors
    /// [`StackError`]; nothing is left running then.
    pub async fn start(settings: StackSettings) -> Result<Self, StackError> {
        raise_open_files();
        let state = &settings.state;
        let lock = keys::lock(state).await?;
        let kept = keys::StackKeys::open(state)?;
        let last = StackConnection::read(state).ok().flatten();
        let port = settings.port.or_else(|| last.as_ref().and_then(StackConnection::port));
        let listen = settings.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let listener = bind(listen, port, settings.port.is_some()).await?;
        let address = listener.local_addr().map_err(io_error("the address of the server"))?;
        let url = format!("http://{address}");

        if last.is_some() && settings.dynamodb.is_none() {
            check_table(state)?;
        }
        let dynamo = table(&settings).await.map_err(StackError::part("the table"))?;
        let bucket = FolderBucket::open(&state.join("bucket")).map_err(StackError::part("the bucket"))?;
        let last_s3 = last.as_ref().and_then(StackConnection::s3_port);
        let s3 = start_s3(&state.join("s3"), settings.s3_port, last_s3).await?;

        let meter = Arc::new(Meter::new());
        let store = Store::new(dynamo, Arc::new(bucket));
        let store = Arc::new(store.metered(Arc::clone(&meter)));
        let inside = Arc::new(reaching(listen).map_err(StackError::part("HTTP"))?);
        let mut last = (watch::channel(false).0, None);
        let options = LocalRelayOptions {
            call: inside.clone(),
            extra_env: script_environment(&s3.endpoint()),
            callback_url: Some(callback_url(&url)),
            program: None,
            containers: None,
        };
        let stopped = last.0.subscribe();
        let opened = backend::open(&settings.units, state, listen, options, store.clone(), stopped).await?;
        last.1 = opened.task;

        let connection = kept.connection(&url, &s3.endpoint());
        let outcomes = Arc::new(OutcomeLog::open(state, kept.platform_keys()?)?);
        let platform = settings.platform.clone().unwrap_or_else(|| format!("{url}/platform/events"));
        let (queue, messages) = queue::channel();
        let env = Arc::new(Env {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            relay: opened.relay,
            egress: inside.clone(),
            platform: inside,
            queue: Arc::new(queue),
            settings: flow_settings(&kept, &url, platform, &settings.units, settings.retention)?,
            cache: InstanceCache::default(),
        });
        let access = Arc::new(ApiTokens::new([(connection.token.as_str(), ApiRole::Operator)]));
        let post = Arc::new(PollEndpoint::new(opened.clusters, store.clone(), Arc::new(SystemClock)));
        let server = ServerState { env: Arc::clone(&env), store: store.clone(), tokens: access, poll_endpoint: post };
        let telemetry = settings.telemetry;
        let background = Arc::new(BackgroundTasks::default());
        let router = ebb_api::all(server);
        let functions =
            ebb_api::instrument_router(Arc::clone(&telemetry), router, &background, |_| InvocationOrigin::default());
        let router = functions.merge(platform::router(Arc::clone(&outcomes)));

        let (stop, stopped) = watch::channel(false);
        let mut tasks = vec![tokio::spawn(server::serve(listener, router, stopped.clone()))];
        let work = queue::work(Arc::clone(&env), Arc::clone(&telemetry), messages, stopped.clone());
        tasks.push(tokio::spawn(work));
        tasks.push(tokio::spawn(each_minute(Arc::clone(&env), Arc::clone(&store), stopped.clone())));
        if let Some(relay) = opened.processes.clone() {
            tasks.push(tokio::spawn(prune_pods(relay, stopped.clone())));
        }
        let sweeps = sweep_forever(Arc::clone(&env), Arc::clone(&store), telemetry, stopped);
        tasks.push(tokio::spawn(sweeps));
        connection.write(state)?;
        Ok(Self {
            connection,
            s3,
            relay: opened.processes,
            env,
            store,
            meter,
            outcomes,
            stop,
            tasks,
            background,
            last,
            _lock: lock,
        })
    }

    /// Where the functions answer.
    pub fn url(&self) -> &str {
        &self.connection.url
    }

    /// The operator's bearer token.
    pub fn token(&self) -> &str {
        &self.connection.token
    }

    /// Signs lifecycle webhooks.
    pub fn webhook_secret(&self) -> &str {
        &self.connection.webhook_secret
    }

    /// Where scripts find S3.
    pub fn s3_url(&self) -> String {
        self.s3.endpoint()
    }

    /// The notifications that were sent to the stack itself.
    pub fn outcomes(&self) -> &Arc<OutcomeLog> {
        &self.outcomes
    }

    /// Counts the requests to the table.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The surroundings of the functions, for tests and measurements.
    pub fn env(&self) -> &Arc<Env> {
        &self.env
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The last line that a unit's script has printed so far, if the try runs here.
    pub fn last_line(&self, run: &str, unit: usize, attempt: u32) -> Option<String> {
        self.relay.as_ref()?.last_line(&TaskId { unit: format!("{run}-{unit}"), attempt })
    }

    /// Ends the functions and waits for them. Scripts that run go on; the next start finds them again.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for task in self.tasks.drain(..) {
            // A task that panicked has said so.
            task.await.ok();
        }
        self.background.join().await;
        self.last.0.send_replace(true);
        if let Some(relay) = self.last.1.take() {
            relay.await.ok();
        }
    }
}

/// Reaches this machine, also where the functions listen.
fn reaching(listen: IpAddr) -> Result<HttpClient, Box<dyn std::error::Error + Send + Sync>> {
    let whole = if listen.is_ipv4() { 32 } else { 128 };
    Ok(HttpClient::new(Policy::with_loopback().and_networks(&format!("{listen}/{whole}"))?)?)
}

/// Refuses the empty table of a folder whose last start was completed: it would count as a new one.
fn check_table(state: &Path) -> Result<(), StackError> {
    let table = EmbeddedTable::file(&state.join(TABLE_FOLDER));
    let is_empty = table.metadata().is_ok_and(|found| found.len() == 0);
    if is_empty { Err(StackError::Emptied { table, state: state.to_owned() }) } else { Ok(()) }
}

/// The table, made if it was not there.
async fn table(settings: &StackSettings) -> Result<DynamoTable, Box<dyn std::error::Error + Send + Sync>> {
    let (client, name) = match &settings.dynamodb {
        None => (EmbeddedTable::open(&settings.state.join(TABLE_FOLDER))?, TABLE),
        Some(external) => (EmbeddedTable::at(&external.endpoint), external.table.as_str()),
    };
    ebb_store::table::create(&client, name).await?;
    Ok(DynamoTable::new(client, name))
}

fn io_error(what: &str) -> impl FnOnce(io::Error) -> StackError {
    move |source| StackError::Io { what: what.to_owned(), source }
}

/// Binds a port. One that was not asked for by the user gives way when it is taken.
async fn bind(listen: IpAddr, port: Option<u16>, asked: bool) -> Result<TcpListener, StackError> {
    let what = format!("port {} of {listen}", port.unwrap_or(0));
    let first = TcpListener::bind(SocketAddr::from((listen, port.unwrap_or(0)))).await;
    match first {
        Err(_) if !asked => TcpListener::bind(SocketAddr::from((listen, 0))).await,
        other => other,
    }
    .map_err(io_error(&what))
}

async fn start_s3(folder: &Path, asked: Option<u16>, last: Option<u16>) -> Result<S3Server, StackError> {
    if let (None, Some(port)) = (asked, last)
        && let Ok(server) = S3Server::start(folder, port).await
    {
        return Ok(server);
    }
    S3Server::start(folder, asked.unwrap_or(0)).await.map_err(StackError::part("the S3 endpoint"))
}

/// What scripts find of S3. The key pair is no secret: the endpoint is on the loopback interface and asks for none.
fn script_environment(s3: &str) -> Vec<(String, String)> {
    let pairs = [
        ("AWS_ENDPOINT_URL_S3", s3),
        ("AWS_ACCESS_KEY_ID", crate::embedded::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", crate::embedded::SECRET_KEY),
        ("AWS_REGION", crate::embedded::REGION),
        ("AWS_DEFAULT_REGION", crate::embedded::REGION),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn callback_url(url: &str) -> String {
    format!("{url}/v1/callbacks")
}

fn flow_settings(
    kept: &keys::StackKeys,
    url: &str,
    platform: String,
    units: &UnitBackend,
    retention: Option<Duration>,
) -> Result<FlowSettings, StackError> {
    let retention = retention.map(|kept| Millis(u64::try_from(kept.as_millis()).unwrap_or(u64::MAX)));
    let landing = match units {
        // On one machine nothing is under way for longer.
        UnitBackend::Processes | UnitBackend::Containers(_) | UnitBackend::Cluster(_) => Millis(500),
        // What a relay is asked for is under way for as long as its answer is waited for.
        UnitBackend::RemoteRelays(_) => Millis(16_000),
    };
    Ok(FlowSettings {
        callback_url: callback_url(url),
        installation: kept.installation(),
        source: url.to_owned(),
        platform_url: Some(platform),
        platform_keys: kept.platform_keys()?,
        webhook_keys: kept.webhook_keys()?,
        unit_keys: kept.unit_keys()?,
        token_keys: kept.token_keys()?,
        max_in_flight: landing,
        grace: GRACE,
        response_timeout: Duration::from_secs(20),
        first_sweep_delay: Millis(60_000),
        max_sweep_interval: Millis(3_600_000),
        retention,
        max_dispatches: 50,
        dispatch_budget: Duration::from_secs(3),
    })
}

/// Looks at what is due, at first at everything that is open: whoever was to act on it may have died.
async fn sweep_forever(
    env: Arc<Env>,
    store: Arc<Store>,
    telemetry: Arc<Telemetry>,
    mut stopped: watch::Receiver<bool>,
) {
    if let Err(error) = recover(&env, &store).await {
        tracing::warn!(%error, "what was left unfinished is looked at when it is due");
    }
    loop {
        tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => return,
            () = tokio::time::sleep(SWEEP) => {}
        }
        let sweep = Box::pin(ebb_flow::sweep::sweep(&env, store.as_ref()));
        if let Err(error) = telemetry.invoke(FunctionKind::Sweep, InvocationOrigin::default(), sweep).await {
            tracing::warn!(%error, "the index could not be asked");
        }
        if let Err(error) = ebb_flow::sweep::outages::record_outages(&env, store.as_ref()).await {
            tracing::warn!(%error, "it is not written down which clusters answer");
        }
    }
}

/// Removes the folders of scripts that are over, now and then.
async fn prune_pods(relay: LocalRelay, mut stopped: watch::Receiver<bool>) {
    loop {
        match relay.prune(POD_RETENTION).await {
            Ok(0) => {}
            Ok(pruned) => tracing::debug!(pruned, "folders of scripts that are over were removed"),
            Err(error) => tracing::warn!(%error, "folders of scripts that are over stay"),
        }
        tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => return,
            () = tokio::time::sleep(PRUNE) => {}
        }
    }
}

/// Looks for orphans when they are due to be looked for, beside what is urgent: a cluster may take its time to answer.
async fn each_minute(env: Arc<Env>, store: Arc<Store>, mut stopped: watch::Receiver<bool>) {
    loop {
        if let Err(error) = ebb_flow::sweep::mark_schedule(&env).await {
            tracing::warn!(%error, "that the schedule works is not marked");
        }
        tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => return,
            () = tokio::time::sleep(SCHEDULE_INTERVAL) => {}
        }
        if let Err(error) = ebb_flow::sweep::retention::remove_expired(&env, store.as_ref(), env.now()).await {
            tracing::warn!(%error, "lives whose retention is over are removed later");
        }
        let round = ebb_flow::sweep::orphans::scan(&env, store.as_ref());
        tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => return,
            done = round => if let Err(error) = done {
                tracing::warn!(%error, "orphans are looked for later");
            }
        }
    }
}

/// Things that one recovery looks at.
const MAX_RECOVERED: usize = 100_000;

async fn recover(env: &Arc<Env>, store: &Arc<Store>) -> Result<(), ebb_flow::FlowError> {
    use ebb_flow::ports::QueueMessage;
    let all = ebb_store::QueryDue::query_due(store.as_ref(), Timestamp(u64::MAX / 2), MAX_RECOVERED).await?;
    for (_, due) in all {
        let message = match due {
            ebb_store::DueItem::Run(run) => QueueMessage::Recover(run),
            ebb_store::DueItem::Target(kind, name) => QueueMessage::Target(kind, name),
        };
        env.queue.send(message, Duration::ZERO).await;
    }
    Ok(())
}

/// Raises the limit of open files of this process to what the user may have. Shells often set 1,024, and each request and
/// each script of a large run has several.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, "the limit of open files stays");
    }
}
