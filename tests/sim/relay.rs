//! The relay of a cluster in which pod units run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Millis, Timestamp};
use ebb_flow::ports::RelayError;
use ebb_wire::callback::Callback;
use ebb_wire::relay::{Destination, Ensure, WorkName, WorkState};
use ebb_wire::value::Value;

use super::work::{Work, callback_of};
use super::{Random, TaskId};

/// A cluster whose relay gives no answer.
pub(super) const SILENT: &str = "silent";
/// How long an answer of that one is waited for.
const HANGS_MS: u64 = 15_000;

enum Stand {
    /// And when its turn comes.
    Running(TaskId, Timestamp),
    Waiting(Box<Ensure>),
    Ended(Box<Callback>, Destination),
    Tombstoned,
}

/// A relay. Clones are the same one.
#[derive(Clone)]
pub struct Relay {
    work: Arc<Work>,
    known: Arc<Mutex<Known>>,
    random: Arc<Random>,
    unreachable: u8,
    turn_ms: u64,
    slots: usize,
}

#[derive(Default)]
struct Known {
    stands: BTreeMap<WorkName, Stand>,
    queue: VecDeque<WorkName>,
    running: usize,
}

impl Relay {
    /// `unreachable` percent of requests get no answer; work waits for its turn for `turn_ms`, and for one of `slots`.
    pub(super) fn new(work: Arc<Work>, unreachable: u8, turn_ms: u64, slots: usize) -> Self {
        let random = Arc::new(Random::new(work.scenario.seed ^ 0x4e1a));
        Self { work, known: Arc::default(), random, unreachable, turn_ms, slots }
    }

    /// How many works wait for a slot.
    pub fn queued(&self) -> usize {
        self.known().queue.len()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while it is held")
    }

    fn running(&self, turn: Timestamp) -> WorkState {
        match self.work.runtime.now() < turn {
            true => WorkState::Waiting { before: 0 },
            false => WorkState::running(""),
        }
    }

    async fn answers(&self, cluster: Option<&str>) -> Result<(), RelayError> {
        if cluster == Some(SILENT) {
            self.work.runtime.sleep(HANGS_MS).await;
            return Err(RelayError::Unreachable("it is silent".to_owned()));
        }
        if self.random.in_percent(self.unreachable) {
            return Err(RelayError::Unreachable("as planned".to_owned()));
        }
        Ok(())
    }

    /// Begins the works at the front of the queue, as many as there are slots.
    fn hand_out(&self, known: &mut Known) {
        while known.running < self.slots
            && let Some(name) = known.queue.pop_front()
        {
            if let Some(Stand::Waiting(request)) = known.stands.remove(&name) {
                known.running += 1;
                let task = self.begin(&request);
                let turn = self.work.runtime.now().plus(Millis(self.turn_ms));
                known.stands.insert(name, Stand::Running(task, turn));
            }
        }
    }

    fn begin(&self, request: &Ensure) -> TaskId {
        let (inputs, unit) = (inputs(request), unit(request));
        let attempt = request.name.attempt;
        self.work.note_sent(&unit, attempt, &inputs, true);
        let own = self.clone();
        let (name, to) = (request.name.clone(), request.callback.clone());
        let task = self.work.runtime.spawn(async move {
            if own.turn_ms > 0 {
                own.work.runtime.sleep(own.turn_ms).await;
            }
            let result = own.work.perform(unit, attempt, inputs).await;
            let callback = callback_of(&result);
            {
                let mut known = own.known();
                known.stands.insert(name, Stand::Ended(Box::new(callback.clone()), to.clone()));
                known.running -= 1;
                own.hand_out(&mut known);
            }
            own.work.call_back(to.token, callback).await;
        });
        task.id
    }

    /// Kills what runs of `name`, and keeps it from ever running.
    fn tombstone(&self, known: &mut Known, name: &WorkName) {
        known.queue.retain(|waiting| waiting != name);
        let before = known.stands.insert(name.clone(), Stand::Tombstoned);
        if let Some(Stand::Running(task, _)) = before {
            self.work.runtime.kill(task);
            known.running -= 1;
            self.hand_out(known);
        }
    }

    fn state(&self, known: &Known, name: &WorkName) -> WorkState {
        match known.stands.get(name) {
            None => WorkState::Unknown,
            Some(Stand::Running(_, turn)) => self.running(*turn),
            Some(Stand::Waiting(_)) => {
                let before = known.queue.iter().position(|waiting| waiting == name).unwrap_or(0);
                WorkState::Waiting { before }
            }
            Some(Stand::Ended(callback, _)) => WorkState::Ended(callback.clone()),
            Some(Stand::Tombstoned) => WorkState::Tombstoned,
        }
    }
}

fn unit(request: &Ensure) -> String {
    let script = request.script().expect("only scripts are sent here");
    let unit = script.env.iter().find(|(name, _)| name == "EBB_UNIT");
    unit.map(|(_, unit)| unit.clone()).unwrap_or_default()
}

fn inputs(request: &Ensure) -> BTreeMap<String, String> {
    let script = request.script().expect("only scripts are sent here");
    let values = script.inputs.iter().filter_map(|input| match &input.value {
        Some(Value::Json(serde_json::Value::String(text))) => Some((input.name.clone(), text.clone())),
        _ => None,
    });
    values.collect()
}

#[async_trait]
impl ebb_flow::ports::Relay for Relay {
    async fn ensure(&self, cluster: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        self.answers(cluster).await?;
        let mut known = self.known();
        for attempt in 1..request.name.attempt {
            let name = WorkName { unit: request.name.unit.clone(), attempt };
            if !matches!(known.stands.get(&name), Some(Stand::Ended(..))) {
                self.tombstone(&mut known, &name);
            }
        }
        let name = request.name.clone();
        if !known.stands.contains_key(&name) {
            known.stands.insert(name.clone(), Stand::Waiting(Box::new(request)));
            known.queue.push_back(name.clone());
            self.hand_out(&mut known);
            // It is told that it waits for its time when it is asked for again.
            return Ok(match self.state(&known, &name) {
                WorkState::Waiting { .. } if self.turn_ms > 0 => WorkState::running(""),
                state => state,
            });
        }
        if let Some(Stand::Ended(callback, to)) = known.stands.get(&name) {
            let work = Arc::clone(&self.work);
            self.work.runtime.spawn(work.call_back(to.token.clone(), callback.as_ref().clone()));
        }
        self.work.note_sent(&unit(&request), request.name.attempt, &inputs(&request), false);
        Ok(self.state(&known, &name))
    }

    async fn cancel(
        &self,
        cluster: Option<&str>,
        name: &WorkName,
        _: Duration,
    ) -> Result<WorkState, RelayError> {
        self.answers(cluster).await?;
        let mut known = self.known();
        if !matches!(known.stands.get(name), Some(Stand::Ended(..))) {
            self.tombstone(&mut known, name);
        }
        Ok(self.state(&known, name))
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.answers(cluster).await?;
        let mut known = self.known();
        if matches!(known.stands.get(name), None | Some(Stand::Waiting(_))) {
            self.tombstone(&mut known, name);
        }
        Ok(self.state(&known, name))
    }

    async fn get(&self, cluster: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.answers(cluster).await?;
        Ok(self.state(&self.known(), name))
    }

    async fn acknowledge(&self, cluster: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        self.answers(cluster).await
    }

    async fn release(&self, cluster: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.answers(cluster).await
    }
}
