//! One script in a container or a cluster: a relay is asked for it as for a unit of a run, and it belongs to none. Its
//! sensitive outputs go with it.

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

const EVERY: Duration = Duration::from_millis(200);
/// How long a relay may give no answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between `SIGTERM` and `SIGKILL` of a script that is interrupted.
const GRACE: Duration = Duration::from_secs(2);
/// Folder of the server that asks, within the one of all state: `ebb dev` may use that.
const FOLDER: &str = "alone";

/// A script that is to run alone.
pub(super) struct SingleScript {
    /// Its name, which no other run of it has.
    pub(super) task: TaskId,
    pub(super) script: ScriptTask,
    pub(super) timeout: Duration,
    /// The cluster; `None`: the one of documents that name none.
    pub(super) cluster: Option<String>,
}

/// How it ended; `None`: somebody interrupted it.
pub(super) type SingleResult = Option<Callback>;

impl SingleScript {
    /// Runs it where `settings` say, and leaves nothing of it there. What it prints goes to `log`.
    ///
    /// # Errors
    /// When it cannot be run there, or nobody says how it ended.
    pub(super) async fn run(
        self,
        settings: StackSettings,
        interrupts: &InterruptCount,
        log: fn(&[u8]),
    ) -> Result<SingleResult, CliError> {
        let state = settings.state.join(FOLDER);
        let machine = LocalServer::start(StackSettings { state, ..settings }).await?;
        let ended = self.on(&machine, interrupts, log).await;
        machine.stop().await;
        ended
    }

    async fn on(
        &self,
        machine: &LocalServer,
        interrupts: &InterruptCount,
        log: fn(&[u8]),
    ) -> Result<SingleResult, CliError> {
        let relay = machine.relay();
        let ended = tokio::select! {
            ended = self.to_its_end(machine, log) => ended.map(Some),
            () = interrupts.more_than(0) => {
                output::status_line("interrupted: the script is ended; Ctrl-C again leaves at once");
                tokio::select! {
                    ended = self.cancelled(relay) => ended?,
                    () = interrupts.more_than(1) => return Ok(None),
                }
                Ok(None)
            }
        };
        self.forgotten(relay).await;
        ended
    }

    /// Waits a while until nothing of it is left: its relay may end with this program. What fails is left to the relay.
    async fn forgotten(&self, relay: &dyn RelayClient) {
        let cluster = self.cluster.as_deref();
        let _ = relay.release(cluster, self.task.instance()).await;
        let _ = relay.acknowledge(cluster, &self.task).await;
        let begun = Instant::now();
        while let Ok(TaskState::Ended(_) | TaskState::Running { .. }) = relay.get(cluster, &self.task).await
            && begun.elapsed() < PATIENCE
        {
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn to_its_end(&self, machine: &LocalServer, log: fn(&[u8])) -> Result<Callback, CliError> {
        let relay = machine.relay();
        let cluster = self.cluster.as_deref();
        // Its result is asked for: this is for relays that cannot do without, and its token is none.
        let callback =
            CallbackEndpoint { url: machine.callback_url(), token: "alone".to_owned(), installation: String::new() };
        let request = || EnsureTask {
            v: VERSION,
            task: self.task.clone(),
            valid_for_ms: millis(PATIENCE),
            timeout_ms: millis(self.timeout),
            callback: callback.clone(),
            body: TaskBody::Script(self.script.clone()),
        };
        let mut state = answer(async || relay.ensure(cluster, request()).await).await?;
        let mut tail = LogPosition::default();
        loop {
            match state {
                TaskState::Ended(ended) => {
                    log(tail.news(ended.log.as_deref().unwrap_or_default(), true).text.as_bytes());
                    return Ok(*ended);
                }
                TaskState::Running { log: said, .. } => log(tail.news(&said, false).text.as_bytes()),
                TaskState::Queued { .. } => {}
                TaskState::Unknown | TaskState::Tombstoned => {
                    return Err(CliError::failed("the script was ended from outside"));
                }
            }
            tokio::time::sleep(EVERY).await;
            state = answer(async || relay.get(cluster, &self.task).await).await?;
        }
    }

    /// Ends it.
    async fn cancelled(&self, relay: &dyn RelayClient) -> Result<(), CliError> {
        let cluster = self.cluster.as_deref();
        loop {
            match answer(async || relay.cancel(cluster, &self.task, GRACE).await).await? {
                TaskState::Ended(_) | TaskState::Tombstoned => return Ok(()),
                TaskState::Running { .. } | TaskState::Queued { .. } | TaskState::Unknown => {
                    tokio::time::sleep(EVERY).await;
                }
            }
        }
    }
}

/// Asks until there is an answer.
async fn answer(ask: impl AsyncFn() -> Result<TaskState, RelayError>) -> Result<TaskState, CliError> {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(state) => return Ok(state),
            Err(RelayError::Refused(why)) => {
                return Err(CliError::failed(format!("the script cannot be run there: {why}")));
            }
            Err(error @ (RelayError::Unreachable(_) | RelayError::Busy(_))) if begun.elapsed() > PATIENCE => {
                return Err(CliError::broken("nobody says how the script goes").with_causes(&error));
            }
            Err(RelayError::Unreachable(_) | RelayError::Busy(_)) => tokio::time::sleep(EVERY).await,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
