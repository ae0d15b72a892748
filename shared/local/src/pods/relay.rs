//! The relay: what it does with a request, and how it keeps an eye on work.
//!
//! Guarantees: a name starts a script at most once, whatever is asked at the same time or after whatever crash; when
//! a try starts, nothing of a lower try of the same unit runs any more. Assumption: the folders are on a local file
//! system, with locks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ebb_flow::ports::{Relay, RelayError};
use ebb_outbound::Call;
use ebb_wire::callback::{Callback, ReasonCode};
use ebb_wire::limits::LOG_TAIL;
use ebb_wire::relay::{Ensure, Script, WorkName, WorkState};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::work::{Cancel, Life, Received, Standing, Surroundings, Work};
use super::{
    Containers, PodsError, containers, deliver, folder, logs, secrets, start, strays, supervisor, watchdog,
};

/// What lower tries get between `SIGTERM` and `SIGKILL`.
const LOWER_GRACE: Duration = Duration::from_secs(5);
/// How long after `SIGKILL` a caller is made to wait for the end.
const PATIENCE: Duration = Duration::from_secs(15);
/// The longest name of a unit: a DNS label.
const UNIT_MAX: usize = 63;

/// What a relay is opened with.
#[derive(Clone)]
pub struct Options {
    /// Sends callbacks. Its guard must let the control plane's address pass, which is loopback on one machine.
    pub call: Arc<dyn Call>,
    /// Environment variables for every script, such as `AWS_ENDPOINT_URL_S3`; those of a request win over them.
    pub extra_env: Vec<(String, String)>,
    /// Where callbacks go, whatever a request says: the control plane may have started again at another address since.
    /// `None`: where the request says.
    pub callback_url: Option<String>,
    /// The program to run as supervisor, whose `main` calls [`super::supervise_if_asked`]; `None`: this one.
    pub program: Option<PathBuf>,
    /// What runs scripts as containers of their image; `None`: they are processes of this machine.
    pub containers: Option<Containers>,
}

/// A relay that runs work as processes of this machine. Clones are the same relay; when the last one is dropped the
/// work goes on without being watched, until the state is opened again.
#[derive(Clone)]
pub struct ProcessRelay {
    open: Arc<WatchOwner>,
}

/// Ends the watching tasks with the last clone.
struct WatchOwner(Arc<Inner>);

/// What the watching tasks share.
pub(super) struct Inner {
    pods: PathBuf,
    pub(super) options: Options,
    around: Surroundings,
    watches: Mutex<HashMap<WorkName, Watch>>,
}

struct Watch {
    /// Says that there is something to look at.
    wake: Arc<Notify>,
    task: AbortHandle,
    /// How often it was asked for after its end: what was sent before the latest of them does not answer it.
    asked: u64,
}

impl Drop for WatchOwner {
    fn drop(&mut self) {
        for watch in self.0.watches().values() {
            watch.task.abort();
        }
    }
}

impl ProcessRelay {
    /// Opens the relay whose state is under `state` (made if need be), resumes what runs and sends the callbacks that
    /// nobody has taken yet, until they are answered with 2xx or refused with 4xx. Needs a tokio runtime.
    ///
    /// Several may be open on one state at once: then callbacks may come more than once.
    ///
    /// # Errors
    /// [`PodsError::Io`] if the state cannot be read and written.
    pub fn open(state: &Path, options: Options) -> Result<Self, PodsError> {
        let pods = state.join("pods");
        folder::make_private(&pods)?;
        folder::make_private(&state.join("secrets"))?;
        let state = state.canonicalize().map_err(|error| PodsError::io(state, error))?;
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
        let extra_env = options.extra_env.clone();
        let containers = options.containers.clone();
        let around = Surroundings { state: state.clone(), path, extra_env, life: Life::Own, containers };
        let watches = Mutex::new(HashMap::new());
        let inner = Arc::new(Inner { pods: state.join("pods"), options, around, watches });
        for unit in folder::names(&inner.pods)? {
            for attempt in inner.attempts(&unit)? {
                let name = WorkName { unit: unit.clone(), attempt };
                let work = inner.work(&name);
                if !work.taken().exists() && !work.tombstone().exists() {
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

    /// The last line that is not blank of what the work has printed, without control characters, at most 200
    /// characters; `None` if there is none.
    pub fn last_line(&self, name: &WorkName) -> Option<String> {
        check(name).ok()?;
        let text = logs::tail_text(&self.inner().work(name).folder, 4096);
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        // Progress bars go back to the line's start.
        let line = line.rsplit('\r').find(|part| !part.trim().is_empty())?;
        Some(line.trim().chars().filter(|c| !c.is_control()).take(200).collect())
    }

    /// What is kept of the work's log: its first 64 KiB, a note of how much is left out, and at least its last
    /// [`LOG_TAIL`] bytes. `None` if it has not started.
    pub fn log(&self, name: &WorkName) -> Option<Vec<u8>> {
        check(name).ok()?;
        logs::whole(&self.inner().work(name).folder)
    }

    /// Removes the folders of work whose result was taken, or that was tombstoned, more than `older_than` ago. A name
    /// that is removed can start again: choose longer than any request may be under way (an hour is plenty). Gives
    /// how many.
    ///
    /// # Errors
    /// [`PodsError::Io`].
    pub async fn prune(&self, older_than: Duration) -> Result<usize, PodsError> {
        let inner = self.inner();
        let mut pruned = 0;
        for unit in folder::names(&inner.pods)? {
            let folder = inner.pods.join(&unit);
            let _lock = start::lock_unit(&folder).await?;
            for attempt in inner.attempts(&unit)? {
                let work = inner.work(&WorkName { unit: unit.clone(), attempt });
                let since = [work.taken(), work.tombstone()]
                    .iter()
                    .filter_map(|path| path.metadata().ok()?.modified().ok())
                    .max();
                let old = since.is_some_and(|since| {
                    SystemTime::now().duration_since(since).is_ok_and(|age| age >= older_than)
                });
                if old && !work.is_held()? {
                    std::fs::remove_dir_all(&work.folder)
                        .map_err(|error| PodsError::io(&work.folder, error))?;
                    pruned += 1;
                }
            }
            if inner.attempts(&unit)?.is_empty() {
                // Those who wait for the lock see that its file is gone, and make a new one.
                std::fs::remove_dir_all(&folder).map_err(|error| PodsError::io(&folder, error))?;
            }
        }
        Ok(pruned)
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.open.0
    }
}

#[async_trait]
impl Relay for ProcessRelay {
    async fn ensure(&self, _: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        if request.v != 1 {
            return Err(RelayError::Refused(format!(
                "version {} of the request is not known here",
                request.v
            )));
        }
        check(&request.name)?;
        let Some(request) = request.into_script() else {
            return Err(RelayError::Refused("objects need a cluster, and this machine has none".to_owned()));
        };
        self.inner().ensure(request).await
    }

    async fn cancel(
        &self,
        _: Option<&str>,
        name: &WorkName,
        grace: Duration,
    ) -> Result<WorkState, RelayError> {
        check(name)?;
        let inner = self.inner();
        let _lock = start::lock_unit(&inner.pods.join(&name.unit)).await.map_err(busy)?;
        inner.end(name, grace).await.map_err(busy)
    }

    async fn get(&self, _: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        check(name)?;
        self.inner().state(name).map_err(busy)
    }

    async fn acknowledge(&self, _: Option<&str>, name: &WorkName) -> Result<(), RelayError> {
        check(name)?;
        let work = self.inner().work(name);
        match work.standing().map_err(busy)? {
            Standing::Ended(_) => {
                folder::write_whole(&work.taken(), b"").map_err(busy)?;
                work.tidy();
                self.inner().wake(name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn release(&self, _: Option<&str>, life: &str) -> Result<(), RelayError> {
        secrets::release(&self.inner().around.state, life).map_err(busy)
    }
}

impl Inner {
    pub(super) fn work(&self, name: &WorkName) -> Work {
        Work::of(&self.pods, name)
    }

    async fn ensure(self: &Arc<Self>, request: Ensure<Script>) -> Result<WorkState, RelayError> {
        let name = request.name.clone();
        let received = Received { at_ms: supervisor::now_ms(), request };
        let _lock = start::lock_unit(&self.pods.join(&name.unit)).await.map_err(busy)?;
        let work = self.work(&name);
        let attempts = self.attempts(&name.unit).map_err(busy)?;
        match work.standing().map_err(busy)? {
            Standing::Absent => {}
            Standing::Ended(result) => {
                self.send_again(&name, &work);
                return Ok(WorkState::Ended(result));
            }
            Standing::Tombstoned => return Ok(WorkState::Tombstoned),
            Standing::Running | Standing::Waiting | Standing::Vanished => {
                self.watch(&name);
                return self.state(&name).map_err(busy);
            }
        }
        if attempts.iter().any(|attempt| *attempt > name.attempt) {
            return Ok(WorkState::Tombstoned);
        }
        for attempt in attempts.into_iter().filter(|attempt| *attempt < name.attempt) {
            let lower = WorkName { unit: name.unit.clone(), attempt };
            if let WorkState::Running { .. } = self.end(&lower, LOWER_GRACE).await.map_err(busy)? {
                return Err(RelayError::Busy(format!("try {attempt} does not end")));
            }
        }
        folder::make_private(&work.folder).map_err(busy)?;
        folder::write_json(&work.request(), &received).map_err(busy)?;
        self.start(&work).await.map_err(busy)?;
        self.watch(&name);
        self.state(&name).map_err(busy)
    }

    /// Starts work whose request is on disk. The caller holds the unit's lock.
    async fn start(&self, work: &Work) -> Result<(), PodsError> {
        let child = start::start(work, &self.around, self.options.program.as_deref()).await?;
        if let Some(mut child) = child {
            // Only so that it does not stay a zombie: how it went is in its folder.
            tokio::spawn(async move { child.wait().await });
        }
        Ok(())
    }

    /// Ends work, whatever it is at, and leaves a tombstone unless it has a result. The caller holds the unit's lock.
    async fn end(&self, name: &WorkName, grace: Duration) -> Result<WorkState, PodsError> {
        let work = self.work(name);
        let until = Instant::now().checked_add(grace + PATIENCE);
        let mut asked = None;
        loop {
            match work.standing()? {
                // A supervisor that has written these has nothing left to end.
                Standing::Ended(result) => return Ok(WorkState::Ended(result)),
                Standing::Tombstoned => return Ok(WorkState::Tombstoned),
                Standing::Absent | Standing::Waiting => work.bury()?,
                Standing::Vanished => self.settle_vanished(&work).await?,
                Standing::Running => {
                    if asked.is_none() {
                        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                        folder::write_json(&work.cancel(), &Cancel { grace_ms })?;
                        asked = Some(());
                    }
                    // It can neither see the request nor act on it.
                    watchdog::kill_stopped(&work);
                    if until.is_some_and(|until| Instant::now() > until) {
                        return Ok(running(&work));
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// Says what became of work whose supervisor ended without saying so, after killing what it may have left. The
    /// caller holds the unit's lock.
    async fn settle_vanished(&self, work: &Work) -> Result<(), PodsError> {
        let around: Option<Surroundings> = folder::read_json(&work.surroundings())?;
        // Of the engine that it was started by.
        if let Some(containers) = around.and_then(|around| around.containers) {
            let removed = containers.remove(&containers::name(work)).await;
            removed.map_err(|error| PodsError::Containers(error.to_string()))?;
        }
        let marks = work.process_marks();
        let left = tokio::task::spawn_blocking(move || strays::kill_marked(&marks)).await.unwrap_or(0);
        if left > 0 {
            let message = format!("{left} processes of a script do not die");
            return Err(PodsError::Damaged { path: work.folder.clone(), message });
        }
        if work.cancel().exists() {
            work.bury()?;
        } else {
            let mut result = match work.overdue().exists() {
                true => Callback::failed(
                    ReasonCode::Timeout,
                    "the script did not end at its deadline, and had stopped the process that watches over it",
                ),
                false => Callback::failed(
                    ReasonCode::Lost,
                    "the process that watched over the script was killed, or the machine went down",
                ),
            };
            result.log = Some(logs::tail_text(&work.folder, LOG_TAIL));
            folder::write_json(&work.result(), &result)?;
        }
        let _ = std::fs::remove_dir_all(work.root());
        Ok(())
    }

    /// Ends work whose supervisor was stopped and has missed the script's deadline.
    pub(super) fn keep_deadline(&self, work: &Work) -> Result<(), PodsError> {
        if !watchdog::is_stopped(work) {
            return Ok(());
        }
        let Some(received) = folder::read_json::<Received>(&work.request())? else { return Ok(()) };
        let since = work.started().metadata().and_then(|found| found.modified()).ok();
        let timeout = Duration::from_millis(received.request.timeout_ms);
        let is_over = since.is_some_and(|since| since.elapsed().is_ok_and(|elapsed| elapsed >= timeout));
        if is_over {
            folder::write_whole(&work.overdue(), b"")?;
            watchdog::kill_stopped(work);
        }
        Ok(())
    }

    /// Does what must be done for work that nobody runs: starts it if it surely has not run, else settles it.
    pub(super) async fn pick_up(&self, name: &WorkName) -> Result<(), PodsError> {
        let _lock = start::lock_unit(&self.pods.join(&name.unit)).await?;
        let work = self.work(name);
        match work.standing()? {
            Standing::Waiting => self.start(&work).await,
            Standing::Vanished => self.settle_vanished(&work).await,
            _ => Ok(()),
        }
    }

    fn state(&self, name: &WorkName) -> Result<WorkState, PodsError> {
        let work = self.work(name);
        Ok(match work.standing()? {
            Standing::Absent if self.attempts(&name.unit)?.iter().any(|other| *other > name.attempt) => {
                WorkState::Tombstoned
            }
            Standing::Absent => WorkState::Unknown,
            Standing::Tombstoned => WorkState::Tombstoned,
            Standing::Ended(result) => WorkState::Ended(result),
            Standing::Running | Standing::Waiting | Standing::Vanished => running(&work),
        })
    }

    /// The tries of a unit that have a folder.
    fn attempts(&self, unit: &str) -> Result<Vec<u32>, PodsError> {
        let names = folder::names(&self.pods.join(unit))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Sees to it that a task looks after the work until its result is taken, and that it looks now.
    fn watch(self: &Arc<Self>, name: &WorkName) {
        let mut watches = self.watches();
        if let Some(watch) = watches.get(name) {
            watch.wake.notify_one();
            return;
        }
        let wake = Arc::new(Notify::new());
        let task = tokio::spawn(deliver::look_after(self.clone(), name.clone(), wake.clone())).abort_handle();
        watches.insert(name.clone(), Watch { wake, task, asked: 0 });
    }

    fn wake(&self, name: &WorkName) {
        if let Some(watch) = self.watches().get(name) {
            watch.wake.notify_one();
        }
    }

    /// The task of `name` ends unless there is something to do again; says whether it may.
    pub(super) fn leave(&self, name: &WorkName) -> bool {
        let mut watches = self.watches();
        let work = self.work(name);
        let may = work.taken().exists() || !work.result().exists();
        if may {
            watches.remove(name);
        }
        may
    }

    fn send_again(self: &Arc<Self>, name: &WorkName, work: &Work) {
        // Counted first: a result that is taken right now was sent before.
        if let Some(watch) = self.watches().get_mut(name) {
            watch.asked += 1;
        }
        // A task that is about to end looks for this file, under the lock that `watch` takes.
        let _ = std::fs::remove_file(work.taken());
        self.watch(name);
    }

    /// How often ended work was asked for.
    pub(super) fn asked(&self, name: &WorkName) -> u64 {
        self.watches().get(name).map_or(0, |watch| watch.asked)
    }

    /// Notes that the result which was sent when it had been asked for `asked` times was taken; says whether that was
    /// the latest time.
    pub(super) fn take(&self, name: &WorkName, asked: u64) -> Result<bool, PodsError> {
        let watches = self.watches();
        if watches.get(name).is_some_and(|watch| watch.asked != asked) {
            return Ok(false);
        }
        let work = self.work(name);
        folder::write_whole(&work.taken(), b"")?;
        work.tidy();
        Ok(true)
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, HashMap<WorkName, Watch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn running(work: &Work) -> WorkState {
    WorkState::running(logs::tail_text(&work.folder, LOG_TAIL))
}

fn check(name: &WorkName) -> Result<(), RelayError> {
    let unit = name.unit.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let ends = unit.first() != Some(&b'-') && unit.last() != Some(&b'-');
    if unit.is_empty() || unit.len() > UNIT_MAX || !unit.iter().all(plain) || !ends {
        let shown: String = name.unit.chars().take(80).collect();
        return Err(RelayError::Refused(format!("{shown:?} is no DNS label")));
    }
    if name.attempt == 0 {
        return Err(RelayError::Refused("tries count from 1".to_owned()));
    }
    Ok(())
}

fn busy(error: PodsError) -> RelayError {
    RelayError::Busy(error.to_string())
}
