//! Runs one script through a relay, in a container or a cluster.
//!
//! The task has no run. Its sensitive outputs are deleted with it.

use std::time::{Duration, Instant};

use ebb_flow::ports::{RelayClient, RelayError};
use ebb_local::StackSettings;
use ebb_protocol::callback::Callback;
use ebb_protocol::relay::{CallbackEndpoint, EnsureTask, ScriptTask, TaskBody, TaskId, TaskState, VERSION};

use crate::commands::logs::LogPosition;
use crate::exit::CliError;
use crate::interrupt::InterruptCount;
use crate::local_server::LocalServer;
use crate::output;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The longest time without a response of the relay.
const RELAY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between `SIGTERM` and `SIGKILL` of an interrupted script.
const GRACE: Duration = Duration::from_secs(2);
/// The folder of this command's server in the state folder. `ebb dev` may use the state folder itself.
const FOLDER: &str = "alone";

pub(super) struct SingleScript {
    /// The id of the task; unique per run of the command.
    pub(super) task: TaskId,
    pub(super) script: ScriptTask,
    pub(super) timeout: Duration,
    /// `None` selects the cluster of documents that name none.
    pub(super) cluster: Option<String>,
}

/// The result of the script; `None` if the user interrupted it.
pub(super) type SingleResult = Option<Callback>;

impl SingleScript {
    /// Runs the script on a server with `settings` and deletes the task afterwards. `log` receives its output.
    ///
    /// # Errors
    /// The relay rejects the task, or does not respond for a minute.
    pub(super) async fn run(
        self,
        settings: StackSettings,
        interrupts: &InterruptCount,
        log: fn(&[u8]),
    ) -> Result<SingleResult, CliError> {
        let state = settings.state.join(FOLDER);
        let machine = LocalServer::start(StackSettings { state, ..settings }).await?;
        let ended = self.run_on(&machine, interrupts, log).await;
        machine.stop().await;
        ended
    }

    async fn run_on(
        &self,
        machine: &LocalServer,
        interrupts: &InterruptCount,
        log: fn(&[u8]),
    ) -> Result<SingleResult, CliError> {
        let relay = machine.relay();
        let ended = tokio::select! {
            ended = self.run_to_end(machine, log) => ended.map(Some),
            () = interrupts.more_than(0) => {
                output::status_line("interrupted: stopping the script; press Ctrl-C again to exit at once");
                tokio::select! {
                    ended = self.cancel(relay) => ended?,
                    () = interrupts.more_than(1) => return Ok(None),
                }
                Ok(None)
            }
        };
        self.clean_up(relay).await;
        ended
    }

    /// Deletes the task and waits until it is gone, at most a minute. The relay retries steps that fail.
    async fn clean_up(&self, relay: &dyn RelayClient) {
        let cluster = self.cluster.as_deref();
        let _ = relay.release(cluster, self.task.instance()).await;
        let _ = relay.acknowledge(cluster, &self.task).await;
        let begun = Instant::now();
        while let Ok(TaskState::Ended(_) | TaskState::Running { .. }) = relay.get(cluster, &self.task).await
            && begun.elapsed() < RELAY_TIMEOUT
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn run_to_end(&self, machine: &LocalServer, log: fn(&[u8])) -> Result<Callback, CliError> {
        let relay = machine.relay();
        let cluster = self.cluster.as_deref();
        // This command polls for the result. The callback exists for relays that require one; its token is not valid.
        let callback =
            CallbackEndpoint { url: machine.callback_url(), token: "alone".to_owned(), installation: String::new() };
        let request = || EnsureTask {
            v: VERSION,
            task: self.task.clone(),
            valid_for_ms: millis(RELAY_TIMEOUT),
            timeout_ms: millis(self.timeout),
            callback: callback.clone(),
            body: TaskBody::Script(self.script.clone()),
        };
        let mut state = until_response(async || relay.ensure(cluster, request()).await).await?;
        let mut tail = LogPosition::default();
        loop {
            match state {
                TaskState::Ended(ended) => {
                    log(tail.advance(ended.log.as_deref().unwrap_or_default(), true).text.as_bytes());
                    return Ok(*ended);
                }
                TaskState::Running { log: text, .. } => log(tail.advance(&text, false).text.as_bytes()),
                TaskState::Queued { .. } => {}
                TaskState::Unknown | TaskState::Tombstoned => {
                    return Err(CliError::failed("the script was cancelled by another client"));
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            state = until_response(async || relay.get(cluster, &self.task).await).await?;
        }
    }

    /// Cancels the script and waits until it has ended.
    async fn cancel(&self, relay: &dyn RelayClient) -> Result<(), CliError> {
        let cluster = self.cluster.as_deref();
        loop {
            match until_response(async || relay.cancel(cluster, &self.task, GRACE).await).await? {
                TaskState::Ended(_) | TaskState::Tombstoned => return Ok(()),
                TaskState::Running { .. } | TaskState::Queued { .. } | TaskState::Unknown => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }
}

/// Repeats a request until the relay responds.
async fn until_response(request: impl AsyncFn() -> Result<TaskState, RelayError>) -> Result<TaskState, CliError> {
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
