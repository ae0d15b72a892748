//! The relay of a cluster in which pod units run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Millis, Timestamp};
use ebb_flow::ports::RelayError;
use ebb_wire::callback::Callback;
use ebb_wire::relay::{Destination, Ensure, WorkName, WorkState};
use ebb_wire::value::Value;

use super::work::{Work, callback_of};
use super::{Random, TaskId};

enum Stand {
    /// And when its turn comes.
    Running(TaskId, Timestamp),
    Ended(Box<Callback>, Destination),
    Tombstoned,
}

/// A relay.
pub struct Relay {
    work: Arc<Work>,
    stands: Arc<Mutex<BTreeMap<WorkName, Stand>>>,
    random: Random,
    unreachable: u8,
    turn_ms: u64,
}

impl Relay {
    /// `unreachable` percent of requests get no answer; work waits for its turn for `turn_ms`.
    pub(super) fn new(work: Arc<Work>, unreachable: u8, turn_ms: u64) -> Self {
        let random = Random::new(work.scenario.seed ^ 0x4e1a);
        Self { work, stands: Arc::default(), random, unreachable, turn_ms }
    }

    fn running(&self, turn: Timestamp) -> WorkState {
        match self.work.runtime.now() < turn {
            true => WorkState::Waiting { before: 0 },
            false => WorkState::Running { log: String::new() },
        }
    }

    fn answers(&self) -> Result<(), RelayError> {
        if self.random.in_percent(self.unreachable) {
            return Err(RelayError::Unreachable("as planned".to_owned()));
        }
        Ok(())
    }

    fn begin(&self, request: &Ensure, unit: &str) -> TaskId {
        let inputs = inputs(request);
        let attempt = request.name.attempt;
        self.work.note_sent(unit, attempt, &inputs, true);
        let (work, stands) = (Arc::clone(&self.work), Arc::clone(&self.stands));
        let (name, to, unit) = (request.name.clone(), request.callback.clone(), unit.to_owned());
        let turn_ms = self.turn_ms;
        let task = self.work.runtime.spawn(async move {
            if turn_ms > 0 {
                work.runtime.sleep(turn_ms).await;
            }
            let result = work.perform(unit, attempt, inputs).await;
            let callback = callback_of(&result);
            let ended = Stand::Ended(Box::new(callback.clone()), to.clone());
            stands.lock().expect("no panic while it is held").insert(name, ended);
            work.call_back(to.token, callback).await;
        });
        task.id
    }

    /// Kills what runs of `name`, and keeps it from ever running.
    fn tombstone(&self, name: &WorkName) {
        let mut stands = self.stands.lock().expect("no panic while it is held");
        let before = stands.insert(name.clone(), Stand::Tombstoned);
        if let Some(Stand::Running(task, _)) = before {
            self.work.runtime.kill(task);
        }
    }
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
    async fn ensure(&self, _: Option<&str>, request: Ensure) -> Result<WorkState, RelayError> {
        self.answers()?;
        let script = request.script().expect("only scripts are sent here");
        let unit = script.env.iter().find(|(name, _)| name == "EBB_UNIT");
        let unit = unit.map(|(_, unit)| unit.clone()).unwrap_or_default();
        let lower: Vec<WorkName> = (1..request.name.attempt)
            .map(|attempt| WorkName { unit: request.name.unit.clone(), attempt })
            .collect();
        for name in lower {
            let ended = matches!(
                self.stands.lock().expect("no panic while it is held").get(&name),
                Some(Stand::Ended(..))
            );
            if !ended {
                self.tombstone(&name);
            }
        }
        let mut stands = self.stands.lock().expect("no panic while it is held");
        let state = match stands.get(&request.name) {
            None => {
                let task = self.begin(&request, &unit);
                let turn = self.work.runtime.now().plus(Millis(self.turn_ms));
                stands.insert(request.name.clone(), Stand::Running(task, turn));
                return Ok(WorkState::Running { log: String::new() });
            }
            Some(Stand::Running(_, turn)) => self.running(*turn),
            Some(Stand::Tombstoned) => WorkState::Tombstoned,
            Some(Stand::Ended(callback, to)) => {
                let work = Arc::clone(&self.work);
                self.work.runtime.spawn(work.call_back(to.token.clone(), callback.as_ref().clone()));
                WorkState::Ended(callback.clone())
            }
        };
        self.work.note_sent(&unit, request.name.attempt, &inputs(&request), false);
        Ok(state)
    }

    async fn cancel(&self, _: Option<&str>, name: &WorkName, _: Duration) -> Result<WorkState, RelayError> {
        self.answers()?;
        {
            let stands = self.stands.lock().expect("no panic while it is held");
            if let Some(Stand::Ended(callback, _)) = stands.get(name) {
                return Ok(WorkState::Ended(callback.clone()));
            }
        }
        self.tombstone(name);
        Ok(WorkState::Tombstoned)
    }

    async fn get(&self, _: Option<&str>, name: &WorkName) -> Result<WorkState, RelayError> {
        self.answers()?;
        let stands = self.stands.lock().expect("no panic while it is held");
        Ok(match stands.get(name) {
            None => WorkState::Unknown,
            Some(Stand::Running(_, turn)) => self.running(*turn),
            Some(Stand::Ended(callback, _)) => WorkState::Ended(callback.clone()),
            Some(Stand::Tombstoned) => WorkState::Tombstoned,
        })
    }

    async fn acknowledge(&self, _: Option<&str>, _: &WorkName) -> Result<(), RelayError> {
        self.answers()
    }

    async fn release(&self, _: Option<&str>, _: &str) -> Result<(), RelayError> {
        self.answers()
    }
}
