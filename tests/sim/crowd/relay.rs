//! The relays of the clusters in which pod units run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::ports::RelayError;
use ebb_wire::callback::{Callback, ReasonCode};
use ebb_wire::id::RunId;
use ebb_wire::relay::{Destination, Ensure, WorkName, WorkState};
use ebb_wire::value::Value;

use super::super::{Mishap, TaskId};
use super::books::Receiver;
use super::cast::Part;
use super::work::{Work, callback_of, run_of};

/// A cluster whose relay gives no answer at first.
pub(super) const SILENT: &str = "silent";
/// How long an answer of that one is waited for.
const HANGS_MS: u64 = 15_000;

enum Stand {
    Running(Running),
    Waiting(Box<Ensure>),
    Ended(Box<Callback>, Destination),
    Tombstoned,
}

/// A script that runs.
struct Running {
    task: TaskId,
    run: RunId,
    /// When it ends at the latest.
    until: u64,
}

/// A relay never forgets a name.
#[derive(Default)]
struct Known {
    stands: BTreeMap<WorkName, Stand>,
    queue: VecDeque<WorkName>,
    running: usize,
    away_until: u64,
}

/// The clusters, whoever asks their relays.
#[derive(Clone)]
pub(super) struct Clusters {
    work: Arc<Work>,
    known: Arc<Mutex<Known>>,
    is_silent: Arc<AtomicBool>,
    /// Scripts that run at one time.
    slots: usize,
}

/// A relay.
pub(super) struct Relay(pub(super) Clusters);

/// How long it may be out of reach, in milliseconds.
const AWAY_MS: u64 = 300_000;
/// How much later a request may arrive once more; less than `L`.
const AGAIN_MS: u64 = 20_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

fn reads(request: &Ensure) -> Vec<String> {
    let script = request.script().expect("only scripts are sent here");
    let values = script.inputs.iter().filter_map(|input| match &input.value {
        Some(Value::Json(serde_json::Value::String(text))) => Some(text.clone()),
        _ => None,
    });
    values.collect()
}

fn part_of(work: &Work, request: &Ensure) -> Option<Arc<Part>> {
    let key = request.script()?.env.iter().find(|(name, _)| name == "EBB_IDEMPOTENCY_KEY")?;
    work.books.part(&key.1)
}

impl Clusters {
    /// Clusters with so many slots for scripts; [`SILENT`] gives no answer.
    pub(super) fn new(work: Arc<Work>, slots: usize) -> Self {
        Self { work, known: Arc::default(), is_silent: Arc::new(AtomicBool::new(true)), slots }
    }

    /// From now on [`SILENT`] answers.
    pub(super) fn answer(&self) {
        self.is_silent.store(false, Ordering::Relaxed);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Returns whether the request arrives.
    async fn arrives(&self, cluster: Option<&str>) -> Result<(), RelayError> {
        if self.work.mishaps.strikes(Mishap::DeathBeforeCall) {
            self.work.runtime.die().await;
        }
        if cluster == Some(SILENT) && self.is_silent.load(Ordering::Relaxed) {
            self.work.runtime.sleep(HANGS_MS).await;
            return Err(RelayError::Unreachable("it is silent".to_owned()));
        }
        let now = self.work.runtime.elapsed();
        let mut known = self.known();
        if now >= known.away_until && self.work.mishaps.strikes(Mishap::RelayAwayLong) {
            known.away_until = now + self.work.mishaps.below(Mishap::RelayAwayLong, AWAY_MS);
        }
        if now < known.away_until || self.work.mishaps.strikes(Mishap::RelayAway) {
            return Err(RelayError::Unreachable("as planned".to_owned()));
        }
        Ok(())
    }

    /// What the caller gets to know.
    async fn answers<T>(&self, answer: T) -> Result<T, RelayError> {
        if self.work.mishaps.strikes(Mishap::DeathAfterCall) {
            self.work.runtime.die().await;
        }
        if self.work.mishaps.strikes(Mishap::RelayAnswerLost) {
            return Err(RelayError::Unreachable("the answer was lost as planned".to_owned()));
        }
        Ok(answer)
    }

    /// Begins the works at the front of the queue, as many as there are slots. Gives those of the setup, by their runs.
    fn hand_out(&self, known: &mut Known, receiver: Receiver) -> Vec<(RunId, WorkName)> {
        let mut begun = Vec::new();
        while known.running < self.slots
            && let Some(name) = known.queue.pop_front()
        {
            let Some(Stand::Waiting(request)) = known.stands.remove(&name) else { continue };
            let part = part_of(&self.work, &request).expect("only works of known units wait");
            let run = run_of(&name.unit).expect("only works of runs wait");
            if part.sets_up() {
                begun.push((run.clone(), name.clone()));
            }
            let until = self.work.runtime.elapsed() + request.timeout_ms;
            let task = self.begin(&part, run.clone(), &request, receiver);
            known.running += 1;
            known.stands.insert(name, Stand::Running(Running { task, run, until }));
        }
        begun
    }

    fn begin(&self, part: &Arc<Part>, run: RunId, request: &Ensure, receiver: Receiver) -> TaskId {
        let running = self.work.begin(part, run, request.name.attempt, receiver, true, reads(request));
        let (own, part) = (self.clone(), Arc::clone(part));
        let (name, to, timeout) = (request.name.clone(), request.callback.clone(), request.timeout_ms);
        let task = self.work.runtime.spawn(async move {
            let work = &own.work;
            let vanishes = work.mishaps.strikes(Mishap::PodLost);
            let limit = if vanishes { work.mishaps.below(Mishap::PodLost, part.millis + 1) } else { timeout };
            let ended = std::sync::Mutex::new(None);
            let performed = async { *lock(&ended) = Some(work.perform(running).await) };
            work.runtime.first(performed, work.runtime.sleep(limit)).await;
            let callback = match ended.into_inner().expect("no panic while it is held") {
                Some(ended) => Callback { log: Some("it ran".to_owned()), ..callback_of(&ended) },
                None if vanishes => Callback::failed(ReasonCode::Lost, "the pod vanished as planned"),
                None => Callback::failed(ReasonCode::Timeout, "its time is up"),
            };
            {
                let mut known = own.known();
                known.stands.insert(name, Stand::Ended(Box::new(callback.clone()), to.clone()));
                known.running -= 1;
                own.hand_out(&mut known, Receiver::Queue);
            }
            Arc::clone(work).call_back(to.token, callback).await;
        });
        task.id
    }

    /// Kills what runs of `name`, and keeps it from ever running.
    fn tombstone(&self, known: &mut Known, name: &WorkName) {
        known.queue.retain(|waiting| waiting != name);
        let Some(Stand::Running(killed)) = known.stands.insert(name.clone(), Stand::Tombstoned) else {
            return;
        };
        self.work.runtime.kill(killed.task);
        known.running -= 1;
        // A deadline may be kept while the run is stopped.
        let is_early = self.work.runtime.elapsed() < killed.until;
        let by_stop = is_early && self.work.books.is_stopped(&killed.run);
        for (run, begun) in self.hand_out(known, Receiver::Queue) {
            if by_stop && run == killed.run {
                let place =
                    format!("{begun:?} begins in the slot of {name:?}, which the stop of their run killed");
                self.work.books.blame(place);
            }
        }
    }

    fn state(known: &Known, name: &WorkName) -> WorkState {
        match known.stands.get(name) {
            None => WorkState::Unknown,
            Some(Stand::Running(_)) => WorkState::running(""),
            Some(Stand::Waiting(_)) => {
                let before = known.queue.iter().position(|waiting| waiting == name).unwrap_or(0);
                WorkState::Waiting { before }
            }
            Some(Stand::Ended(callback, _)) => WorkState::Ended(callback.clone()),
            Some(Stand::Tombstoned) => WorkState::Tombstoned,
        }
    }

    fn ensure(&self, request: Ensure) -> Result<WorkState, RelayError> {
        let mut known = self.known();
        for attempt in 1..request.name.attempt {
            let name = WorkName { unit: request.name.unit.clone(), attempt };
            if !matches!(known.stands.get(&name), Some(Stand::Ended(..))) {
                self.tombstone(&mut known, &name);
            }
        }
        let name = request.name.clone();
        let is_known = part_of(&self.work, &request).is_some() && run_of(&name.unit).is_some();
        match known.stands.get_mut(&name) {
            None if !is_known => return Err(RelayError::Refused("no such unit".to_owned())),
            None => {
                known.stands.insert(name.clone(), Stand::Waiting(Box::new(request)));
                known.queue.push_back(name.clone());
                self.hand_out(&mut known, Receiver::Relay);
            }
            // The newest callback is the one that is valid for longest.
            Some(Stand::Waiting(waiting)) => **waiting = request,
            Some(Stand::Ended(callback, to)) => {
                let again = Arc::clone(&self.work).call_back(to.token.clone(), callback.as_ref().clone());
                self.work.runtime.spawn(again);
            }
            Some(Stand::Running(_) | Stand::Tombstoned) => {}
        }
        Ok(Self::state(&known, &name))
    }
}

#[async_trait]
impl ebb_flow::ports::Relay for Relay {
    async fn ensure(&self, cluster: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        let Self(clusters) = self;
        clusters.arrives(cluster).await?;
        if clusters.work.mishaps.strikes(Mishap::RelayRequestDoubled) {
            let later = clusters.work.mishaps.below(Mishap::RelayRequestDoubled, AGAIN_MS);
            let (own, request) = (clusters.clone(), request.clone());
            clusters.work.runtime.spawn(async move {
                own.work.runtime.sleep(later).await;
                own.ensure(request).ok();
            });
        }
        let state = clusters.ensure(request)?;
        clusters.answers(state).await
    }

    async fn cancel(
        &self,
        cluster: Option<&str>,
        name: &WorkName,
        _: Duration,
    ) -> Result<WorkState, RelayError> {
        self.0.arrives(cluster).await?;
        let state = {
            let mut known = self.0.known();
            if !matches!(known.stands.get(name), Some(Stand::Ended(..))) {
                self.0.tombstone(&mut known, name);
            }
            Clusters::state(&known, name)
        };
        self.0.answers(state).await
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.0.arrives(cluster).await?;
        let state = {
            let mut known = self.0.known();
            if matches!(known.stands.get(name), None | Some(Stand::Waiting(_))) {
                self.0.tombstone(&mut known, name);
            }
            Clusters::state(&known, name)
        };
        self.0.answers(state).await
    }

    async fn get(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.0.arrives(cluster).await?;
        let state = Clusters::state(&self.0.known(), name);
        self.0.answers(state).await
    }

    async fn acknowledge(&self, cluster: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        self.0.arrives(cluster).await
    }

    async fn release(&self, cluster: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.0.arrives(cluster).await
    }
}
