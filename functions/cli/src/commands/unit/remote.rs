//! Runs one script through a relay: of this machine, or of a cluster.
//!
//! The task has no run. Its sensitive outputs are deleted with it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebb_flow::{RelayClient, RelayError};
use ebb_local::pods::{LocalRelay, LocalRelayOptions};
use ebb_local::{StackSettings, UnitBackend};
use ebb_protocol::relay::{CallbackEndpoint, EnsureTask, ScriptTask, TaskBody, TaskId, TaskNames, TaskState, VERSION};
use ebb_protocol::{Callback, Millis, limits};

use crate::commands::logs::LogPosition;
use crate::{CliError, InterruptCount, LocalServer, Result, output};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
const RELAY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between `SIGTERM` and `SIGKILL` of an interrupted script.
const GRACE: Duration = Duration::from_secs(2);
/// The folder of this command's server in the state folder. The state folder itself is that of `ebb dev`.
const FOLDER: &str = "alone";
/// The time for which the folders of ended scripts are kept on this machine.
const RETENTION: Duration = Duration::from_secs(3_600);

pub(super) struct SingleScript {
    /// The id of the task. It is unique per run of the command.
    pub(super) task: TaskId,
    pub(super) script: ScriptTask,
    pub(super) timeout: Duration,
    /// `None` selects the default cluster.
    pub(super) cluster: Option<String>,
}

/// The result of the script, or `None` if the user interrupted it.
pub(super) type SingleResult = Result<Option<Callback>>;

impl SingleScript {
    /// Runs the script with `settings`, prints its log to standard error, and deletes the task afterwards. `state`
    /// contains the secrets of this machine.
    ///
    /// # Errors
    /// Returns an error if the relay rejects the task, or does not respond for a minute.
    pub(super) async fn run(self, state: &Path, settings: StackSettings, interrupts: &InterruptCount) -> SingleResult {
        let containers = match settings.units {
            UnitBackend::Processes => None,
            UnitBackend::Containers(containers) => Some(containers),
            units @ (UnitBackend::Cluster(_) | UnitBackend::RemoteRelays(_)) => {
                let settings = StackSettings { state: state.join(FOLDER), units, ..settings };
                return self.run_in_cluster(settings, interrupts).await;
            }
        };
        let plugins = PathBuf::new();
        let options = LocalRelayOptions { callbacks: None, extra_env: Vec::new(), plugins, containers };
        let relay = LocalRelay::open(state, options)
            .map_err(|error| CliError::broken("cannot run the unit").with_causes(&error))?;
        let ended = self.run_on(&relay, String::new(), interrupts).await;
        // A failure has no effect other than used disk space.
        let _ = relay.prune(RETENTION).await;
        ended
    }

    async fn run_in_cluster(self, settings: StackSettings, interrupts: &InterruptCount) -> SingleResult {
        let machine = LocalServer::start(settings).await?;
        let env = machine.stack.env();
        let relay = env.relay.as_ref();
        let ended = self.run_on(relay, env.settings.callback_url.clone(), interrupts).await;
        // The relay deletes the task after its acknowledgement, and retries steps that fail.
        let begun = Instant::now();
        while let Ok(TaskState::Ended(_) | TaskState::Running { .. }) =
            relay.get(self.cluster.as_deref().into(), &self.task).await
            && begun.elapsed() < RELAY_TIMEOUT
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        machine.stack.stop().await;
        ended
    }

    async fn run_on(&self, relay: &dyn RelayClient, callback_url: String, interrupts: &InterruptCount) -> SingleResult {
        let ended = tokio::select! {
            ended = self.run_to_end(relay, callback_url) => ended.map(Some),
            () = interrupts.more_than(0) => {
                output::status_line("interrupted: stopping the script; press Ctrl-C again to exit at once");
                tokio::select! {
                    ended = self.cancel(relay) => ended?,
                    () = interrupts.more_than(1) => return Ok(None),
                }
                Ok(None)
            }
        };
        let cluster = self.cluster.as_deref();
        let _ = relay.release(cluster.into(), self.task.instance()).await;
        let _ = relay.acknowledge(cluster.into(), &self.task).await;
        ended
    }

    async fn run_to_end(&self, relay: &dyn RelayClient, callback_url: String) -> Result<Callback> {
        let cluster = self.cluster.as_deref();
        // This command polls for the result. The callback exists for relays that require one. Its token is invalid.
        let callback = CallbackEndpoint { url: callback_url, token: "alone".to_owned(), installation: String::new() };
        let request = || EnsureTask {
            v: VERSION,
            task: self.task.clone(),
            valid_for_ms: Millis::from(RELAY_TIMEOUT).0,
            timeout_ms: Millis::from(self.timeout).0,
            callback: callback.clone(),
            names: TaskNames::default(),
            body: TaskBody::Script(self.script.clone()),
        };
        let mut state = until_response(async || relay.ensure(cluster.into(), request()).await).await?;
        let mut tail = LogPosition::default();
        loop {
            match state {
                TaskState::Ended(ended) => {
                    print_log(&mut tail, ended.log.as_deref().unwrap_or_default(), true);
                    return Ok(*ended);
                }
                TaskState::Running(task) => print_log(&mut tail, &task.log, false),
                TaskState::Queued { .. } => {}
                TaskState::Unknown | TaskState::Tombstoned => {
                    return Err(CliError::failed("the script was cancelled by another client"));
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            state = until_response(async || relay.get(cluster.into(), &self.task).await).await?;
        }
    }

    /// Cancels the script and waits until it has ended.
    async fn cancel(&self, relay: &dyn RelayClient) -> Result<()> {
        let cluster = self.cluster.as_deref();
        loop {
            match until_response(async || relay.cancel(cluster.into(), &self.task, GRACE).await).await? {
                TaskState::Ended(_) | TaskState::Tombstoned => return Ok(()),
                TaskState::Running { .. } | TaskState::Queued { .. } | TaskState::Unknown => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }
}

fn print_log(tail: &mut LogPosition, log: &str, is_over: bool) {
    let new = tail.advance(log, is_over);
    if new.has_gap {
        output::status_line("some lines are missing here: the log grew faster than it was read");
    }
    let mut err = std::io::stderr().lock();
    // A closed standard error does not stop the unit.
    let _ = err.write_all(limits::printable(&new.text).as_bytes()).and_then(|()| err.flush());
}

async fn until_response(request: impl AsyncFn() -> Result<TaskState, RelayError>) -> Result<TaskState> {
    let begun = Instant::now();
    loop {
        match request().await {
            Ok(state) => return Ok(state),
            Err(RelayError::Refused(reason)) => {
                return Err(CliError::failed(format!("the relay rejects the script: {reason}")));
            }
            Err(error @ (RelayError::Unreachable(_) | RelayError::Busy(_))) if begun.elapsed() > RELAY_TIMEOUT => {
                return Err(CliError::broken("the relay has not responded for a minute").with_causes(&error));
            }
            Err(RelayError::Unreachable(_) | RelayError::Busy(_)) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}
