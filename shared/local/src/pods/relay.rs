//! The relay of one machine. It executes requests, and watches tasks until their results are acknowledged.
//!
//! Guarantees: a task id starts a script at most once, even with concurrent requests and after crashes. When an attempt
//! starts, no process of a lower attempt of the same unit runs. Assumption: the folders are on a local file system that
//! supports locks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ebb_egress::{CallError, HttpCall, HttpRequest};
use ebb_flow::ports::{RelayClient, RelayError, UnitCluster};
use ebb_protocol::limits::LOG_TAIL;
use ebb_protocol::relay::{EnsureTask, ScriptTask, ServiceRequest, ServiceResponse};
use ebb_protocol::{Callback, Millis, ReasonCode, RunningTask, TaskId, TaskState};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;

use super::task_folder::{CancelRequest, FolderState, TaskFolder};
use super::{ContainerEngine, PodsError, SupervisorConfig, container_engine, leftovers, logs, secrets, start};
use crate::files::StateFileError;
use crate::{files, open_files, plugin_sockets};

/// The time of lower attempts between `SIGTERM` and `SIGKILL`.
const LOWER_GRACE: Duration = Duration::from_secs(5);
/// The longest time after `SIGKILL` for which a caller waits until all processes have ended.
const TERMINATION_WAIT: Duration = Duration::from_secs(15);
/// The first and the longest interval at which a task is polled.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// The longest time for which the start of a script delays the start of others. An image may be pulled first.
const START_WAIT: Duration = Duration::from_millis(250);
const START_POLL: Duration = Duration::from_millis(2);
/// The timeout of a callback. The control plane dispatches the units that became ready before it responds.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(60);
/// The first and the longest pause between two attempts of a callback.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

#[derive(Clone)]
pub struct LocalRelayOptions {
    /// The sender and the URL of callbacks. `None` means that the owner polls and acknowledges. The guard of the sender
    /// must allow the address of the control plane, which is loopback on one machine. The URL replaces that of
    /// requests, because the control plane may have restarted at another address.
    pub callbacks: Option<(Arc<dyn HttpCall>, String)>,
    /// Environment variables for every script, such as `AWS_ENDPOINT_URL_S3`. The variables of a request replace them.
    pub extra_env: Vec<(String, String)>,
    /// The folder of the sockets of InfraKit's plugins.
    pub plugins: PathBuf,
    /// Runs scripts as containers of their image. `None` means that scripts are processes of this machine.
    pub containers: Option<ContainerEngine>,
}

/// A relay that runs tasks as processes or containers of this machine. Clones share one relay. After the last clone is
/// dropped, tasks continue unwatched until the state is opened again.
#[derive(Clone)]
pub struct LocalRelay {
    open: Arc<WatchOwner>,
}

/// Ends the watches when the last clone is dropped.
struct WatchOwner(Arc<RelayShared>);

struct RelayShared {
    pods: PathBuf,
    options: LocalRelayOptions,
    supervisor_config: SupervisorConfig,
    watches: Mutex<HashMap<TaskId, AbortHandle>>,
    /// Permits to start a script. Hundreds of scripts that start at the same time would leave no time to the control
    /// plane, which then accepts no request.
    starts: Semaphore,
    /// Permits of scripts from their start until their result was sent.
    running: Semaphore,
}

impl Drop for WatchOwner {
    fn drop(&mut self) {
        for watch in self.0.watches().values() {
            watch.abort();
        }
    }
}

impl LocalRelay {
    /// Opens the relay whose state is in the folder `state`, and creates the folder if it is missing. The relay watches
    /// the running tasks. It sends each callback that is not acknowledged until the response is 2xx or 4xx. Needs a
    /// tokio runtime.
    ///
    /// Several relays may have the same state open at the same time. A callback may then be sent more than once.
    ///
    /// # Errors
    /// Returns [`PodsError::File`] if the state cannot be read or written.
    pub fn open(state: &Path, options: LocalRelayOptions) -> Result<Self, PodsError> {
        let pods = state.join("pods");
        files::private_folder(&pods)?;
        files::private_folder(&state.join("secrets"))?;
        let state = state.canonicalize().map_err(|error| PodsError::io(state, error))?;
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
        let extra_env = options.extra_env.clone();
        let containers = options.containers.clone();
        let config = SupervisorConfig { state: state.clone(), path, extra_env, containers };
        let watches = Mutex::new(HashMap::new());
        let starts = Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from));
        let running = Semaphore::new(open_files::places());
        let pods = state.join("pods");
        let inner = Arc::new(RelayShared { pods, options, supervisor_config: config, watches, starts, running });
        for unit in files::names(&inner.pods)? {
            for name in inner.tasks(&unit)? {
                let task = inner.task_folder(&name);
                if !task.acknowledged().exists() && !task.tombstone().exists() {
                    inner.watch(&name);
                }
            }
        }
        if let Some(containers) = inner.options.containers.clone() {
            tokio::spawn(async move {
                if let Err(error) = containers.sweep(&state).await {
                    tracing::warn!(%error, "containers that are left over stay");
                }
            });
        }
        Ok(Self { open: Arc::new(WatchOwner(inner)) })
    }

    /// Returns the last line of the log that is not blank, without control characters and with at most 200 characters.
    pub fn last_line(&self, name: &TaskId) -> Option<String> {
        check(name).ok()?;
        let text = logs::tail_text(&self.inner().task_folder(name).folder, 4096);
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        // Progress bars return to the start of the line.
        let line = line.rsplit('\r').find(|part| !part.trim().is_empty())?;
        Some(line.trim().chars().filter(|c| !c.is_control()).take(200).collect())
    }

    /// Removes the folders of tasks that were acknowledged or tombstoned more than `older_than` ago. Returns their
    /// number. A removed task can start again, so `older_than` must exceed the time that a request can take to arrive.
    ///
    /// # Errors
    /// Returns [`PodsError::File`] if a folder cannot be read or removed.
    pub async fn prune(&self, older_than: Duration) -> Result<usize, PodsError> {
        let inner = self.inner();
        let mut pruned = 0;
        for unit in files::names(&inner.pods)? {
            let folder = inner.pods.join(&unit);
            let _lock = start::lock_unit(&folder).await?;
            for name in inner.tasks(&unit)? {
                let task = inner.task_folder(&name);
                let since = [task.acknowledged(), task.tombstone()]
                    .iter()
                    .filter_map(|path| path.metadata().ok()?.modified().ok())
                    .max();
                let old = since
                    .is_some_and(|since| SystemTime::now().duration_since(since).is_ok_and(|age| age >= older_than));
                if old && !task.is_locked()? {
                    std::fs::remove_dir_all(&task.folder).map_err(|error| PodsError::io(&task.folder, error))?;
                    secrets::remove_inputs(&inner.supervisor_config.state, &name)?;
                    pruned += 1;
                }
            }
            if inner.tasks(&unit)?.is_empty() {
                // A process that waits for the lock detects the removed file and creates a new one.
                std::fs::remove_dir_all(&folder).map_err(|error| PodsError::io(&folder, error))?;
            }
        }
        Ok(pruned)
    }

    fn inner(&self) -> &Arc<RelayShared> {
        &self.open.0
    }
}

fn no_cluster(what: &str) -> RelayError {
    let fix = "start the command with `--kubeconfig FILE` or `--clusters`";
    RelayError::Refused(format!("this machine has no cluster, which {what}: {fix}"))
}

#[async_trait]
impl RelayClient for LocalRelay {
    async fn ensure(&self, _: UnitCluster<'_>, request: EnsureTask) -> Result<TaskState, RelayError> {
        if request.v != 1 {
            return Err(RelayError::Refused(format!("the request has version {}; expected 1", request.v)));
        }
        check(&request.task)?;
        let Some(request) = request.into_script() else {
            return Err(no_cluster("objects need"));
        };
        self.inner().ensure(request).await
    }

    fn applies_objects(&self) -> bool {
        false
    }

    async fn cancel(&self, _: UnitCluster<'_>, name: &TaskId, grace: Duration) -> Result<TaskState, RelayError> {
        check(name)?;
        let inner = self.inner();
        let _lock = start::lock_unit(&inner.pods.join(&name.unit)).await.map_err(busy)?;
        inner.terminate(name, grace).await.map_err(busy)
    }

    async fn get(&self, _: UnitCluster<'_>, name: &TaskId) -> Result<TaskState, RelayError> {
        check(name)?;
        self.inner().state(name).map_err(busy)
    }

    async fn status(&self, cluster: UnitCluster<'_>, name: &TaskId) -> Result<TaskState, RelayError> {
        let state = self.get(cluster, name).await?;
        let TaskState::Running(task) = state else { return Ok(state) };
        Ok(TaskState::Running(RunningTask { log: String::new(), ..task }))
    }

    async fn acknowledge(&self, _: UnitCluster<'_>, name: &TaskId) -> Result<(), RelayError> {
        check(name)?;
        let task = self.inner().task_folder(name);
        if let FolderState::Ended(_) = task.state().map_err(busy)? {
            self.inner().mark_acknowledged(name, &task).map_err(busy)?;
        }
        Ok(())
    }

    async fn call(&self, _: UnitCluster<'_>, request: ServiceRequest) -> Result<ServiceResponse, RelayError> {
        match request.service.contains(".svc:") {
            true => Err(no_cluster("a webhook with `cluster` needs")),
            false => plugin_sockets::call(&self.inner().options.plugins, request).await,
        }
    }

    async fn release(&self, _: UnitCluster<'_>, life: &str) -> Result<(), RelayError> {
        secrets::release(&self.inner().supervisor_config.state, life).map_err(busy)
    }
}

impl RelayShared {
    fn task_folder(&self, name: &TaskId) -> TaskFolder {
        TaskFolder::of(&self.pods, name)
    }

    async fn ensure(self: &Arc<Self>, mut request: EnsureTask<ScriptTask>) -> Result<TaskState, RelayError> {
        let name = request.task.clone();
        let received = Instant::now();
        let lock = start::lock_unit(&self.pods.join(&name.unit)).await.map_err(busy)?;
        let task = self.task_folder(&name);
        match self.state(&name).map_err(busy)? {
            TaskState::Unknown => {}
            known => {
                if let TaskState::Running { .. } = known {
                    self.watch(&name);
                }
                return Ok(known);
            }
        }
        for lower in self.tasks(&name.unit).map_err(busy)?.into_iter().filter(|lower| lower.attempt < name.attempt) {
            if let TaskState::Running { .. } = self.terminate(&lower, LOWER_GRACE).await.map_err(busy)? {
                return Err(RelayError::Busy(format!("attempt {} does not end", lower.attempt)));
            }
        }
        if received.elapsed() >= Duration::from_millis(request.valid_for_ms) {
            return Err(RelayError::Busy("the request has expired".to_owned()));
        }
        files::private_folder(&task.folder).map_err(busy)?;
        secrets::keep_inputs(&self.supervisor_config.state, &name, &mut request.body.inputs).map_err(busy)?;
        files::write_json(&task.request(), &request).map_err(busy)?;
        // The watch takes the lock to start the script.
        drop(lock);
        self.watch(&name);
        self.state(&name).map_err(busy)
    }

    /// Ends a task in any state, and writes a tombstone unless it has a result. The caller holds the lock of the unit.
    async fn terminate(&self, name: &TaskId, grace: Duration) -> Result<TaskState, PodsError> {
        let task = self.task_folder(name);
        let until = Instant::now().checked_add(grace + TERMINATION_WAIT);
        let mut is_asked = false;
        loop {
            match task.state()? {
                // The supervisor writes these when no process is left.
                FolderState::Ended(result) => return Ok(TaskState::Ended(result)),
                FolderState::Tombstoned => return Ok(TaskState::Tombstoned),
                FolderState::Absent | FolderState::Waiting => task.write_tombstone()?,
                FolderState::Lost => self.resolve_lost(&task).await?,
                FolderState::Running => {
                    if !is_asked {
                        files::write_json(&task.cancel(), &CancelRequest { grace_ms: Millis::from(grace).0 })?;
                        is_asked = true;
                    }
                    if until.is_some_and(|until| Instant::now() > until) {
                        return Ok(running(&task));
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// Kills the processes of a task whose supervisor has ended without a result, and writes a result or a tombstone. The
    /// caller holds the unit's lock.
    async fn resolve_lost(&self, task: &TaskFolder) -> Result<(), PodsError> {
        let config: Option<SupervisorConfig> = files::read_json(&task.supervisor_config())?;
        // The engine that started the container may differ from the engine of this relay.
        if let Some(containers) = config.and_then(|config| config.containers) {
            let removed = containers.remove(&container_engine::name(task)).await;
            removed.map_err(PodsError::Containers)?;
        }
        let marked = task.clone();
        let left = tokio::task::spawn_blocking(move || leftovers::kill_all(&marked)).await.unwrap_or(0);
        if left > 0 {
            return Err(PodsError::Unkillable(left));
        }
        if task.cancel().exists() {
            task.write_tombstone()?;
        } else {
            let mut result =
                Callback::failed(ReasonCode::Lost, "the supervisor of the script was killed, or the machine stopped");
            result.log = Some(logs::tail_text(&task.folder, LOG_TAIL));
            files::write_json(&task.result(), &result)?;
        }
        let _ = std::fs::remove_dir_all(task.root());
        Ok(())
    }

    /// Starts a task without a supervisor if it has certainly not run. Otherwise writes its result.
    async fn resume(&self, name: &TaskId) -> Result<(), PodsError> {
        let _lock = start::lock_unit(&self.pods.join(&name.unit)).await?;
        let task = self.task_folder(name);
        match task.state()? {
            FolderState::Waiting => start::start(&task, &self.supervisor_config).await,
            FolderState::Lost => self.resolve_lost(&task).await,
            _ => Ok(()),
        }
    }

    fn state(&self, name: &TaskId) -> Result<TaskState, PodsError> {
        let task = self.task_folder(name);
        Ok(match task.state()? {
            FolderState::Absent if self.tasks(&name.unit)?.iter().any(|other| other.attempt > name.attempt) => {
                TaskState::Tombstoned
            }
            FolderState::Absent => TaskState::Unknown,
            FolderState::Tombstoned => TaskState::Tombstoned,
            FolderState::Ended(result) => TaskState::Ended(result),
            FolderState::Running | FolderState::Waiting | FolderState::Lost => running(&task),
        })
    }

    /// Returns the attempts of a unit that have a folder.
    fn tasks(&self, unit: &str) -> Result<Vec<TaskId>, PodsError> {
        let names = files::names(&self.pods.join(unit))?;
        let attempts = names.iter().filter_map(|name| name.parse().ok());
        Ok(attempts.map(|attempt| TaskId { unit: unit.to_owned(), attempt }).collect())
    }

    /// Watches the task until its result is acknowledged, unless a watch exists.
    fn watch(self: &Arc<Self>, name: &TaskId) {
        let start = || tokio::spawn(watch_task(self.clone(), name.clone())).abort_handle();
        self.watches().entry(name.clone()).or_insert_with(start);
    }

    /// Ends the watch of a task if nothing is left to do. Returns true if it has ended.
    fn unwatch_if_done(&self, name: &TaskId) -> bool {
        let mut watches = self.watches();
        // A request may have arrived meanwhile, and has found this watch.
        let task = self.task_folder(name);
        let is_done = task.acknowledged().exists() || task.tombstone().exists() || !task.request().exists();
        if is_done {
            watches.remove(name);
        }
        is_done
    }

    /// Records that the result was acknowledged, and removes what is not needed any more.
    fn mark_acknowledged(&self, name: &TaskId, task: &TaskFolder) -> Result<(), StateFileError> {
        files::write_whole(&task.acknowledged(), b"")?;
        task.cleanup();
        // After a failure, `prune` or a release removes them.
        let _ = secrets::remove_inputs(&self.supervisor_config.state, name);
        Ok(())
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, AbortHandle>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches one task. Starts it or writes its result if it has no supervisor, and sends its result until it is
/// acknowledged.
async fn watch_task(inner: Arc<RelayShared>, name: TaskId) {
    let mut look = POLL_INTERVAL.0;
    let mut pause = BACKOFF.0;
    let mut place = None;
    loop {
        let rest = match step(&inner, &name, &mut place).await {
            Ok(DeliveryStep::Done) if inner.unwatch_if_done(&name) => return,
            Ok(DeliveryStep::Done) => continue,
            Ok(DeliveryStep::Poll) => {
                look = (look + look / 8).min(POLL_INTERVAL.1);
                look
            }
            Ok(DeliveryStep::Retry(reason)) => {
                tracing::debug!(?name, reason, "callback not accepted yet");
                longer(&mut pause)
            }
            Err(error) => {
                tracing::warn!(?name, %error, "task cannot be watched");
                longer(&mut pause)
            }
        };
        tokio::time::sleep(rest).await;
    }
}

/// Returns a pause and doubles the next one.
fn longer(pause: &mut Duration) -> Duration {
    let next = (*pause * 2).min(BACKOFF.1);
    std::mem::replace(pause, next)
}

enum DeliveryStep {
    /// Nothing is left to do.
    Done,
    Poll,
    /// The result is not acknowledged yet.
    Retry(String),
}

async fn step<'a>(
    inner: &'a RelayShared,
    name: &TaskId,
    place: &mut Option<SemaphorePermit<'a>>,
) -> Result<DeliveryStep, PodsError> {
    let task = inner.task_folder(name);
    match task.state()? {
        FolderState::Absent | FolderState::Tombstoned => Ok(DeliveryStep::Done),
        FolderState::Running => Ok(DeliveryStep::Poll),
        FolderState::Waiting => {
            // The semaphores are never closed.
            if place.is_none() {
                *place = inner.running.acquire().await.ok();
            }
            let _permit = inner.starts.acquire().await.ok();
            inner.resume(name).await?;
            let until = Instant::now() + START_WAIT;
            while matches!(task.state()?, FolderState::Running) && !task.started().exists() && Instant::now() < until {
                tokio::time::sleep(START_POLL).await;
            }
            Ok(DeliveryStep::Poll)
        }
        FolderState::Lost => {
            inner.resume(name).await?;
            Ok(DeliveryStep::Poll)
        }
        FolderState::Ended(_) if task.acknowledged().exists() => Ok(DeliveryStep::Done),
        FolderState::Ended(result) => {
            let _ended = place.take();
            let Some((call, url)) = &inner.options.callbacks else { return Ok(DeliveryStep::Poll) };
            let Some(request) = files::read_json::<EnsureTask<ScriptTask>>(&task.request())? else {
                return Ok(DeliveryStep::Retry("the request is gone".to_owned()));
            };
            if let Err(why) = send_result(call.as_ref(), url, &request, &result).await {
                return Ok(DeliveryStep::Retry(why));
            }
            inner.mark_acknowledged(name, &task)?;
            Ok(DeliveryStep::Done)
        }
    }
}

/// Sends a result to `url`. Returns the reason if the result must be sent again.
async fn send_result(
    call: &dyn HttpCall,
    url: &str,
    request: &EnsureTask<ScriptTask>,
    result: &Callback,
) -> Result<(), String> {
    let body = serde_json::to_vec(result).map_err(|error| error.to_string())?;
    let EnsureTask { task, callback, .. } = request;
    let headers = vec![
        ("authorization".to_owned(), format!("Bearer {}", callback.token)),
        ("content-type".to_owned(), "application/json".to_owned()),
    ];
    let request = HttpRequest::new("POST", url, headers, body, CALLBACK_TIMEOUT);
    match call.call(request).await.or_else(|error| error.without_body(false)) {
        Ok(response) if (200..300).contains(&response.status) => Ok(()),
        // These three statuses are temporary. Any other 4xx is the final rejection of the result.
        Ok(response) if (400..500).contains(&response.status) && !matches!(response.status, 408 | 425 | 429) => {
            tracing::warn!(?task, status = response.status, "callback refused");
            Ok(())
        }
        Ok(response) => Err(format!("status {}", response.status)),
        Err(error @ CallError::Refused(_)) => {
            tracing::warn!(?task, %error, "callback not allowed");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn running(task: &TaskFolder) -> TaskState {
    // The timeout counts from this file. An image may be pulled before.
    let started = task.started().metadata().and_then(|file| file.modified()).ok();
    let age = started.map(|started| SystemTime::now().duration_since(started).unwrap_or_default());
    let log = logs::tail_text(&task.folder, LOG_TAIL);
    let progress = ebb_script::last_progress(&log);
    let age_ms = age.map(|age| Millis::from(age).0);
    TaskState::Running(RunningTask { log, progress, age_ms, ..RunningTask::default() })
}

fn check(name: &TaskId) -> Result<(), RelayError> {
    name.check().map_err(RelayError::Refused)
}

fn busy(error: impl std::fmt::Display) -> RelayError {
    RelayError::Busy(error.to_string())
}
