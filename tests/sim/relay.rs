//! The relay of a cluster in which pod units run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Millis, Timestamp};
use ebb_flow::ports::RelayError;
use ebb_protocol::callback::Callback;
use ebb_protocol::relay::{CallbackEndpoint, EnsureTask, TaskId, TaskState};
use ebb_protocol::value::UnitValue;

use super::executor::{ScenarioExecutor, callback_of};
use super::{SimRandom, SimTaskId};

/// A cluster whose relay gives no answer.
pub(super) const UNREACHABLE: &str = "silent";
/// How long an answer of that one is waited for.
const HANGS_MS: u64 = 15_000;

enum ScenarioTaskState {
    /// And when its turn comes.
    Running(SimTaskId, Timestamp),
    Waiting(Box<EnsureTask>),
    Ended(Box<Callback>, CallbackEndpoint),
    Tombstoned,
}

/// A relay. Clones are the same one.
#[derive(Clone)]
pub struct ScenarioRelay {
    executor: Arc<ScenarioExecutor>,
    known: Arc<Mutex<ScenarioRelayState>>,
    random: Arc<SimRandom>,
    unreachable: u8,
    slot_wait_ms: u64,
    slots: usize,
}

#[derive(Default)]
struct ScenarioRelayState {
    tasks: BTreeMap<TaskId, ScenarioTaskState>,
    queue: VecDeque<TaskId>,
    running: usize,
}

impl ScenarioRelay {
    /// `unreachable` percent of requests get no answer; work waits for its turn for `turn_ms`, and for one of `slots`.
    pub(super) fn new(executor: Arc<ScenarioExecutor>, unreachable: u8, slot_wait_ms: u64, slots: usize) -> Self {
        let random = Arc::new(SimRandom::new(executor.scenario.seed ^ 0x4e1a));
        Self { executor, known: Arc::default(), random, unreachable, slot_wait_ms, slots }
    }

    /// How many works wait for a slot.
    pub fn queued(&self) -> usize {
        self.known().queue.len()
    }

    fn known(&self) -> MutexGuard<'_, ScenarioRelayState> {
        self.known.lock().expect("no panic while it is held")
    }

    fn running(&self, turn: Timestamp) -> TaskState {
        match self.executor.runtime.now() < turn {
            true => TaskState::Queued { ahead: 0 },
            false => TaskState::running(""),
        }
    }

    async fn answers(&self, cluster: Option<&str>) -> Result<(), RelayError> {
        if cluster == Some(UNREACHABLE) {
            self.executor.runtime.sleep(HANGS_MS).await;
            return Err(RelayError::Unreachable("it is silent".to_owned()));
        }
        if self.random.in_percent(self.unreachable) {
            return Err(RelayError::Unreachable("as planned".to_owned()));
        }
        Ok(())
    }

    /// Begins the works at the front of the queue, as many as there are slots.
    fn hand_out(&self, known: &mut ScenarioRelayState) {
        while known.running < self.slots
            && let Some(name) = known.queue.pop_front()
        {
            if let Some(ScenarioTaskState::Waiting(request)) = known.tasks.remove(&name) {
                known.running += 1;
                let task = self.begin(&request);
                let turn = self.executor.runtime.now().plus(Millis(self.slot_wait_ms));
                known.tasks.insert(name, ScenarioTaskState::Running(task, turn));
            }
        }
    }

    fn begin(&self, request: &EnsureTask) -> SimTaskId {
        let (inputs, unit) = (inputs(request), unit(request));
        let attempt = request.task.attempt;
        self.executor.note_sent(&unit, attempt, &inputs, true);
        let own = self.clone();
        let (name, to) = (request.task.clone(), request.callback.clone());
        let task = self.executor.runtime.spawn(async move {
            if own.slot_wait_ms > 0 {
                own.executor.runtime.sleep(own.slot_wait_ms).await;
            }
            let result = own.executor.execute(unit, attempt, inputs).await;
            let callback = callback_of(&result);
            {
                let mut known = own.known();
                known.tasks.insert(name, ScenarioTaskState::Ended(Box::new(callback.clone()), to.clone()));
                known.running -= 1;
                own.hand_out(&mut known);
            }
            own.executor.call_back(to.token, callback).await;
        });
        task.id
    }

    /// Kills what runs of `name`, and keeps it from ever running.
    fn tombstone(&self, known: &mut ScenarioRelayState, name: &TaskId) {
        known.queue.retain(|waiting| waiting != name);
        let before = known.tasks.insert(name.clone(), ScenarioTaskState::Tombstoned);
        if let Some(ScenarioTaskState::Running(task, _)) = before {
            self.executor.runtime.kill(task);
            known.running -= 1;
            self.hand_out(known);
        }
    }

    fn state(&self, known: &ScenarioRelayState, name: &TaskId) -> TaskState {
        match known.tasks.get(name) {
            None => TaskState::Unknown,
            Some(ScenarioTaskState::Running(_, turn)) => self.running(*turn),
            Some(ScenarioTaskState::Waiting(_)) => {
                let ahead = known.queue.iter().position(|waiting| waiting == name).unwrap_or(0);
                TaskState::Queued { ahead }
            }
            Some(ScenarioTaskState::Ended(callback, _)) => TaskState::Ended(callback.clone()),
            Some(ScenarioTaskState::Tombstoned) => TaskState::Tombstoned,
        }
    }
}

fn unit(request: &EnsureTask) -> String {
    let script = request.script().expect("only scripts are sent here");
    let unit = script.env.iter().find(|(name, _)| name == "EBB_UNIT");
    unit.map(|(_, unit)| unit.clone()).unwrap_or_default()
}

fn inputs(request: &EnsureTask) -> BTreeMap<String, String> {
    let script = request.script().expect("only scripts are sent here");
    let values = script.inputs.iter().filter_map(|input| match &input.value {
        Some(UnitValue::Json(serde_json::Value::String(text))) => Some((input.name.clone(), text.clone())),
        _ => None,
    });
    values.collect()
}

#[async_trait]
impl ebb_flow::ports::RelayClient for ScenarioRelay {
    async fn ensure(&self, cluster: Option<&str>, request: EnsureTask) -> Result<TaskState, RelayError> {
        self.answers(cluster).await?;
        let mut known = self.known();
        for attempt in 1..request.task.attempt {
            let name = TaskId { unit: request.task.unit.clone(), attempt };
            if !matches!(known.tasks.get(&name), Some(ScenarioTaskState::Ended(..))) {
                self.tombstone(&mut known, &name);
            }
        }
        let name = request.task.clone();
        if !known.tasks.contains_key(&name) {
            known.tasks.insert(name.clone(), ScenarioTaskState::Waiting(Box::new(request)));
            known.queue.push_back(name.clone());
            self.hand_out(&mut known);
            // It is told that it waits for its time when it is asked for again.
            return Ok(match self.state(&known, &name) {
                TaskState::Queued { .. } if self.slot_wait_ms > 0 => TaskState::running(""),
                state => state,
            });
        }
        if let Some(ScenarioTaskState::Ended(callback, to)) = known.tasks.get(&name) {
            let work = Arc::clone(&self.executor);
            self.executor.runtime.spawn(work.call_back(to.token.clone(), callback.as_ref().clone()));
        }
        self.executor.note_sent(&unit(&request), request.task.attempt, &inputs(&request), false);
        Ok(self.state(&known, &name))
    }

    async fn cancel(&self, cluster: Option<&str>, name: &TaskId, _: Duration) -> Result<TaskState, RelayError> {
        self.answers(cluster).await?;
        let mut known = self.known();
        if !matches!(known.tasks.get(name), Some(ScenarioTaskState::Ended(..))) {
            self.tombstone(&mut known, name);
        }
        Ok(self.state(&known, name))
    }

    async fn dequeue(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.answers(cluster).await?;
        let mut known = self.known();
        if matches!(known.tasks.get(name), None | Some(ScenarioTaskState::Waiting(_))) {
            self.tombstone(&mut known, name);
        }
        Ok(self.state(&known, name))
    }

    async fn get(&self, cluster: Option<&str>, name: &TaskId) -> Result<TaskState, RelayError> {
        self.answers(cluster).await?;
        Ok(self.state(&self.known(), name))
    }

    async fn acknowledge(&self, cluster: Option<&str>, _: &TaskId) -> Result<(), RelayError> {
        self.answers(cluster).await
    }

    async fn release(&self, cluster: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.answers(cluster).await
    }
}
