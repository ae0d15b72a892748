//! A supervisor's script in a container instead of a process of its own.
//!
//! Flow: say `started` on disk; make the container with the entrypoint in it, pulling its image if need be; carry what it
//! prints; wait until it has ended, its time is over or it is cancelled. The start may take as long as the unit, and a
//! cancellation ends it too. The entrypoint reports how the script has ended to this process, over the loopback interface,
//! which containers share. The container goes when the result is on disk.

use std::fs;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::entrypoint::{self, EntrypointSpec, RelayAddress, ReportState, ScriptExit, ScriptReport};
use ebb_protocol::limits::LOG_TAIL;
use ebb_protocol::relay::{EnsureTask, ScriptInput, ScriptTask, TaskId};
use ebb_protocol::value::{SecretRef, UnitValue};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::container_engine::{self, ContainerEngine, ContainerState, EngineError, FOLDER};
use super::logs::{self, LogWriter};
use super::script;
use super::supervisor::SupervisorOutcome;
use super::task_folder::{CancelRequest, SupervisorConfig, TaskFolder};
use super::{PodsError, folder, secrets};

/// Between `SIGTERM` and `SIGKILL` of a script, unless who cancels it is less patient.
const GRACE: Duration = Duration::from_secs(10);
/// After the deadline, which the entrypoint keeps, until we end it.
const DEADLINE_SLACK: Duration = Duration::from_secs(30);
/// Between two looks at the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Between two looks at the container whose command runs, and whose command has ended.
const INSPECT: Duration = Duration::from_secs(10);
const INSPECT_ENDED: Duration = Duration::from_millis(100);
/// How long the last of the log may take on its way, and a report of an entrypoint that has exited.
const DRAIN: Duration = Duration::from_secs(2);
/// How long the removal of a container may take whose start was given up.
const REMOVAL: Duration = Duration::from_secs(5);
/// How long an engine that does not answer is asked again before the work is lost.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no container that runs.
struct ContainerError(ReasonCode, String);

impl ContainerError {
    fn lost(what: &str) -> impl Fn(EngineError) -> Self {
        move |error| Self(ReasonCode::Lost, format!("{what}: {error}"))
    }
}

/// The error of a start.
enum StartError {
    /// The task fails with it.
    Container(ContainerError),
    Pods(PodsError),
}

impl From<ContainerError> for StartError {
    fn from(error: ContainerError) -> Self {
        Self::Container(error)
    }
}

impl From<PodsError> for StartError {
    fn from(error: PodsError) -> Self {
        Self::Pods(error)
    }
}

/// The command that a container runs by, what carries what it prints, and the entrypoint's reports.
struct RunningContainer {
    command: Child,
    carried: JoinHandle<()>,
    reports: ReportReceiver,
}

/// Removes the container of a work whose result is on disk. What stays is swept when the state is opened again.
pub(super) fn remove(work: &TaskFolder, containers: &ContainerEngine) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = runtime
        && let Err(error) = runtime.block_on(containers.remove(&container_engine::name(work)))
    {
        let _ = writeln!(io::stderr(), "{}: {error}", container_engine::name(work));
    }
}

/// Runs a script to its end.
pub(super) fn run(
    work: &TaskFolder,
    request: &EnsureTask<ScriptTask>,
    around: &SupervisorConfig,
    containers: &ContainerEngine,
) -> Result<SupervisorOutcome, PodsError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(PodsError::Spawn)?;
    runtime.block_on(async {
        let container = ContainerTask { work, request, around, name: container_engine::name(work) };
        let begun = tokio::select! {
            begun = container.start(containers) => begun,
            () = container.wait_for_cancellation() => {
                container.abort_start(containers).await;
                return Ok(SupervisorOutcome::Tombstone);
            }
            () = tokio::time::sleep(Duration::from_millis(request.timeout_ms)) => {
                container.abort_start(containers).await;
                let message = format!(
                    "the container did not start within the {} ms of the unit, with the image {:?}",
                    request.timeout_ms, request.body.image
                );
                Err(ContainerError(ReasonCode::Timeout, message).into())
            }
        };
        match begun {
            Ok(started) => Ok(container.supervise(containers, started).await),
            Err(StartError::Container(ContainerError(code, message))) => {
                Ok(SupervisorOutcome::Result(Box::new(Callback::failed(code, &message))))
            }
            Err(StartError::Pods(error)) => Err(error),
        }
    })
}

struct ContainerTask<'a> {
    work: &'a TaskFolder,
    request: &'a EnsureTask<ScriptTask>,
    around: &'a SupervisorConfig,
    name: String,
}

type ReportReceiver = mpsc::UnboundedReceiver<ScriptExit>;

impl ContainerTask<'_> {
    /// Returns the request to cancel the work, once there is one.
    fn cancellation(&self) -> Option<CancelRequest> {
        folder::read_json(&self.work.cancel()).unwrap_or(None)
    }

    /// Waits until the work is cancelled.
    async fn wait_for_cancellation(&self) {
        while self.cancellation().is_none() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Removes what was made of the container before its start was given up. An engine that does not answer is not waited
    /// for: containers that never start do nothing, and are swept later.
    async fn abort_start(&self, containers: &ContainerEngine) {
        let removed = tokio::time::timeout(REMOVAL, containers.remove(&self.name)).await;
        if let Ok(Err(error)) = removed {
            let _ = writeln!(io::stderr(), "{}: {error}", self.name);
        }
    }

    /// Starts it.
    async fn start(&self, containers: &ContainerEngine) -> Result<RunningContainer, StartError> {
        let broken = |error| PodsError::io(&self.work.folder, error);
        let entrypoint = fs::read(&containers.entrypoint).map_err(|error| {
            let text = format!("the entrypoint, {}: {error}", containers.entrypoint.display());
            ContainerError(ReasonCode::NotStartable, text)
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
        let spec = self.spec(relay).map_err(|why| ContainerError(ReasonCode::NotStartable, why))?;
        let reports = serve(listener, token);
        folder::write_whole(&self.work.started(), b"")?;
        let log = LogWriter::create(&self.work.folder).map_err(broken)?;
        self.create(containers, &entrypoint, &spec).await?;
        let (output, input) = io::pipe().map_err(broken)?;
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(broken)?;
        let command = containers.start(&self.name, input).map_err(PodsError::Spawn)?;
        Ok(RunningContainer { command, carried: tokio::spawn(forward_output(output, log)), reports })
    }

    /// Makes it, with its image pulled if it is missing.
    async fn create(&self, containers: &ContainerEngine, entrypoint: &[u8], spec: &[u8]) -> Result<(), ContainerError> {
        let image = &self.request.body.image;
        let Err(first) = containers.create(self.work, image, entrypoint, spec).await else { return Ok(()) };
        containers.ping().await.map_err(ContainerError::lost("no containers can be had"))?;
        let unmade = ContainerError::lost("the container cannot be made");
        if containers.has(image).await {
            return Err(unmade(first));
        }
        containers.pull(image).await.map_err(|error| {
            ContainerError(ReasonCode::ImagePull, format!("the image {image:?} cannot be had: {error}"))
        })?;
        containers.create(self.work, image, entrypoint, spec).await.map_err(unmade)
    }

    /// What the entrypoint reads.
    fn spec(&self, relay: RelayAddress) -> Result<Vec<u8>, String> {
        let script = &self.request.body;
        let mut inputs = Vec::with_capacity(script.inputs.len());
        for input in &script.inputs {
            let value =
                script::value(input, &self.around.state).map_err(|why| format!("input {:?}: {why}", input.name))?;
            inputs.push(ScriptInput { value: value.map(UnitValue::from_bytes), ..input.clone() });
        }
        let env = self.around.extra_env.iter().chain(&script.env).cloned();
        let spec = EntrypointSpec {
            v: entrypoint::VERSION,
            text: script.text.clone(),
            env: env.collect(),
            inputs,
            outputs: script.outputs.clone(),
            timeout_ms: self.request.timeout_ms,
            grace_ms: u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX),
            log_tail: LOG_TAIL,
            folder: format!("{FOLDER}/script"),
            termination_log: format!("{FOLDER}/termination"),
            relay: Some(relay),
        };
        serde_json::to_vec(&spec).map_err(|error| error.to_string())
    }

    /// Stays with it until it has ended.
    async fn supervise(&self, containers: &ContainerEngine, started: RunningContainer) -> SupervisorOutcome {
        let RunningContainer { mut command, carried, mut reports } = started;
        let begun = Instant::now();
        let deadline = begun.checked_add(Duration::from_millis(self.request.timeout_ms) + GRACE + DEADLINE_SLACK);
        let mut reported = None;
        let mut killed_at: Option<Option<Instant>> = None;
        let (mut is_told, mut is_attached) = (false, true);
        let (mut look_at, mut answered) = (begun + INSPECT, begun);
        let sight = loop {
            tokio::select! {
                Some(ended) = reports.recv(), if reported.is_none() => reported = Some(ended),
                // How it went is known by the container.
                _ = command.wait(), if is_attached => (is_attached, look_at) = (false, Instant::now()),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let now = Instant::now();
            if killed_at.is_none()
                && let Some(asked) = self.cancellation()
            {
                killed_at = Some(now.checked_add(Duration::from_millis(asked.grace_ms)));
            }
            if killed_at.is_some() && !is_told {
                // It may be about to start, or have ended already.
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
                        let message = format!("the container cannot be looked at any more: {error}");
                        return SupervisorOutcome::Result(Box::new(Callback::failed(ReasonCode::Lost, &message)));
                    }
                }
            }
        };
        // The rest of the log is on its way, too.
        let _ = tokio::time::timeout(DRAIN, carried).await;
        // What it has said last is on its way.
        if reported.is_none() && sight != ContainerState::Missing {
            reported = tokio::time::timeout(DRAIN, reports.recv()).await.unwrap_or(None);
        }
        let is_cancelled = killed_at.is_some();
        let is_success = reported.as_ref().is_some_and(|ended| ended.result.status == CallbackStatus::Succeeded);
        // What came through before the signal took effect is known, which is better.
        if is_cancelled && !is_success {
            return SupervisorOutcome::Tombstone;
        }
        let mut result = match reported {
            Some(ended) => self.store_outputs(ended),
            None => self.unreported_result(sight, deadline.is_some_and(|deadline| Instant::now() >= deadline)),
        };
        result.duration_ms.get_or_insert_with(|| u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        result.log.get_or_insert_with(|| logs::tail_text(&self.work.folder, LOG_TAIL));
        SupervisorOutcome::Result(Box::new(result))
    }

    /// The result of a report; sensitive outputs stay on this machine.
    fn store_outputs(&self, ended: ScriptExit) -> Callback {
        let mut result = ended.result;
        result.secrets.clear();
        for (output, text) in ended.sensitive {
            match store_output(self.around, &self.request.task, &output, &text) {
                Ok(kept) => drop(result.secrets.insert(output, kept)),
                Err(why) => {
                    let message = format!("output {output:?} cannot be kept: {why}");
                    return Callback { log: result.log, ..Callback::failed(ReasonCode::Lost, &message) };
                }
            }
        }
        result
    }

    /// The known end of a container whose entrypoint has reported nothing.
    fn unreported_result(&self, sight: ContainerState, is_late: bool) -> Callback {
        let lost = |message: &str| Callback::failed(ReasonCode::Lost, message);
        match sight {
            ContainerState::Created => {
                let why = logs::tail_text(&self.work.folder, LOG_TAIL);
                lost(&format!("the container does not start: {}", why.trim()))
            }
            ContainerState::Exited { out_of_memory: true, .. } => {
                Callback::failed(ReasonCode::OutOfMemory, "it needed more memory than it may have")
            }
            ContainerState::Exited { exit_code, .. } => {
                lost(&format!("it has ended with {exit_code} and without a result"))
            }
            _ if is_late => Callback::failed(ReasonCode::Timeout, "it took longer than it may, and did not end"),
            _ => lost("its container is not there any more"),
        }
    }
}

fn store_output(around: &SupervisorConfig, work: &TaskId, output: &str, text: &str) -> Result<SecretRef, String> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    let (name, key) = secrets::of_output(work, output);
    secrets::put(&around.state, &name, &key, &bytes).map_err(|error| error.to_string())?;
    Ok(SecretRef { cluster: None, namespace: None, name, key })
}

/// Carries what the container prints to the log.
async fn forward_output(mut output: pipe::Receiver, mut log: LogWriter) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        // A full disk must not stop the script.
        let _ = log.push(&buffer[..count]);
    }
}

/// Takes the entrypoint's reports.
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
            // Who has ended listens no more.
            let _ = known.1.send(*ended);
            StatusCode::NO_CONTENT
        }
        Ok(ScriptReport { v: entrypoint::VERSION, .. }) => StatusCode::NO_CONTENT,
        _ => StatusCode::BAD_REQUEST,
    }
}
