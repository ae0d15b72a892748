//! A script as a container of this machine.
//!
//! 1. Write `started`.
//! 2. Create the container with the entrypoint in it, and pull its image if it is missing. A start that takes longer
//!    than the timeout of the unit fails. A cancellation ends it.
//! 3. Write the output of the container to the log until the container has ended, its time is over or it is cancelled.
//!
//! The entrypoint reports the end of the script to this process over the loopback interface, which containers share. The
//! container is removed when the result is on disk.

use std::fs;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use ebb_protocol::entrypoint::{self, RelayAddress, ReportState, ScriptExit, ScriptReport};
use ebb_protocol::limits::LOG_TAIL;
use ebb_protocol::relay::{EnsureTask, ScriptTask};
use ebb_protocol::{Millis, ReasonCode};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::container_engine::{self, ContainerEngine, ContainerState, FOLDER};
use super::{LogWriter, PodsError, SupervisorConfig, SupervisorOutcome, TaskFailure, TaskFolder, logs, script};
use crate::files;

/// The time between `SIGTERM` and `SIGKILL` of a script, unless a cancellation sets a shorter one.
const GRACE: Duration = Duration::from_secs(10);
/// The time between the deadline, which the entrypoint enforces, and the removal of the container.
const DEADLINE_SLACK: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// The interval of inspections while the command of the container runs, and after it has ended.
const INSPECT: Duration = Duration::from_secs(10);
const INSPECT_ENDED: Duration = Duration::from_millis(100);
/// The timeout for the rest of the log, and for the report of an entrypoint that has exited.
const DRAIN: Duration = Duration::from_secs(2);
/// The timeout for the removal of a container whose start was aborted.
const REMOVAL: Duration = Duration::from_secs(5);
/// The time after which a task counts as lost if its engine does not respond.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(60);

fn lost(what: &str) -> impl Fn(String) -> TaskFailure {
    move |error| TaskFailure(ReasonCode::Lost, format!("{what}: {error}"))
}

/// The command that ends with a container, the task that writes its log, and the reports of its entrypoint.
type RunningContainer = (Child, JoinHandle<()>, ReportReceiver);

/// Removes the container of a task whose result is on disk. If that fails, the container is removed when the state is
/// opened again.
pub(super) fn remove(task: &TaskFolder, containers: &ContainerEngine) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = runtime
        && let Err(error) = runtime.block_on(containers.remove(&container_engine::name(task)))
    {
        let _ = writeln!(io::stderr(), "{}: {error}", container_engine::name(task));
    }
}

pub(super) fn run(
    task: &TaskFolder,
    request: &EnsureTask<ScriptTask>,
    config: &SupervisorConfig,
    containers: &ContainerEngine,
) -> Result<SupervisorOutcome, TaskFailure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(PodsError::Spawn)?;
    runtime.block_on(async {
        let container = ContainerTask { task, request, config, name: container_engine::name(task) };
        let cancelled = async {
            while task.cancellation().is_none() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let aborted = tokio::select! {
            started = container.start(containers) => return container.supervise(containers, started?).await,
            () = cancelled => Ok(None),
            () = tokio::time::sleep(Duration::from_millis(request.timeout_ms)) => {
                let message = format!(
                    "the container did not start within the {} of the unit, with the image {:?}",
                    Millis(request.timeout_ms),
                    request.body.image
                );
                Err(TaskFailure(ReasonCode::Timeout, message))
            }
        };
        // An engine that does not respond is not awaited: a container that never starts has no effect, and is removed
        // later.
        let removed = tokio::time::timeout(REMOVAL, containers.remove(&container.name)).await;
        if let Ok(Err(error)) = removed {
            let _ = writeln!(io::stderr(), "{}: {error}", container.name);
        }
        aborted
    })
}

struct ContainerTask<'a> {
    task: &'a TaskFolder,
    request: &'a EnsureTask<ScriptTask>,
    config: &'a SupervisorConfig,
    name: String,
}

type ReportReceiver = mpsc::UnboundedReceiver<ScriptExit>;

impl ContainerTask<'_> {
    async fn start(&self, containers: &ContainerEngine) -> Result<RunningContainer, TaskFailure> {
        let broken = |error| PodsError::io(&self.task.folder, error);
        let not_startable = |why| TaskFailure(ReasonCode::NotStartable, why);
        let entrypoint = fs::read(&containers.entrypoint).map_err(|error| {
            not_startable(format!("cannot read the entrypoint {}: {error}", containers.entrypoint.display()))
        })?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(broken)?;
        let address = listener.local_addr().map_err(broken)?;
        let token = format!("{:032x}", rand::random::<u128>());
        let relay = RelayAddress {
            url: format!("http://{address}/"),
            token: token.clone(),
            heartbeat_ms: 60_000,
            report_retry_ms: 20_000,
        };
        let spec = script::spec(self.request, self.config, Millis::from(GRACE).0, FOLDER, Some(relay));
        let spec = spec.map_err(not_startable)?;
        let spec = serde_json::to_vec(&spec).map_err(|error| not_startable(error.to_string()))?;
        let reports = serve(listener, token);
        files::write_whole(&self.task.started(), b"")?;
        let mut log = LogWriter::create(&self.task.folder).map_err(broken)?;
        self.create(containers, &entrypoint, &spec).await?;
        let (output, input) = io::pipe().map_err(broken)?;
        let mut output = pipe::Receiver::from_owned_fd(output.into()).map_err(broken)?;
        let command = containers.start(&self.name, input).map_err(PodsError::Spawn)?;
        let forwarded = tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = output.read(&mut buffer).await {
                // A full disk must not stop the script.
                let _ = log.push(&buffer[..count]);
            }
        });
        Ok((command, forwarded, reports))
    }

    async fn create(&self, containers: &ContainerEngine, entrypoint: &[u8], spec: &[u8]) -> Result<(), TaskFailure> {
        let image = &self.request.body.image;
        let Err(first) = containers.create(self.task, image, entrypoint, spec).await else { return Ok(()) };
        containers.ping().await.map_err(lost("the container engine does not respond"))?;
        let unmade = lost("cannot create the container");
        if containers.has(image).await {
            return Err(unmade(first));
        }
        containers
            .pull(image)
            .await
            .map_err(|error| TaskFailure(ReasonCode::ImagePull, format!("cannot pull the image {image:?}: {error}")))?;
        containers.create(self.task, image, entrypoint, spec).await.map_err(unmade)
    }

    async fn supervise(
        &self,
        containers: &ContainerEngine,
        (mut command, log, mut reports): RunningContainer,
    ) -> Result<SupervisorOutcome, TaskFailure> {
        let begun = Instant::now();
        let deadline = begun.checked_add(Duration::from_millis(self.request.timeout_ms) + GRACE + DEADLINE_SLACK);
        let mut reported = None;
        let mut killed_at: Option<Option<Instant>> = None;
        let (mut is_told, mut is_attached) = (false, true);
        let (mut look_at, mut answered) = (begun + INSPECT, begun);
        let sight = loop {
            tokio::select! {
                Some(ended) = reports.recv(), if reported.is_none() => reported = Some(ended),
                // The end of the command is not proof that the container has ended, so the container is inspected.
                _ = command.wait(), if is_attached => (is_attached, look_at) = (false, Instant::now()),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let now = Instant::now();
            if killed_at.is_none()
                && let Some(grace_ms) = self.task.cancellation()
            {
                killed_at = Some(now.checked_add(Duration::from_millis(grace_ms)));
            }
            if killed_at.is_some() && !is_told {
                // This fails if the container has not started yet, or has ended.
                is_told = containers.terminate(&self.name).await.is_ok();
            }
            let is_late = killed_at.flatten().or(deadline).is_some_and(|until| now >= until);
            if is_late && containers.remove(&self.name).await.is_ok() {
                break ContainerState::Missing;
            }
            if now >= look_at {
                look_at = now + if is_attached { INSPECT } else { INSPECT_ENDED };
                match containers.inspect(&self.name).await {
                    Ok(ContainerState::Running) => answered = now,
                    Ok(ContainerState::Created) if is_attached => answered = now,
                    Ok(over) => break over,
                    Err(_) if now.duration_since(answered) < ENGINE_TIMEOUT => {}
                    Err(error) => {
                        let message = format!("cannot inspect the container: {error}");
                        return Err(TaskFailure(ReasonCode::Lost, message));
                    }
                }
            }
        };
        // The rest of the log and the last report may still be in transit.
        let _ = tokio::time::timeout(DRAIN, log).await;
        if reported.is_none() && sight != ContainerState::Missing {
            reported = tokio::time::timeout(DRAIN, reports.recv()).await.unwrap_or(None);
        }
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let ended = reported.ok_or_else(|| self.unreported(sight, is_late));
        script::outcome(self.task, &self.request.task, self.config, ended, killed_at.is_some(), begun)
    }

    /// Returns the failure of a container whose entrypoint has not reported the end of the script.
    fn unreported(&self, sight: ContainerState, is_late: bool) -> TaskFailure {
        let (code, message) = match sight {
            ContainerState::Created => {
                let why = logs::tail_text(&self.task.folder, LOG_TAIL);
                (ReasonCode::Lost, format!("the container does not start: {}", why.trim()))
            }
            ContainerState::Exited { out_of_memory: true, .. } => {
                (ReasonCode::OutOfMemory, "the container exceeded its memory limit".to_owned())
            }
            ContainerState::Exited { exit_code, .. } => {
                (ReasonCode::Lost, format!("the container exited with code {exit_code} and reported no result"))
            }
            _ if is_late => (ReasonCode::Timeout, "the container exceeded its deadline and did not stop".to_owned()),
            _ => (ReasonCode::Lost, "the container does not exist any more".to_owned()),
        };
        TaskFailure(code, message)
    }
}

fn serve(listener: TcpListener, token: String) -> ReportReceiver {
    let (send, reports) = mpsc::unbounded_channel();
    let known = Arc::new((format!("Bearer {token}"), send));
    let routes = Router::new()
        .route("/", post(receive_report))
        .layer(DefaultBodyLimit::max(entrypoint::REPORT_BODY))
        .with_state(known);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    reports
}

async fn receive_report(
    State(known): State<Arc<(String, mpsc::UnboundedSender<ScriptExit>)>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    if headers.get(header::AUTHORIZATION).is_none_or(|given| given.as_bytes() != known.0.as_bytes()) {
        return StatusCode::UNAUTHORIZED;
    }
    match serde_json::from_slice(&body) {
        Ok(ScriptReport { v: entrypoint::VERSION, state: ReportState::Ended(ended), .. }) => {
            // The receiver is gone once the container has ended.
            let _ = known.1.send(*ended);
            StatusCode::NO_CONTENT
        }
        Ok(ScriptReport { v: entrypoint::VERSION, .. }) => StatusCode::NO_CONTENT,
        _ => StatusCode::BAD_REQUEST,
    }
}
