//! The relays of the clusters in which pod units run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::ports::RelayError;
use ebb_protocol::callback::{Callback, ReasonCode};
use ebb_protocol::id::RunId;
use ebb_protocol::relay::{CallbackEndpoint, EnsureTask, TaskId, TaskState};
use ebb_protocol::value::UnitValue;

use super::super::{FaultKind, SimTaskId};
use super::executor::{SimExecutor, callback_of, run_of};
use super::ledger::AttemptReceiver;
use super::registry::SimUnit;

/// A cluster whose relay gives no answer at first.
pub(super) const UNREACHABLE: &str = "silent";
/// How long an answer of that one is waited for.
const HANGS_MS: u64 = 15_000;

enum SimTaskState {
    Running(RunningScript),
    Waiting(Box<EnsureTask>),
    Ended(Box<Callback>, CallbackEndpoint),
    Tombstoned,
}

/// A script that runs.
struct RunningScript {
    task: SimTaskId,
    run: RunId,
    /// When it ends at the latest.
    until: u64,
}

/// A relay never forgets a name.
#[derive(Default)]
struct SimRelayState {
    tasks: BTreeMap<TaskId, SimTaskState>,
    queue: VecDeque<TaskId>,
    running: usize,
    away_until: u64,
}

/// The clusters, whoever asks their relays.
#[derive(Clone)]
pub(super) struct SimClusters {
    executor: Arc<SimExecutor>,
    known: Arc<Mutex<SimRelayState>>,
    is_silent: Arc<AtomicBool>,
    /// Scripts that run at one time.
    slots: usize,
}

/// A relay.
pub(super) struct SimRelay(pub(super) SimClusters);

/// How long it may be out of reach, in milliseconds.
const AWAY_MS: u64 = 300_000;
/// How much later a request may arrive once more; less than `L`.
const AGAIN_MS: u64 = 20_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

fn reads(request: &EnsureTask) -> Vec<String> {
    let script = request.script().expect("only scripts are sent here");
    let values = script.inputs.iter().filter_map(|input| match &input.value {
        Some(UnitValue::Json(serde_json::Value::String(text))) => Some(text.clone()),
        _ => None,
    });
    values.collect()
}

fn part_of(work: &SimExecutor, request: &EnsureTask) -> Option<Arc<SimUnit>> {
    let key = request.script()?.env.iter().find(|(name, _)| name == "EBB_IDEMPOTENCY_KEY")?;
    work.ledger.unit(&key.1)
}

impl SimClusters {
    /// Clusters with so many slots for scripts; [`UNREACHABLE`] gives no answer.
    pub(super) fn new(executor: Arc<SimExecutor>, slots: usize) -> Self {
        Self { executor, known: Arc::default(), is_silent: Arc::new(AtomicBool::new(true)), slots }
    }

    /// From now on [`UNREACHABLE`] answers.
    pub(super) fn answer(&self) {
        self.is_silent.store(false, Ordering::Relaxed);
    }

    fn known(&self) -> MutexGuard<'_, SimRelayState> {
        lock(&self.known)
    }

    /// Returns whether the request arrives.
    async fn arrives(&self, cluster: Option<&str>) -> Result<(), RelayError> {
        if self.executor.faults.should_inject(FaultKind::DeathBeforeCall) {
            self.executor.runtime.die().await;
        }
        if cluster == Some(UNREACHABLE) && self.is_silent.load(Ordering::Relaxed) {
            self.executor.runtime.sleep(HANGS_MS).await;
            return Err(RelayError::Unreachable("it is silent".to_owned()));
        }
        let now = self.executor.runtime.elapsed();
        let mut known = self.known();
        if now >= known.away_until && self.executor.faults.should_inject(FaultKind::RelayAwayLong) {
            known.away_until = now + self.executor.faults.random_below(FaultKind::RelayAwayLong, AWAY_MS);
        }
        if now < known.away_until || self.executor.faults.should_inject(FaultKind::RelayAway) {
            return Err(RelayError::Unreachable("as planned".to_owned()));
        }
        Ok(())
    }

    /// What the caller gets to know.
    async fn answers<T>(&self, answer: T) -> Result<T, RelayError> {
        if self.executor.faults.should_inject(FaultKind::DeathAfterCall) {
            self.executor.runtime.die().await;
        }
        if self.executor.faults.should_inject(FaultKind::RelayAnswerLost) {
            return Err(RelayError::Unreachable("the answer was lost as planned".to_owned()));
        }
        Ok(answer)
    }

    /// Begins the works at the front of the queue, as many as there are slots. Gives those of the setup, by their runs.
    fn hand_out(&self, known: &mut SimRelayState, receiver: AttemptReceiver) -> Vec<(RunId, TaskId)> {
        let mut begun = Vec::new();
        while known.running < self.slots
            && let Some(name) = known.queue.pop_front()
        {
            let Some(SimTaskState::Waiting(request)) = known.tasks.remove(&name) else { continue };
            let part = part_of(&self.executor, &request).expect("only works of known units wait");
            let run = run_of(&name.unit).expect("only works of runs wait");
            if part.sets_up() {
                begun.push((run.clone(), name.clone()));
            }
            let until = self.executor.runtime.elapsed() + request.timeout_ms;
            let task = self.begin(&part, run.clone(), &request, receiver);
            known.running += 1;
            known.tasks.insert(name, SimTaskState::Running(RunningScript { task, run, until }));
        }
        begun
    }

    fn begin(&self, part: &Arc<SimUnit>, run: RunId, request: &EnsureTask, receiver: AttemptReceiver) -> SimTaskId {
        let running = self.executor.begin(part, run, request.task.attempt, receiver, true, reads(request));
        let (own, part) = (self.clone(), Arc::clone(part));
        let (name, to, timeout) = (request.task.clone(), request.callback.clone(), request.timeout_ms);
        let task = self.executor.runtime.spawn(async move {
            let work = &own.executor;
            let vanishes = work.faults.should_inject(FaultKind::PodLost);
            let limit = if vanishes { work.faults.random_below(FaultKind::PodLost, part.millis + 1) } else { timeout };
            let ended = std::sync::Mutex::new(None);
            let performed = async { *lock(&ended) = Some(work.execute(running).await) };
            work.runtime.first(performed, work.runtime.sleep(limit)).await;
            let callback = match ended.into_inner().expect("no panic while it is held") {
                Some(ended) => Callback { log: Some("it ran".to_owned()), ..callback_of(&ended) },
                None if vanishes => Callback::failed(ReasonCode::Lost, "the pod vanished as planned"),
                None => Callback::failed(ReasonCode::Timeout, "its time is up"),
            };
            {
                let mut known = own.known();
                known.tasks.insert(name, SimTaskState::Ended(Box::new(callback.clone()), to.clone()));
                known.running -= 1;
                own.hand_out(&mut known, AttemptReceiver::Queue);
            }
            Arc::clone(work).call_back(to.token, callback).await;
        });
        task.id
    }

    /// Kills what runs of `name`, and keeps it from ever running.
    fn tombstone(&self, known: &mut SimRelayState, name: &TaskId) {
        known.queue.retain(|waiting| waiting != name);
        let Some(SimTaskState::Running(killed)) = known.tasks.insert(name.clone(), SimTaskState::Tombstoned) else {
            return;
        };
        self.executor.runtime.kill(killed.task);
        known.running -= 1;
        // A deadline may be kept while the run is stopped.
        let is_early = self.executor.runtime.elapsed() < killed.until;
        let by_stop = is_early && self.executor.ledger.is_stopped(&killed.run);
        for (run, begun) in self.hand_out(known, AttemptReceiver::Queue) {
            if by_stop && run == killed.run {
                let place = format!("{begun:?} begins in the slot of {name:?}, which the stop of their run killed");
                self.executor.ledger.report_violation(place);
            }
        }
    }

    fn state(known: &SimRelayState, name: &TaskId) -> TaskState {
        match known.tasks.get(name) {
            None => TaskState::Unknown,
            Some(SimTaskState::Running(_)) => TaskState::running(""),
            Some(SimTaskState::Waiting(_)) => {
                let ahead = known.queue.iter().position(|waiting| waiting == name).unwrap_or(0);
                TaskState::Queued { ahead }
            }
            Some(SimTaskState::Ended(callback, _)) => TaskState::Ended(callback.clone()),
            Some(SimTaskState::Tombstoned) => TaskState::Tombstoned,
        }
    }

    fn ensure(&self, request: EnsureTask) -> Result<TaskState, RelayError> {
        let mut known = self.known();
        for attempt in 1..request.task.attempt {
            let name = TaskId { unit: request.task.unit.clone(), attempt };
            if !matches!(known.tasks.get(&name), Some(SimTaskState::Ended(..))) {
                self.tombstone(&mut known, &name);
            }
        }
        let name = request.task.clone();
        let is_known = part_of(&self.executor, &request).is_some() && run_of(&name.unit).is_some();
        match known.tasks.get_mut(&name) {
            None if !is_known => return Err(RelayError::Refused("no such unit".to_owned())),
            None => {
                known.tasks.insert(name.clone(), SimTaskState::Waiting(Box::new(request)));
                known.queue.push_back(name.clone());
                self.hand_out(&mut known, AttemptReceiver::Relay);
            }
            // The newest callback is the one that is valid for longest.
            Some(SimTaskState::Waiting(waiting)) => **waiting = request,
            Some(SimTaskState::Ended(callback, to)) => {
                let again = Arc::clone(&self.executor).call_back(to.token.clone(), callback.as_ref().clone());
                self.executor.runtime.spawn(again);
            }
            Some(SimTaskState::Running(_) | SimTaskState::Tombstoned) => {}
        }
        Ok(Self::state(&known, &name))
    }
}

#[async_trait]
impl ebb_flow::ports::RelayClient for SimRelay {
    async fn ensure(&self, cluster: Option<&str>, request: EnsureTask) -> Result<TaskState, RelayError> {
        let Self(clusters) = self;
        clusters.arrives(cluster).await?;
        if clusters.executor.faults.should_inject(FaultKind::RelayRequestDuplicated) {
            let later = clusters.executor.faults.random_below(FaultKind::RelayRequestDuplicated, AGAIN_MS);
            let (own, request) = (clusters.clone(), request.clone());
            clusters.executor.runtime.spawn(async move {
                own.executor.runtime.sleep(later).await;
                own.ensure(request).ok();
            });
        }
        let state = clusters.ensure(request)?;
        clusters.answers(state).await
    }

    async fn cancel(&self, cluster: Option<&str>, name: &TaskId, _: Duration) -> Result<TaskState, RelayError> {
        self.0.arrives(cluster).await?;
        let state = {
            let mut known = self.0.known();
            if !matches!(known.tasks.get(name), Some(SimTaskState::Ended(..))) {
                self.0.tombstone(&mut known, name);
            }
            SimClusters::state(&known, name)
        };
        self.0.answers(state).await
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.0.arrives(cluster).await?;
        let state = {
            let mut known = self.0.known();
            if matches!(known.tasks.get(name), None | Some(SimTaskState::Waiting(_))) {
                self.0.tombstone(&mut known, name);
            }
            SimClusters::state(&known, name)
        };
        self.0.answers(state).await
    }

    async fn get(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.0.arrives(cluster).await?;
        let state = SimClusters::state(&self.0.known(), name);
        self.0.answers(state).await
    }

    async fn acknowledge(&self, cluster: Option<&str>, _: &TaskId) -> Result<(), RelayError> {
        self.0.arrives(cluster).await
    }

    async fn release(&self, cluster: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.0.arrives(cluster).await
    }
}
